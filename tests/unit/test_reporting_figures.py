"""Figures: right data in the right panel, and the same bytes every time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_results import training_history
from matplotlib.figure import Figure

from agentrl.reporting import figures


@pytest.fixture
def history() -> pd.DataFrame:
    tasks = {"multi-task": ("alfworld", "dbbench"), "single-dbbench": ("dbbench",)}
    return pd.concat(
        training_history(names, seed).assign(run=run, seed=seed)
        for run, names in tasks.items()
        for seed in (0, 1)
    )


DRAWINGS = [figures.learning_curves, figures.staleness, figures.throughput]


@pytest.mark.parametrize("draw", DRAWINGS)
def test_drawn_twice_the_files_are_the_same(
    draw: Callable[[pd.DataFrame], Figure], history: pd.DataFrame, tmp_path: Path
) -> None:
    digests = []
    for name in ("one", "two"):
        paths = figures.save(draw(history), tmp_path / name)
        assert [path.suffix for path in paths] == [".pdf", ".svg", ".png"]
        digests.append([hashlib.md5(path.read_bytes()).hexdigest() for path in paths])
    assert digests[0] == digests[1]


def test_learning_curves_have_a_column_a_task_and_a_line_a_run(history: pd.DataFrame) -> None:
    variant = history[history["run"] == "multi-task"].assign(run="without-both")
    figure = figures.learning_curves(pd.concat([history, variant]))  # which has a table of its own
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == ["alfworld", "dbbench", "", ""]
    smooth = [[line for line in axis.lines if line.get_marker() == "None"] for axis in figure.axes]
    assert [len(lines) for lines in smooth] == [1, 2, 1, 2]
    assert [len(axis.collections) for axis in figure.axes] == [1, 2, 1, 2]  # a band a line


def test_a_line_is_the_mean_over_seeds_in_percent(history: pd.DataFrame) -> None:
    figure = figures.learning_curves(history, window=1)
    chosen = history[(history["run"] == "multi-task") & (history["task"] == "alfworld")]
    by_hand = 100 * chosen.groupby("step")["success_mean"].mean()
    drawn = figure.axes[0].lines[0].get_ydata()
    assert np.allclose(np.asarray(drawn, dtype=float), by_hand)


def test_one_seed_has_no_band(history: pd.DataFrame) -> None:
    figure = figures.learning_curves(history[history["seed"] == 0])
    assert all(len(axis.collections) == 0 for axis in figure.axes)


def test_throughput_is_tokens_over_all_seconds_of_the_step(history: pd.DataFrame) -> None:
    figure = figures.throughput(history, window=1)
    drawn = np.asarray(figure.axes[0].lines[0].get_ydata(), dtype=float)
    assert drawn[0] == pytest.approx(2000 / 3.2)
    assert drawn[5] == pytest.approx(2050 / 3.2)
    waiting, idle = (np.asarray(axis.lines[0].get_ydata(), float) for axis in figure.axes[1:])
    assert waiting[0] == pytest.approx(100 * 0.2 / 3.2)
    assert idle[0] == pytest.approx(100 * 2.2 / 3.2)


def test_the_style_does_not_leak(history: pd.DataFrame) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    figures.learning_curves(history)
    assert dict(matplotlib.rcParams) == before

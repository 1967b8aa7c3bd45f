"""Throughput by mode: means, ranges and speed-ups of made-up measurements."""

from __future__ import annotations

import hashlib
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from agentrl.errors import DataError
from agentrl.reporting import scaling


@pytest.fixture
def measured() -> pd.DataFrame:
    """Synchronous 100 and 200 tokens a second by seed; asynchronous 1.5 and 2.5 times that."""
    speed = {("sync", 0): 100.0, ("sync", 1): 200.0, ("async", 0): 150.0, ("async", 1): 500.0}
    speed |= {("one-step-off", seed): 120.0 for seed in (0, 1)}
    return pd.DataFrame(
        {
            "mode": mode,
            "latency": latency,
            "concurrency": concurrency,
            "seed": seed,
            "tokens_per_second": value * concurrency,
            "learner_idle": 0.5,
        }
        for latency, concurrency in product((0.0, 1.0), (4, 8))
        for (mode, seed), value in speed.items()
    )


def test_means_ranges_and_speedups_by_hand(measured: pd.DataFrame) -> None:
    table = scaling.summary(measured).set_index(["latency", "concurrency", "mode"])
    line = table.loc[(1.0, 8, "async")]
    assert (line["mean"], line["low"], line["high"], line["seeds"]) == (2600.0, 1200.0, 4000.0, 2)
    # 150/100 and 500/200: paired by seed, not the ratio of the means.
    assert (line["speedup"], line["speedup_low"], line["speedup_high"]) == (2.0, 1.5, 2.5)
    assert table.loc[(0.0, 4, "sync"), "speedup"] == 1.0


def test_the_figure_has_a_panel_a_latency_and_one_of_speedups(
    measured: pd.DataFrame, tmp_path: Path
) -> None:
    table = scaling.summary(measured)
    figure = scaling.draw(table)
    assert [axis.get_title() for axis in figure.axes] == [
        "answers after 0 s",
        "answers after 1 s",
        "asynchronous over synchronous (×)",
    ]
    drawn = [np.asarray(axis.lines[0].get_ydata(), dtype=float) for axis in figure.axes]
    assert drawn[0] == pytest.approx([600.0, 1200.0])  # synchronous
    assert drawn[2] == pytest.approx([2.0, 2.0])
    digests = [
        [hashlib.md5(path.read_bytes()).hexdigest() for path in scaling.write(table, place / "f")]
        for place in (tmp_path / "a", tmp_path / "b")
    ]
    assert digests[0] == digests[1]
    grid = scaling.wide(table)
    assert grid.loc[(1.0, 8), "asynchronous over synchronous"] == "2.00×"
    assert grid.loc[(0.0, 4), "synchronous"] == "600 [400, 800]"


def test_another_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with pytest.raises(DataError, match=r"x\.csv is not a readable CSV"):
        scaling.read(path)
    path.write_text("mode\nsync\n")
    with pytest.raises(DataError, match="column 'latency' is missing"):
        scaling.read(path)

"""Figures of a training history; each function draws one and returns it.

Same data, same bytes: no dates in the files, a fixed salt for SVG ids, one style file.
Lines are means over seeds of a centred running mean over `window` steps; bands span the lowest to
the highest seed and are absent with one seed; dots are the unsmoothed values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agentrl.config.stages import MULTI_TASK, SINGLE_TASK
from agentrl.reporting.tables import label

WHOLE_STEP = "*"
METADATA = {
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
    "png": {},
}
WIDTH = 3.3
"""Inches, of one panel: a column of a paper."""


def learning_curves(history: pd.DataFrame, window: int = 5) -> Figure:
    """Success and reward over steps, one column a task, one line a run; variants are left out."""
    variants = [run for run in set(history["run"]) if not _is_main(run)]
    history = history[~history["run"].isin(variants)]
    tasks = [task for task in dict.fromkeys(history["task"]) if task != WHOLE_STEP]
    measures = {"success_mean": "training success (%)", "reward_mean": "training reward"}
    with style():
        figure, axes = panel_grid(len(measures), len(tasks), 2.0)
        for row, (measure, name) in enumerate(measures.items()):
            for column, task in enumerate(tasks):
                axis = axes[row][column]
                scale = 100.0 if measure == "success_mean" else 1.0
                for run in _runs(history, task):
                    name_of_run = "RL, this task only" if run == SINGLE_TASK + task else label(run)
                    _curve(axis, _series(history, run, task, measure) * scale, name_of_run, window)
                axis.set_ylim(0, 100 if measure == "success_mean" else None)
                axis.set_title(task if row == 0 else "")
                axis.set_ylabel(name if column == 0 else "")
                axis.set_xlabel("step" if row == len(measures) - 1 else "")
        _legend(axes[0][0])
    return figure


def staleness(history: pd.DataFrame, window: int = 5) -> Figure:
    """How old the weights behind the trained tokens were, and how many a stale policy spoke."""
    panels: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
        "mean lag of tokens (steps)": lambda whole: whole["staleness_mean"],
        "largest lag (steps)": lambda whole: whole["staleness_max"],
        "tokens by the stale policy (%)": lambda whole: 100 * whole["stale_share"],
    }
    return _whole_step_figure(history, panels, window)


def throughput(history: pd.DataFrame, window: int = 5) -> Figure:
    """Sampled tokens a second of wall time, and how long each half of a step stood still."""
    panels: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
        "sampled tokens per second": lambda whole: whole["sampled_tokens"] / whole["seconds"],
        "engines waiting (% of a step)": lambda whole: (
            100 * whole["seconds_wait"] / whole["seconds"]
        ),
        "learner idle (% of a step)": lambda whole: (
            100 * (1 - whole["seconds_train"] / whole["seconds"])
        ),
    }
    return _whole_step_figure(history, panels, window)


def save(figure: Figure, stem: Path, formats: Sequence[str] = ("pdf", "svg", "png")) -> list[Path]:
    """Write `stem`.pdf, .svg, .png, byte for byte the same for the same figure."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_suffix(f".{kind}") for kind in formats]
    with style():
        for kind, path in zip(formats, paths, strict=True):
            figure.savefig(path, metadata=METADATA[kind])
    return paths


def _whole_step_figure(
    history: pd.DataFrame, panels: dict[str, Callable[[pd.DataFrame], pd.Series]], window: int
) -> Figure:
    whole = history[history["task"] == WHOLE_STEP]
    with style():
        figure, axes = panel_grid(1, len(panels), 2.0)
        for axis, (name, measure) in zip(axes[0], panels.items(), strict=True):
            measured = whole.assign(value=measure)
            for run in _runs(whole, WHOLE_STEP):
                _curve(axis, _series(measured, run, WHOLE_STEP, "value"), label(run), window)
            axis.set_title(name)
            axis.set_xlabel("step")
            axis.set_ylim(bottom=0)
        _legend(axes[0][0])
    return figure


def _series(history: pd.DataFrame, run: str, task: str, measure: str) -> pd.DataFrame:
    """Steps down, seeds across."""
    chosen = history[(history["run"] == run) & (history["task"] == task)]
    return chosen.pivot(index="step", columns="seed", values=measure).astype(float)


def _curve(axis: Axes, table: pd.DataFrame, name: str, window: int) -> None:
    smooth = table.rolling(window, center=True, min_periods=1).mean()
    steps = table.index.to_numpy()
    mean = smooth.mean(axis=1).to_numpy()
    (line,) = axis.plot(steps, mean, label=name)
    raw = table.mean(axis=1).to_numpy()
    axis.plot(steps, raw, ".", markersize=2, alpha=0.35, color=line.get_color())
    if table.shape[1] > 1:
        low, high = np.nanmin(smooth, axis=1), np.nanmax(smooth, axis=1)
        axis.fill_between(steps, low, high, alpha=0.15, linewidth=0, color=line.get_color())


def _runs(history: pd.DataFrame, task: str) -> list[str]:
    """Runs with rows of this task; the multi-task one first, so that it keeps its colour."""
    runs = sorted(set(history[history["task"] == task]["run"]))
    return sorted(runs, key=lambda run: (run != MULTI_TASK, run.startswith(SINGLE_TASK), run))


def _is_main(run: str) -> bool:
    return run == MULTI_TASK or run.startswith(SINGLE_TASK)


def panel_grid(rows: int, columns: int, height: float) -> tuple[Figure, list[list[Axes]]]:
    """An empty figure of `WIDTH` a column and `height` inches a row, and its axes by row."""
    figure = Figure(figsize=(WIDTH * columns, height * rows + 0.3))
    axes = figure.subplots(rows, columns, sharex=True, squeeze=False)
    return figure, [list(line) for line in axes]


def _legend(axis: Axes) -> None:
    handles, names = axis.get_legend_handles_labels()
    if handles:
        axis.legend(handles, names, loc="best")


@contextmanager
def style() -> Iterator[None]:
    """The one look of all figures, for as long as one is drawn."""
    resource = files("agentrl.reporting") / "style.mplstyle"
    with as_file(resource) as path, matplotlib.style.context([str(path)]):
        yield

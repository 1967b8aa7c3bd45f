"""Throughput of the training loop by mode, environment latency and concurrency (paper, Fig. 4).

From the CSV of `agentrl bench scaling`, in virtual seconds. Lines are means over draws of durations, bars
span the lowest to the highest.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from agentrl.errors import DataError
from agentrl.reporting import figures

COLUMNS = ("mode", "latency", "concurrency", "seed", "tokens_per_second", "learner_idle")
MODES = {"sync": "synchronous", "one-step-off": "one step off", "async": "asynchronous"}
WHERE = ["latency", "concurrency"]


def read(path: Path) -> pd.DataFrame:
    """The measurements; raises `DataError` for a file that is none."""
    try:
        frame = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a readable CSV file: {error}") from None
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise DataError(f"{path}: column {missing[0]!r} is missing")
    return frame


def summary(measured: pd.DataFrame) -> pd.DataFrame:
    """One line a latency, concurrency and mode: latency, concurrency, mode, mean, low, high (tokens a
    second), speedup and its low and high (over the synchronous loop with the same draws), learner_idle,
    seeds."""
    base = measured[measured["mode"] == "sync"].set_index([*WHERE, "seed"])["tokens_per_second"]
    places = pd.MultiIndex.from_frame(measured[[*WHERE, "seed"]])
    rows = measured.assign(speedup=measured["tokens_per_second"] / base.reindex(places).to_numpy())
    table = rows.groupby([*WHERE, "mode"], sort=False).agg(
        mean=("tokens_per_second", "mean"),
        low=("tokens_per_second", "min"),
        high=("tokens_per_second", "max"),
        speedup=("speedup", "mean"),
        speedup_low=("speedup", "min"),
        speedup_high=("speedup", "max"),
        learner_idle=("learner_idle", "mean"),
        seeds=("seed", "nunique"),
    )
    return table.reset_index()


def draw(table: pd.DataFrame) -> Figure:
    """Tokens a second over concurrency, one panel a latency; then the speed-up of the asynchronous loop."""
    latencies = sorted(set(table["latency"]))
    ticks = sorted(set(table["concurrency"]))
    with figures.style():
        figure, axes = figures.panel_grid(1, len(latencies) + 1, 2.2)
        for axis, latency in zip(axes[0], latencies, strict=False):
            here = table[table["latency"] == latency]
            for mode, name in MODES.items():
                _line(axis, here[here["mode"] == mode], ("mean", "low", "high"), name)
            axis.set_title(f"answers after {latency:g} s")
        last = axes[0][-1]
        for latency in latencies:
            here = table[(table["latency"] == latency) & (table["mode"] == "async")]
            _line(last, here, ("speedup", "speedup_low", "speedup_high"), f"{latency:g} s")
        last.set_title("asynchronous over synchronous (×)")
        for axis in axes[0]:
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_locator(FixedLocator(ticks))
            axis.xaxis.set_minor_locator(NullLocator())
            axis.xaxis.set_major_formatter(ScalarFormatter())
            axis.set_xlabel("episodes live at once")
            axis.set_ylim(bottom=0)
        axes[0][0].set_ylabel("sampled tokens per second")
        for axis in (axes[0][0], last):
            axis.legend(loc="best")
    return figure


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """For people: a row a latency and concurrency, tokens a second of every mode, and the speed-up."""
    shown = table.assign(
        cell=[
            f"{mean:.0f} [{low:.0f}, {high:.0f}]"
            for mean, low, high in table[["mean", "low", "high"]].to_numpy(dtype=float)
        ]
    )
    grid = shown.pivot(index=WHERE, columns="mode", values="cell")[list(MODES)]
    grid.columns = pd.Index(list(MODES.values()))
    fast = table[table["mode"] == "async"].set_index(WHERE)
    grid["asynchronous over synchronous"] = [f"{value:.2f}×" for value in fast["speedup"]]
    return grid


def write(table: pd.DataFrame, stem: Path) -> list[Path]:
    """`stem`.csv and the figure in three formats."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(stem.with_suffix(".csv"), index=False, float_format="%.6g", lineterminator="\n")
    return figures.save(draw(table), stem)


def _line(axis: Axes, part: pd.DataFrame, columns: tuple[str, str, str], name: str) -> None:
    value, low, high = (part[column].to_numpy(dtype=float) for column in columns)
    bars = np.stack([value - low, high - value])
    axis.errorbar(
        part["concurrency"], value, yerr=bars, label=name, marker="o", markersize=3, capsize=2
    )

"""What training histories say of two runs: how fast they sample, and how far they fall back.

Both give float[seeds, 1] by name, as `agentrl.reporting.paired.difference` takes them: a seed's whole
training is one number, since the steps of a training are not independent.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

WHOLE_STEP = "*"
WINDOW = 5
"""Steps of the running mean in which a fall is measured: single steps hold few samples."""


def efficiency(history: pd.DataFrame, run: str, other: str) -> dict[str, np.ndarray]:
    """Log of sampled tokens a second of wall time, `run` minus `other`; {} where one is missing.

    Of use only where both ran on the same machine with nothing beside them.
    """
    whole = history[history["task"] == WHOLE_STEP]
    sums = whole.groupby(["run", "seed"])[["sampled_tokens", "seconds"]].sum()
    rates = (sums["sampled_tokens"] / sums["seconds"]).map(np.log)
    return _gap({"whole step": rates}, run, other)


def falls(history: pd.DataFrame, run: str, other: str) -> dict[str, np.ndarray]:
    """Largest fall of each task's training success from its best so far, `run` minus `other`."""
    tasks = [task for task in dict.fromkeys(history["task"]) if task != WHOLE_STEP]
    chosen = history[history["run"].isin([run, other])].sort_values("step")
    by_task = {}
    for task in tasks:
        groups = chosen[chosen["task"] == task].groupby(["run", "seed"])["success_mean"]
        by_task[task] = groups.agg(largest_fall)
    return _gap(by_task, run, other)


def largest_fall(curve: pd.Series) -> float:
    """Of the running mean over `WINDOW` steps (fewer at the start), from its highest value so far."""
    smooth = curve.astype(float).rolling(WINDOW, min_periods=1).mean()
    return float((smooth.cummax() - smooth).max())


def _gap(by_name: dict[str, pd.Series], run: str, other: str) -> dict[str, np.ndarray]:
    out = {}
    for name, values in by_name.items():
        ours, theirs = (
            values[values.index.get_level_values("run") == row].droplevel("run")
            for row in (run, other)
        )
        seeds = ours.index.intersection(theirs.index)
        if len(seeds):
            gap = ours.loc[seeds].to_numpy(dtype=float) - theirs.loc[seeds].to_numpy(dtype=float)
            out[name] = gap[:, None]
    return out

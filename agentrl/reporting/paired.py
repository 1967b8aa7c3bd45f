"""Differences between two policies on the same samples, with 95% intervals.

A pair is one sample, played by both policies in one run seed: the seed gives both the same start, and
evaluation gives both the same episode seeds. Only seeds and samples that both have are counted.

The interval is a hierarchical bootstrap (`DRAWS` draws, percentiles): seeds are drawn with replacement,
the same ones for all tasks, and samples within each task; both levels' deviations are added, so that the
noise of single episodes counts in both and the interval leans to the wide side. Percentiles of few seeds
are too narrow: the seeds' deviation is stretched by sqrt(S / (S - 1)), which makes its variance unbiased
(Rao & Wu 1988), times t(S - 1) / z, for a variance known from S seeds alone. With one seed the interval
is over samples, and knows nothing of how trainings differ.

Where every pair of a task differs alike, draws have no width: then the task is drawn from a normal
distribution with the variance of Bonett & Price (2012), which counts two pairs more that differ in
opposite ways. One seed with one pair has no interval. All draws derive from a fixed seed (invariant 8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from agentrl.randomness import generator
from agentrl.reporting.intervals import DRAWS, NOTHING, Interval, Z

T = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
"""97.5% quantiles of Student's t with 1, 2, … degrees of freedom."""


def difference(cells: Mapping[str, np.ndarray]) -> Interval:
    """Mean over tasks of the mean difference of each; every task weighs the same.

    Args:
        cells: by task, float[seeds, samples] of differences in [-1, 1] or any other unit, NaN where
            one of the two is missing. The same seeds in every task.
    """
    if not cells or any(np.isnan(table).all() for table in cells.values()):
        return NOTHING
    seeds = len(next(iter(cells.values())))
    random = generator(0, "paired")
    seed_weights = random.multinomial(seeds, np.full(seeds, 1 / seeds), size=DRAWS)
    values, draws, known = [], [], False
    for table in cells.values():
        value = float(np.nanmean(table))
        values.append(value)
        draws.append(_draws(table, value, seed_weights, random))
        known = known or int((~np.isnan(table)).sum()) > 1
    mean = float(np.mean(values))
    if not known:
        return Interval(mean, np.nan, np.nan, "")
    low, high = np.nanpercentile(np.mean(draws, axis=0), [2.5, 97.5])
    return Interval(mean, min(float(low), mean), max(float(high), mean), "paired bootstrap")


def pairs(
    episodes: pd.DataFrame, row: str, other: str, mode: str, measure: str = "success"
) -> dict[str, np.ndarray]:
    """By task, float[seeds, samples]: `measure` of `row` minus that of `other`, means over repeats.

    Tasks, seeds and samples that both rows have; empty where there are none.
    """
    ours, theirs = (_means(episodes, name, mode, measure) for name in (row, other))
    gap = (ours - theirs.reindex(ours.index)).loc[ours.index.isin(theirs.index)]
    seeds = sorted(set(gap.index.get_level_values("run_seed")))
    return {
        str(task): part.droplevel("task").unstack("index").reindex(seeds).to_numpy(dtype=float)
        for task, part in gap.groupby(level="task", sort=False)
    }


def best_of(
    episodes: pd.DataFrame, rows: Sequence[str], mode: str, measure: str = "success"
) -> str | None:
    """The row with the highest mean over tasks; None where there is no row."""
    chosen = episodes[episodes["row"].isin(rows) & (episodes["mode"] == mode)]
    if chosen.empty:
        return None
    means = chosen.groupby(["row", "task"], sort=False)[measure].mean().groupby(level="row").mean()
    return str(means.idxmax())


def seed_count(cells: Mapping[str, np.ndarray]) -> int:
    return max((len(table) for table in cells.values()), default=0)


def _means(episodes: pd.DataFrame, row: str, mode: str, measure: str) -> pd.Series:
    chosen = episodes[(episodes["row"] == row) & (episodes["mode"] == mode)]
    return chosen.groupby(["task", "run_seed", "index"], sort=False)[measure].mean()


def _draws(
    table: np.ndarray, value: float, seed_weights: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    seeds, samples = table.shape
    present = ~np.isnan(table)
    filled = np.where(present, table, 0.0)
    weights = random.multinomial(samples, np.full(samples, 1 / samples), size=DRAWS)
    if np.ptp(table[present]) == 0:
        if samples == 1:
            return np.full(DRAWS, value)
        n = int(present.any(axis=0).sum())
        more, less = n * max(value, 0.0), n * max(-value, 0.0)
        up, down = (more + 1) / (n + 2), (less + 1) / (n + 2)
        spread = np.sqrt((up + down - (up - down) ** 2) / (n + 2))
        return np.asarray(np.clip(random.normal(up - down, spread, DRAWS), -1, 1))

    by_sample = _weighted(filled.sum(axis=0), present.sum(axis=0), weights)
    if seeds == 1:
        return by_sample
    by_seed = _weighted(filled.sum(axis=1), present.sum(axis=1), seed_weights)
    t = T[seeds - 2] if seeds - 2 < len(T) else Z
    stretch = np.sqrt(seeds / (seeds - 1)) * t / Z
    return np.asarray(by_sample + stretch * (by_seed - value))


def _weighted(sums: np.ndarray, counts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """float[DRAWS]: means where each unit stands `weights` times; NaN where none counts."""
    total = weights @ counts
    unknown = np.full(len(weights), np.nan)
    return np.asarray(np.divide(weights @ sums, total, out=unknown, where=total > 0))

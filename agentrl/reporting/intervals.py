"""95% intervals of success rates.

One seed, one repeat a sample: the Wilson score interval (Wilson 1927) over samples; for the mean of
several tasks, its extension to a sum of independent proportions (MOVER: Zou & Donner 2008).

Otherwise: the pigeonhole bootstrap (Owen 2007), percentile form, `DRAWS` draws. Seeds and samples are
crossed (every seed meets the same samples), so each is drawn with replacement on its own; the seeds
of a draw are the same for all tasks, since one policy plays them all. It leans to the wide side
over samples; with three to five seeds the share of the variance that is between seeds is
underestimated. Where every episode ended alike it would have no width: then Wilson over samples,
and for the mean of tasks that all did so, MOVER.

All draws derive from a fixed seed: the same results give the same interval (invariant 8).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from agentrl.randomness import generator

Z = 1.959963984540054
DRAWS = 2000


class Interval(NamedTuple):
    """A rate in [0, 1] with its 95% bounds and how they were found; NaN without data."""

    value: float
    low: float
    high: float
    method: str


NOTHING = Interval(np.nan, np.nan, np.nan, "")


def wilson(successes: float, n: int) -> Interval:
    """Wilson score interval of `successes` in `n` > 0 independent trials."""
    p = successes / n
    centre = (p + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * np.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    return Interval(p, max(0.0, centre - half), min(1.0, centre + half), "wilson")


def rate(cells: np.ndarray, repeats: int = 1) -> Interval:
    """Success rate of one task.

    Args:
        cells: float[seeds, samples], each the mean success over repeats; NaN where no episode
            has one (an infrastructure failure).
        repeats: episodes a cell.
    """
    if np.isnan(cells).all():
        return NOTHING
    seen = cells[~np.isnan(cells)]
    if len(cells) == 1 and repeats == 1:
        return wilson(float(seen.sum()), len(seen))
    if (seen == seen[0]).all() and seen[0] in (0.0, 1.0):
        n = int((~np.isnan(cells)).any(axis=0).sum())
        return wilson(float(seen[0]) * n, n)
    return _bootstrap({"": cells})


def average(tasks: Mapping[str, np.ndarray], repeats: int = 1) -> Interval:
    """Mean over tasks of the rates of `rate`; every task weighs the same."""
    if not tasks or any(np.isnan(cells).all() for cells in tasks.values()):
        return NOTHING
    parts = [rate(cells, repeats) for cells in tasks.values()]
    if all(part.method == "wilson" for part in parts):
        value = float(np.mean([part.value for part in parts]))
        down = np.sqrt(sum((part.value - part.low) ** 2 for part in parts)) / len(parts)
        up = np.sqrt(sum((part.high - part.value) ** 2 for part in parts)) / len(parts)
        return Interval(value, value - float(down), value + float(up), "wilson")
    return _bootstrap(tasks)


def _bootstrap(tasks: Mapping[str, np.ndarray]) -> Interval:
    seeds = len(next(iter(tasks.values())))
    random = generator(0, "interval")
    seed_weights = random.multinomial(seeds, np.full(seeds, 1 / seeds), size=DRAWS)
    values, draws = [], []
    for cells in tasks.values():
        samples = cells.shape[1]
        present = ~np.isnan(cells)
        filled = np.where(present, cells, 0.0)
        weights = random.multinomial(samples, np.full(samples, 1 / samples), size=DRAWS)
        total = np.einsum("bs,sn,bn->b", seed_weights, filled, weights, optimize=True)
        count = np.einsum("bs,sn,bn->b", seed_weights, present, weights, optimize=True)
        values.append(filled.sum() / present.sum())
        draws.append(np.divide(total, count, out=np.full(DRAWS, np.nan), where=count > 0))
    low, high = np.nanpercentile(np.mean(draws, axis=0), [2.5, 97.5])
    return Interval(float(np.mean(values)), float(low), float(high), "bootstrap")

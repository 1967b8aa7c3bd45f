"""A new run beside the published one: which rates differ by more than chance, and which are missing.

Every mode, row and task of both main tables is one comparison. One seed and one episode a sample on
both sides: the two-proportion z-test with the pooled rate (Fleiss, Levin, Paik 2003, ch. 3), for the
average of tasks with the sum of the tasks' pooled variances; it knows of samples alone, not of how
trainings differ. Otherwise a z-test whose standard errors
are those of the rates' 95% intervals (`agentrl.reporting.intervals`), which know the variance between
trainings. P-values are corrected for the number of comparisons (Holm 1979).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

from agentrl.errors import ConfigError, DataError
from agentrl.reporting.episodes import read_episodes
from agentrl.reporting.intervals import Z
from agentrl.reporting.publish import verify
from agentrl.reporting.tables import AVERAGE, main_table

KEY = ["mode", "row", "task"]
SIDES = ("published", "new")
AGREES, DIFFERS, MISSING, EXTRA = "agrees", "differs", "missing", "extra"
OTHER_SAMPLES = "other samples"
"""Level, split or number of samples differ: the rates are of different things."""


@dataclass(frozen=True, slots=True)
class Check:
    """What `check` found."""

    comparisons: pd.DataFrame
    """One line a mode, row and task: mode, row, task, published, published_low, published_high, new,
    new_low, new_high, difference (new - published; all rates in [0, 1]), p_value, p_corrected, test,
    verdict."""
    level: float

    def count(self, verdict: str) -> int:
        return int((self.comparisons["verdict"] == verdict).sum())

    @property
    def passed(self) -> bool:
        """Whether every published rate is there and agrees; what is new beside them does no harm."""
        return set(self.comparisons["verdict"]) <= {AGREES, EXTRA}

    def __str__(self) -> str:
        largest = self.comparisons["difference"].abs().max()
        counts = ", ".join(
            f"{self.count(verdict)} {verdict}"
            for verdict in (AGREES, DIFFERS, OTHER_SAMPLES, MISSING, EXTRA)
            if self.count(verdict)
        )
        shown = "–" if np.isnan(largest) else f"{100 * largest:.1f} points"
        return (
            f"{counts}; largest difference {shown}; a rate differs where chance alone gives such a "
            f"difference in under {100 * (1 - self.level):g}% of runs, all comparisons together (Holm)"
        )


def check(results: Path, published: Path, level: float = 0.95) -> Check:
    """Compare `results`/episodes.parquet with `published`/episodes.parquet.

    Args:
        level: 1 - the probability that equal rates are said to differ, over all comparisons together.

    Raises `DataError` where a published file is not the one that was published (checksums).
    """
    if not 0 < level < 1:
        raise ConfigError(f"--level: {level} is not between 0 and 1; 0.95 is usual")
    verify(published)
    return compare(
        read_episodes([published / "episodes.parquet"]),
        read_episodes([results / "episodes.parquet"]),
        level,
    )


def compare(published: pd.DataFrame, new: pd.DataFrame, level: float = 0.95) -> Check:
    """The same for episodes as `read_episodes` gives them."""
    repeats = max(int(side["repeat"].nunique()) for side in (published, new))
    old, own = (_by_key(main_table(side)) for side in (published, new))
    lines = []
    for key in dict.fromkeys([*old, *own]):
        line: dict[str, Any] = dict(zip(KEY, key, strict=True))
        for side, table_of in zip(SIDES, (old, own), strict=True):
            found = table_of.get(key, {})
            for end, column in (("", "success"), ("_low", "low"), ("_high", "high")):
                line[side + end] = found.get(column, np.nan)
        line["difference"] = line["new"] - line["published"]
        lines.append(line | _test(old, own, key, repeats))
    table = pd.DataFrame(lines)
    if table.empty:
        raise DataError("neither side has an episode to compare")
    table["p_corrected"] = holm(table["p_value"].to_numpy(dtype=float))
    open_ = table["verdict"] == ""
    table.loc[open_, "verdict"] = np.where(
        table.loc[open_, "p_corrected"] < 1 - level, DIFFERS, AGREES
    )
    order = [*KEY, *(f"{side}{end}" for side in SIDES for end in ("", "_low", "_high"))]
    return Check(table[[*order, "difference", "p_value", "p_corrected", "test", "verdict"]], level)


def holm(p_values: np.ndarray) -> np.ndarray:
    """Step-down corrected p-values (Holm 1979); NaN stays and is not counted."""
    out = np.full(len(p_values), np.nan)
    known = np.flatnonzero(~np.isnan(p_values))
    order = known[np.argsort(p_values[known], kind="stable")]
    factors = len(order) - np.arange(len(order))
    out[order] = np.minimum(1.0, np.maximum.accumulate(p_values[order] * factors))
    return out


def two_proportions(difference: float, variance: float) -> float:
    """Two-sided p-value of a difference whose variance is `variance`; 1 where both are 0."""
    if variance == 0:
        return 1.0 if difference == 0 else 0.0
    return erfc(abs(difference) / sqrt(2 * variance))


Key = tuple[str, str, str]
Lines = dict[Key, dict[str, Any]]


def _by_key(table: pd.DataFrame) -> Lines:
    lines: list[dict[str, Any]] = table.to_dict("records")  # type: ignore[assignment]
    return {(line["mode"], line["row"], line["task"]): line for line in lines}


def _test(old: Lines, own: Lines, key: Key, repeats: int) -> dict[str, Any]:
    nothing = {"p_value": np.nan, "test": ""}
    if key not in own or key not in old:
        return nothing | {"verdict": EXTRA if key in own else MISSING}
    was, now = old[key], own[key]
    if any(was[name] != now[name] for name in ("level", "split", "samples")):
        return nothing | {"verdict": OTHER_SAMPLES}
    if np.isnan(was["success"]) or np.isnan(now["success"]):
        lost = np.isnan(now["success"]) and not np.isnan(was["success"])
        return nothing | {"verdict": MISSING if lost else AGREES}
    if was["seeds"] == now["seeds"] == 1 and repeats == 1:
        test, tasks = "two proportions", [key]
        if key[2] == AVERAGE:
            tasks = [other for other in old if other[:2] == key[:2] and other != key]
        variance = sum(_pooled(old[place], own[place]) for place in tasks) / len(tasks) ** 2
    else:
        test = "intervals"
        variance = sum(((side["high"] - side["low"]) / (2 * Z)) ** 2 for side in (was, now))
    p_value = two_proportions(now["success"] - was["success"], variance)
    return {"p_value": p_value, "test": test, "verdict": ""}


def _pooled(was: dict[str, Any], now: dict[str, Any]) -> float:
    """Variance of the difference of two rates that are the same in truth."""
    n, m = (int(side["episodes"] - side["failures"]) for side in (was, now))
    p = (n * was["success"] + m * now["success"]) / (n + m)
    return float(p * (1 - p) * (1 / n + 1 / m))


def to_rich(found: Check) -> Table:
    """For a terminal; rates in percent, with their intervals."""
    table = Table("mode", "row", "task")
    for name in ("published", "new", "difference", "p (corrected)"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    colours = {AGREES: "green", EXTRA: "cyan"}
    for line in found.comparisons.to_dict("records"):
        shown = [
            "–"
            if np.isnan(line[side])
            else f"{100 * line[side]:.1f} "
            rf"\[{100 * line[f'{side}_low']:.1f}, {100 * line[f'{side}_high']:.1f}]"
            for side in SIDES
        ]
        known = not np.isnan(line["difference"])
        tested = not np.isnan(line["p_corrected"])
        table.add_row(
            *(str(line[name]) for name in KEY),
            *shown,
            f"{100 * line['difference']:+.1f}" if known else "–",
            f"{line['p_corrected']:.3f}" if tested else "–",
            f"[{colours.get(line['verdict'], 'red')}]{line['verdict']}",
        )
    return table


def write_csv(found: Check, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    found.comparisons.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")

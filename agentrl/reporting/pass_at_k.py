"""pass@k of two policies alone and mixed: collected, estimated, drawn (paper, Fig. 8).

`estimate` is the unbiased estimator of Chen et al. 2021 (Codex, Eq. 1): of n attempts at a sample c solved
it; pass@k is the chance that k of them, drawn without replacement, hold a solved one. The mean over
samples is shown, with 95% intervals over samples and seeds (`agentrl.reporting.intervals`): attempts are
not resampled, their noise is in the samples' spread.

    python -m agentrl.reporting.pass_at_k results/mini/pass_at_k.parquet results/mini/pass_at_k/seed*/…
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from agentrl.config.stages import MIXTURE
from agentrl.errors import AgentRLError, DataError
from agentrl.reporting import figures
from agentrl.reporting.episodes import read_episodes
from agentrl.reporting.intervals import Interval, average, rate
from agentrl.reporting.tables import AVERAGE, label

POWERS = (1, 2, 4, 8, 16, 32, 64)


def estimate(n: int, c: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k), as a product; NaN where there are fewer than k attempts.

    Args:
        n: attempts.
        c: of them, solved.
        k: drawn.
    """
    if k > n:
        return float("nan")
    if n - c < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))


def curves(episodes: pd.DataFrame, ks: Sequence[int] | None = None) -> pd.DataFrame:
    """One line a row, task (and "average") and k: row, task, k, value, low, high, method, seeds, samples,
    attempts. Failures of the infrastructure are no attempts.

    Args:
        ks: default: powers of two up to the number of attempts, and that number.
    """
    attempts = int(episodes["repeat"].max()) + 1
    ks = ks or sorted({k for k in (*POWERS, attempts) if k <= attempts})
    rows = list(dict.fromkeys(episodes["row"]))
    lines = []
    for row in rows:
        chosen = episodes[episodes["row"] == row]
        for k in ks:
            cells = {
                str(task): _cells(part, k) for task, part in chosen.groupby("task", sort=False)
            }
            several = {name: _interval(table) for name, table in cells.items()}
            if len(cells) > 1:
                several[AVERAGE] = average(cells, repeats=attempts)
            for task, found in several.items():
                samples = sum(c.shape[1] for n, c in cells.items() if task in (n, AVERAGE))
                lines.append(
                    {
                        "row": row,
                        "task": task,
                        "k": k,
                        **dict(zip(("value", "low", "high", "method"), found, strict=True)),
                        "seeds": int(chosen["run_seed"].nunique()),
                        "samples": samples,
                        "attempts": attempts,
                    }
                )
    return pd.DataFrame(lines)


def draw(table: pd.DataFrame) -> Figure:
    """pass@k over k, one panel a task, one line a policy, bands of 95%."""
    tasks = list(dict.fromkeys(table["task"]))
    ks = sorted(set(table["k"]))
    with figures.style():
        figure, axes = figures.panel_grid(1, len(tasks), 2.2)
        for axis, task in zip(axes[0], tasks, strict=True):
            for place, (row, part) in enumerate(
                table[table["task"] == task].groupby("row", sort=False)
            ):
                name = "mixed, turn by turn" if row == MIXTURE else label(str(row))
                style: dict[str, Any] = {"marker": "os^"[place % 3], "markersize": 3}
                (line,) = axis.plot(part["k"], 100 * part["value"], label=name, **style)
                low, high = 100 * part["low"], 100 * part["high"]
                axis.fill_between(
                    part["k"], low, high, alpha=0.12, linewidth=0, color=line.get_color()
                )
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_locator(FixedLocator(ks))
            axis.xaxis.set_minor_locator(NullLocator())
            axis.xaxis.set_major_formatter(ScalarFormatter())
            axis.set_title(task)
            axis.set_xlabel("k")
            axis.set_ylim(0, 100)
        axes[0][0].set_ylabel("pass@k (%)")
        axes[0][0].legend(loc="best")
    return figure


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """For people: a row a policy and task, a column a k; percent with the interval."""
    shown = table.assign(
        cell=[
            f"{100 * value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
            for value, low, high in table[["value", "low", "high"]].to_numpy(dtype=float)
        ],
        policy=[MIXTURE if row == MIXTURE else label(str(row)) for row in table["row"]],
    )
    return shown.pivot_table(
        index=["task", "policy"], columns="k", values="cell", aggfunc="first", sort=False
    )


def write(table: pd.DataFrame, stem: Path) -> list[Path]:
    """`stem`.csv and the figure in three formats."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(stem.with_suffix(".csv"), index=False, float_format="%.6g", lineterminator="\n")
    return figures.save(draw(table), stem)


def _cells(episodes: pd.DataFrame, k: int) -> np.ndarray:
    """float[seeds, samples] of pass@k."""
    counts = episodes.groupby(["run_seed", "index"])["success"].agg(["count", "sum"])
    values = [estimate(int(n), int(c), k) for n, c in counts.itertuples(index=False)]
    return pd.Series(values, counts.index).unstack("index").to_numpy(dtype=float)


def _interval(cells: np.ndarray) -> Interval:
    # More than one attempt a cell: values between 0 and 1, which Wilson's formula is not for.
    return rate(cells, repeats=2)


def _beside(path: Path) -> Path:
    return path.with_suffix(".provenance.json")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Put the seeds' files together, checked.")
    parser.add_argument("output", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args(arguments)
    try:
        episodes = read_episodes(given.files)
        if MIXTURE not in set(episodes["row"]):
            raise DataError(f"{given.files[0]} has no row {MIXTURE!r}: not made by `pass-at-k`")
        episodes.to_parquet(given.output, index=False)
        records = [json.loads(_beside(path).read_text(encoding="utf-8")) for path in given.files]
        text = json.dumps({"records": records}, indent=1, sort_keys=True)
        _beside(given.output).write_text(text + "\n", encoding="utf-8")
    except AgentRLError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

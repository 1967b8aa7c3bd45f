"""Policies beside the multi-task one: Table 4 (trained on one task) and Table 6 (ablations).

Rates have the intervals of the main table; differences from the multi-task policy are paired over
seeds and samples (`agentrl.reporting.paired`). The paper's numbers stand apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from agentrl.config.stages import MULTI_TASK, SINGLE_TASK
from agentrl.reporting import layout
from agentrl.reporting.paired import difference, pairs
from agentrl.reporting.tables import (
    AVERAGE,
    MODE_TITLES,
    MODES,
    SPECIALISTS,
    caption,
    label,
    main_table,
    with_specialists,
)

COLUMNS = ("difference", "difference_low", "difference_high")
"""Beside those of `main_table`: this row minus the multi-task policy, in [-1, 1]."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A table of rows beside the multi-task policy's; empty where none of them was run."""

    table: pd.DataFrame
    """Columns of `main_table` and `COLUMNS`; NaN in the multi-task policy's own lines."""
    number: int
    """Of the paper's table."""
    absent: str
    """What to say where there are no rows."""


def single_task_table(episodes: pd.DataFrame) -> Comparison:
    """Table 4: each single-task policy on every task, and all of them, each on its own."""
    found = _rows(episodes)
    rows = [row for row in found if row.startswith(SINGLE_TASK)]
    wanted = [*rows, SPECIALISTS] if rows else []
    return Comparison(
        _compared(with_specialists(episodes), wanted),
        4,
        "No policy here was trained on one task: `single_task_runs: true` trains them, where there are "
        "several tasks.",
    )


def ablation_table(episodes: pd.DataFrame, variants: Sequence[str]) -> Comparison:
    """Table 6: multi-task training again, each time with something changed."""
    found = _rows(episodes)
    return Comparison(
        _compared(episodes, [row for row in variants if row in found]),
        6,
        "No variant of the matrix is among these results: `--config matrix=full` trains them.",
    )


def to_markdown(comparison: Comparison) -> str:
    table = comparison.table
    if table.empty:
        return comparison.absent + "\n"
    apart = _published(comparison.number, _tasks(table))
    return layout.to_markdown(_blocks(table), _caption(table), apart)


def to_latex(comparison: Comparison) -> str:
    table = comparison.table
    if table.empty:
        return f"% {comparison.absent}\n"
    tasks = _tasks(table)
    apart = _published(comparison.number, tasks)
    return layout.to_latex(["", *tasks, "Average"], _blocks(table), _caption(table), apart)


def write_comparison(comparison: Comparison, stem: Path) -> None:
    """`stem`.csv (ours, tidy), .md and .tex (for people)."""
    layout.write(stem, comparison.table, to_markdown(comparison), to_latex(comparison))


def _compared(episodes: pd.DataFrame, rows: Sequence[str]) -> pd.DataFrame:
    if not rows or MULTI_TASK not in set(episodes["row"]):
        return pd.DataFrame(columns=["mode", "row", "task", "success", *COLUMNS])
    table = main_table(episodes[episodes["row"] != SPECIALISTS], [MULTI_TASK, *rows])
    tasks = [*_tasks(table), AVERAGE]
    for column in COLUMNS:
        table[column] = np.nan
    for mode in MODES:
        for row in rows:
            cells = pairs(episodes, row, MULTI_TASK, mode)
            for task in tasks:
                whole = cells if len(cells) == len(tasks) - 1 else {}
                own = {task: cells[task]} if task in cells else {}
                here = (table["mode"] == mode) & (table["row"] == row) & (table["task"] == task)
                found = difference(whole if task == AVERAGE else own)
                table.loc[here, list(COLUMNS)] = found[:3]
    return table


def _blocks(table: pd.DataFrame) -> list[layout.Block]:
    tasks = _tasks(table)
    blocks = []
    for mode in (mode for mode in MODES if mode in set(table["mode"])):
        rates, gaps = [], []
        for row, lines in table[table["mode"] == mode].groupby("row", sort=False):
            by_task: dict[str, Any] = {str(line["task"]): line for _, line in lines.iterrows()}
            shown = [by_task[task] for task in (*tasks, AVERAGE)]
            name = label(str(row))
            rates.append(
                [name, *(layout.percent(r["success"], r["low"], r["high"]) for r in shown)]
            )
            if row != MULTI_TASK:
                cells = [layout.percent(*(r[c] for c in COLUMNS), signed=True) for r in shown]
                gaps.append([name, *cells])
        header = ["", *tasks, "Average"]
        title = MODE_TITLES[mode]
        blocks.append(layout.Block(title, header, rates))
        blocks.append(layout.Block(f"{title}: minus {label(MULTI_TASK)}, in points", header, gaps))
    return blocks


def _caption(table: pd.DataFrame) -> str:
    seeds = int(table["seeds"].max())
    alone = " over samples alone, since there is one seed" if seeds == 1 else ""
    return f"{caption(table)} Differences are paired over seeds and samples; their intervals are by paired bootstrap{alone}."


def _published(number: int, tasks: Sequence[str]) -> layout.Block:
    body = [
        [str(row["model"]), *(layout.given(row.get(task)) for task in (*tasks, AVERAGE))]
        for _, row in layout.published(number).iterrows()
    ]
    return layout.Block(
        f"Published (Table {number} of arXiv 2510.04206)",
        ["", *tasks, "Average (five tasks)"],
        body,
        note="Qwen2.5-14B-Instruct on the official samples, from second-hand notes; – where they do not "
        "say. Not comparable with the rows above.",
        latex_title="Published, official samples (not comparable; average over five tasks)",
    )


def _rows(episodes: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(episodes["row"]))


def _tasks(table: pd.DataFrame) -> list[str]:
    return [task for task in dict.fromkeys(table["task"]) if task != AVERAGE]

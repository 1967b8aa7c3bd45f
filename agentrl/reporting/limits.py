"""Table 7: how many episodes the task's limit ended, by policy and task.

Only status `task limit reached` counts, as in the paper; an episode that ran out of the policy's own
context did not reach the task's limit. Intervals are the main table's; episodes that failed for the
infrastructure are in no share.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd

from agentrl.messages import Status
from agentrl.reporting import layout
from agentrl.reporting.tables import AVERAGE, MODE_TITLES, MODES, caption, main_table


def limit_table(episodes: pd.DataFrame, without: Collection[str] = ()) -> pd.DataFrame:
    """As `main_table`, with `share` (of episodes that the task's limit ended) for `success`."""
    ended = (episodes["status"] == Status.LIMIT_REACHED).astype(float)
    counted = episodes.assign(success=ended.where(episodes["reward"].notna()))
    table = main_table(counted, without=without).drop(columns="reward")
    return table.rename(columns={"success": "share"})


def to_markdown(table: pd.DataFrame) -> str:
    apart = _published(_tasks(table))
    return layout.to_markdown(_blocks(table), _caption(table), apart)


def to_latex(table: pd.DataFrame) -> str:
    tasks = _tasks(table)
    header = ["", *tasks, "Average"]
    return layout.to_latex(header, _blocks(table), _caption(table), _published(tasks))


def write_limit_table(table: pd.DataFrame, stem: Path) -> None:
    """`stem`.csv (ours, tidy), .md and .tex (for people)."""
    layout.write(stem, table, to_markdown(table), to_latex(table))


def _blocks(table: pd.DataFrame) -> list[layout.Block]:
    tasks = _tasks(table)
    blocks = []
    for mode in (mode for mode in MODES if mode in set(table["mode"])):
        body = []
        for _, lines in table[table["mode"] == mode].groupby("row", sort=False):
            by_task: dict[str, Any] = {str(line["task"]): line for _, line in lines.iterrows()}
            cells = [_cell(by_task.get(task)) for task in (*tasks, AVERAGE)]
            body.append([str(lines.iloc[0]["label"]), *cells])
        blocks.append(layout.Block(MODE_TITLES[mode], ["", *tasks, "Average"], body))
    return blocks


def _cell(line: Any) -> str:
    if line is None:
        return layout.MISSING
    return layout.percent(line["share"], line["low"], line["high"])


def _caption(table: pd.DataFrame) -> str:
    return caption(table).replace("Success rate", "Episodes that the task's limit ended,", 1)


def _published(tasks: list[str]) -> layout.Block | None:
    found = layout.published(7)
    if not set(tasks) & set(found.columns):
        return None
    body = [
        [str(row["model"]), *(layout.given(row.get(task)) for task in tasks), layout.MISSING]
        for _, row in found.iterrows()
    ]
    return layout.Block(
        "Published (Table 7 of arXiv 2510.04206)",
        ["", *tasks, "Average"],
        body,
        note="On the official samples, from second-hand notes; – where they do not say. Not comparable "
        "with the rows above.",
        latex_title="Published, official samples (not comparable)",
    )


def _tasks(table: pd.DataFrame) -> list[str]:
    return [task for task in dict.fromkeys(table["task"]) if task != AVERAGE]

"""The main table, in the shape of Table 3 of the paper, and what training each row cost.

Rows are this repository's policies with 95% intervals (`agentrl.reporting.intervals`), sampled
(T = 1) and greedy apart. The published rows stand below them, never ranked together: other models,
the official samples, and a standard deviation of 4 runs where ours have an interval.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from agentrl.config.stages import BASE, EXPERT, MULTI_TASK, SINGLE_TASK
from agentrl.reporting import layout
from agentrl.reporting.episodes import success_cells
from agentrl.reporting.intervals import NOTHING, Interval, average, rate

SPECIALISTS = "single-task"
"""A row put together from the single-task policies, each on the task it was trained on."""
AVERAGE = "average"
MODES = ("sampled", "greedy")
MODE_TITLES = {"sampled": "Sampled", "greedy": "Greedy"}


def main_table(
    episodes: pd.DataFrame, rows: Sequence[str] | None = None, without: Collection[str] = ()
) -> pd.DataFrame:
    """One line a mode, row and task (and "average"), in the order people read them.

    Columns: mode, row, label, task, level, split, seeds, samples, episodes, failures, success, low,
    high (rates in [0, 1]), method, reward.

    Args:
        episodes: as `read_episodes` gives them.
        rows: which rows, and their order; default: base, expert, clones, RL runs.
        without: rows that belong to another table.
    """
    episodes = with_specialists(episodes[~episodes["row"].isin(list(without))])
    tasks = list(dict.fromkeys(episodes["task"]))
    lines: list[dict[str, Any]] = []
    for mode in MODES:
        for row in rows or _ordered(list(dict.fromkeys(episodes["row"]))):
            chosen = episodes[(episodes["mode"] == mode) & (episodes["row"] == row)]
            if len(chosen):
                lines += _row_lines(chosen, mode, row, tasks)
    return pd.DataFrame(lines)


def with_specialists(episodes: pd.DataFrame) -> pd.DataFrame:
    """The episodes, and once more those of single-task policies on their own task, as one row."""
    own = episodes[episodes["row"] == SINGLE_TASK + episodes["task"]]
    return pd.concat([episodes, own.assign(row=SPECIALISTS)], ignore_index=True)


def published_rows() -> pd.DataFrame:
    """Table 3 of the paper, in percent; the file says where it was taken from."""
    return layout.published(3)


def label(row: str) -> str:
    """What a table calls a row."""
    known = {
        BASE: "Before training",
        EXPERT: "Expert (knows the solution)",
        MULTI_TASK: "RL, multi-task",
        SPECIALISTS: "RL, single-task (each on its own)",
        "gpt-5": "GPT-5",
    }
    if row in known:
        return known[row]
    if row.startswith(SINGLE_TASK):
        return f"RL, {row.removeprefix(SINGLE_TASK)} only"
    return row.replace("-", " ").replace("_", " ").capitalize()


def caption(table: pd.DataFrame) -> str:
    """What the numbers are of: tasks with level, split and samples; seeds; how intervals were found."""
    parts = []
    for task, lines in table[table["task"] != AVERAGE].groupby("task", sort=False):
        first = lines.iloc[0]
        parts.append(
            f"{task} ({first['level']}, split {first['split']}, {first['samples']} samples)"
        )
    seeds = sorted(set(table["seeds"]))
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    noun = "seed" if count == "1" else "seeds"
    methods = ", ".join(sorted(set(table["method"]) - {""}))
    text = f"Success rate in %, 95% interval in brackets ({methods}); {count} {noun} a row; "
    return text + "; ".join(parts) + "."


def to_markdown(table: pd.DataFrame, published: pd.DataFrame | None = None) -> str:
    """Tables for people: one a mode, then the published one, each under its heading."""
    apart = None if published is None else _published(published, _task_names(table))
    return layout.to_markdown(_blocks(table), caption(table), apart)


def to_latex(table: pd.DataFrame, published: pd.DataFrame | None = None) -> str:
    """One `booktabs` tabular; modes and published rows under headings of their own."""
    tasks = _task_names(table)
    apart = None if published is None else _published(published, tasks)
    return layout.to_latex(["", *tasks, "Average"], _blocks(table), caption(table), apart)


def write_main_table(table: pd.DataFrame, stem: Path, *, published: bool = True) -> None:
    """`stem`.csv (ours, tidy), .md and .tex (for people)."""
    reference = published_rows() if published else None
    layout.write(stem, table, to_markdown(table, reference), to_latex(table, reference))


def _row_lines(chosen: pd.DataFrame, mode: str, row: str, tasks: list[str]) -> list[dict[str, Any]]:
    lines, cells = [], {}
    repeats = int(chosen["repeat"].nunique())
    for task in tasks:
        part = chosen[chosen["task"] == task]
        if part.empty:
            continue
        cells[task] = success_cells(part)
        first = part.iloc[0]
        where = {"task": task, "level": first["level"], "split": first["split"]}
        lines.append(_line(mode, row, where, part, rate(cells[task], repeats)))
    whole = average(cells, repeats) if len(cells) == len(tasks) else NOTHING
    lines.append(_line(mode, row, {"task": AVERAGE, "level": "", "split": ""}, chosen, whole))
    return lines


def _line(
    mode: str, row: str, where: dict[str, str], part: pd.DataFrame, interval: Interval
) -> dict[str, Any]:
    return {
        "mode": mode,
        "row": row,
        "label": label(row),
        **where,
        "seeds": int(part["run_seed"].nunique()),
        "samples": int(part[["task", "index"]].drop_duplicates().shape[0]),
        "episodes": len(part),
        "failures": int(part["reward"].isna().sum()),
        "success": interval.value,
        "low": interval.low,
        "high": interval.high,
        "method": interval.method,
        "reward": float(part.groupby("task")["reward"].mean().mean()),
    }


def _ordered(rows: Sequence[str]) -> list[str]:
    single = [row for row in rows if row.startswith(SINGLE_TASK) and row != SPECIALISTS]
    named = (BASE, EXPERT, MULTI_TASK, SPECIALISTS)
    clones = [row for row in rows if row not in (*named, *single)]
    order = [BASE, EXPERT, *clones, MULTI_TASK, SPECIALISTS, *single]
    return [row for row in order if row in rows]


def _modes(table: pd.DataFrame) -> list[str]:
    return [mode for mode in MODES if mode in set(table["mode"])]


def _task_names(table: pd.DataFrame) -> list[str]:
    return [task for task in dict.fromkeys(table["task"]) if task != AVERAGE]


def _blocks(table: pd.DataFrame) -> list[layout.Block]:
    tasks = _task_names(table)
    blocks = []
    for mode in _modes(table):
        body = []
        for _, lines in table[table["mode"] == mode].groupby("row", sort=False):
            by_task = {str(line["task"]): line for _, line in lines.iterrows()}
            cells = [_cell(by_task.get(task)) for task in (*tasks, AVERAGE)]
            body.append([str(lines.iloc[0]["label"]), *cells])
        blocks.append(layout.Block(MODE_TITLES[mode], ["", *tasks, "Average"], body))
    return blocks


def _cell(line: pd.Series[Any] | None) -> str:
    if line is None or pd.isna(line["success"]):
        return layout.MISSING
    failed = f" ({line['failures']} failed)" if line["failures"] else ""
    return layout.percent(line["success"], line["low"], line["high"]) + failed


def _published(published: pd.DataFrame, tasks: Sequence[str]) -> layout.Block:
    body = []
    for _, row in published.iterrows():
        cells = [layout.given(row.get(task), row.get(f"{task}_sd")) for task in tasks]
        body.append([str(row["model"]), *cells, f"{row['average']:.1f}"])
    return layout.Block(
        "Published (Table 3 of arXiv 2510.04206)",
        ["", *tasks, "Average (five tasks)"],
        body,
        note="Other models on the official samples, mean ± standard deviation of 4 runs; the average "
        "is over all five tasks. Not comparable with the rows above.",
        latex_title="Published, official samples (not comparable; average over five tasks)",
    )

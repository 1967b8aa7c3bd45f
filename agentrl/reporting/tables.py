"""The main table, in the shape of Table 3 of the paper, and what training each row cost.

Rows are this repository's policies with 95% intervals (`agentrl.reporting.intervals`), sampled
(T = 1) and greedy apart. The published rows stand below them, never ranked together: other models,
the official samples, and a standard deviation of 4 runs where ours have an interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from agentrl.config.stages import BASE, EXPERT, MULTI_TASK, SINGLE_TASK
from agentrl.reporting.episodes import success_cells
from agentrl.reporting.intervals import NOTHING, Interval, average, rate

SPECIALISTS = "single-task"
"""A row put together from the single-task policies, each on the task it was trained on."""
AVERAGE = "average"
MODES = ("sampled", "greedy")
MODE_TITLES = {"sampled": "Sampled", "greedy": "Greedy"}


def main_table(episodes: pd.DataFrame, rows: Sequence[str] | None = None) -> pd.DataFrame:
    """One line a mode, row and task (and "average"), in the order people read them.

    Columns: mode, row, label, task, level, split, seeds, samples, episodes, failures, success, low,
    high (rates in [0, 1]), method, reward.

    Args:
        episodes: as `read_episodes` gives them.
        rows: which rows, and their order; default: base, expert, clones, RL runs.
    """
    episodes = pd.concat([episodes, _specialists(episodes)], ignore_index=True)
    tasks = list(dict.fromkeys(episodes["task"]))
    lines: list[dict[str, Any]] = []
    for mode in MODES:
        for row in rows or _ordered(list(dict.fromkeys(episodes["row"]))):
            chosen = episodes[(episodes["mode"] == mode) & (episodes["row"] == row)]
            if len(chosen):
                lines += _row_lines(chosen, mode, row, tasks)
    return pd.DataFrame(lines)


def published_rows() -> pd.DataFrame:
    """Table 3 of the paper, in percent; the file says where it was taken from."""
    with (files("agentrl.reporting") / "published_table3.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file, comment="#")


def label(row: str) -> str:
    """What a table calls a row."""
    known = {
        BASE: "Before training",
        EXPERT: "Expert (knows the solution)",
        MULTI_TASK: "RL, multi-task",
        SPECIALISTS: "RL, single-task (each on its own)",
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
    blocks = []
    for mode in _modes(table):
        header, body = _grid(table[table["mode"] == mode])
        blocks.append(f"### {MODE_TITLES[mode]}\n\n{_pipes(header, body)}\n")
    blocks.append(caption(table) + "\n")
    if published is not None:
        header, body = _published_grid(published, _task_names(table))
        blocks.append(
            "### Published (Table 3 of arXiv 2510.04206)\n\nOther models on the official samples, "
            "mean ± standard deviation of 4 runs; the average is over all five tasks. "
            f"Not comparable with the rows above.\n\n{_pipes(header, body)}\n"
        )
    return "\n".join(blocks)


def to_latex(table: pd.DataFrame, published: pd.DataFrame | None = None) -> str:
    """One `booktabs` tabular; modes and published rows under headings of their own."""
    tasks = _task_names(table)
    header = ["", *tasks, "Average"]
    lines = [
        r"% needs \usepackage{booktabs}",
        rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"\toprule",
        " & ".join(map(_escape, header)) + r" \\",
    ]
    for mode in _modes(table):
        lines += _latex_block(
            MODE_TITLES[mode], _grid(table[table["mode"] == mode])[1], len(header)
        )
    if published is not None:
        title = "Published, official samples (not comparable; average over five tasks)"
        lines += _latex_block(title, _published_grid(published, tasks)[1], len(header))
    lines += [r"\bottomrule", r"\end{tabular}", f"% {caption(table)}"]
    return "\n".join(lines) + "\n"


def write_main_table(table: pd.DataFrame, stem: Path, *, published: bool = True) -> None:
    """`stem`.csv (ours, tidy), .md and .tex (for people)."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    reference = published_rows() if published else None
    table.to_csv(stem.with_suffix(".csv"), index=False, float_format="%.6g", lineterminator="\n")
    stem.with_suffix(".md").write_text(to_markdown(table, reference), encoding="utf-8")
    stem.with_suffix(".tex").write_text(to_latex(table, reference), encoding="utf-8")


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


def _specialists(episodes: pd.DataFrame) -> pd.DataFrame:
    own = episodes[episodes["row"] == SINGLE_TASK + episodes["task"]]
    return own.assign(row=SPECIALISTS)


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


def _grid(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    tasks = [*_task_names(table), AVERAGE]
    body = []
    for _, lines in table.groupby("row", sort=False):
        by_task = {str(line["task"]): line for _, line in lines.iterrows()}
        cells = [_cell(by_task[task]) if task in by_task else "–" for task in tasks]
        body.append([str(lines.iloc[0]["label"]), *cells])
    return ["", *_task_names(table), "Average"], body


def _cell(line: pd.Series[Any]) -> str:
    if pd.isna(line["success"]):
        return "–"
    value, low, high = (100 * line[name] for name in ("success", "low", "high"))
    failed = f" ({line['failures']} failed)" if line["failures"] else ""
    return f"{value:.1f} [{low:.1f}, {high:.1f}]{failed}"


def _published_grid(
    published: pd.DataFrame, tasks: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    body = []
    for _, row in published.iterrows():
        cells = []
        for task in tasks:
            value, spread = row.get(task), row.get(f"{task}_sd")
            known = value is not None and not pd.isna(value)
            exact = known and spread is not None and not pd.isna(spread)
            cells.append(
                f"{value:.1f} ± {spread:.1f}" if exact else f"{value:.1f}" if known else "–"
            )
        body.append([str(row["model"]), *cells, f"{row['average']:.1f}"])
    return ["", *tasks, "Average (five tasks)"], body


def _pipes(header: list[str], body: list[list[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *body))


def _latex_block(title: str, body: list[list[str]], width: int) -> list[str]:
    heading = rf"\multicolumn{{{width}}}{{l}}{{\emph{{{_escape(title)}}}}} \\"
    rows = [" & ".join(map(_escape, cells)) + r" \\" for cells in body]
    return [r"\midrule", heading, *rows]


def _escape(text: str) -> str:
    special = {"_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "±": r"$\pm$", "–": "--"}
    return "".join(special.get(character, character) for character in text)

"""The claims of the paper's abstract as statements that results of this repository can decide.

Every claim compares the multi-task policy with another, in one statistic, fixed before results are looked
at: mostly the difference of sampled success, the mean over tasks, paired over seeds and samples, with the
95% interval of `agentrl.reporting.paired`. The verdict follows from the interval [low, high] and the
claim's two bounds:

    not run        a row that it needs is not among the results
    inconclusive   fewer than `MIN_SEEDS` seeds: an interval over samples alone does not know how trainings
                   differ; whatever it is
    shown          low > bound
    not shown      high < enough: the data rule out what the claim says
    inconclusive   otherwise: the interval holds both answers

A gain is shown above 0, and not shown where `SMALLEST` or more of it is ruled out. A policy that is to be
as good as another is shown above -`MARGIN`, and not shown below it. Each interval is of its own claim at
95%: with a dozen claims, one that is wrong by chance is not unlikely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from agentrl.config.stages import MULTI_TASK, SINGLE_TASK
from agentrl.reporting import layout
from agentrl.reporting.intervals import Interval
from agentrl.reporting.paired import best_of, difference, pairs, seed_count
from agentrl.reporting.speed import efficiency, falls
from agentrl.reporting.tables import MODES, SPECIALISTS, label, with_specialists

MIN_SEEDS = 3
SMALLEST = 0.02
"""The least gain that is worth the name: 2 points of success, or 2% of speed."""
MARGIN = 0.05
"""The loss of success under which two policies count as equally good: 5 points."""
NOT_RUN, SHOWN, NOT_SHOWN, INCONCLUSIVE = "not run", "shown", "not shown", "inconclusive"

SUCCESS, SPEED, FALL = "success", "speed", "fall"
UNITS = {
    SUCCESS: "sampled success, points",
    SPEED: "sampled tokens a second, %",
    FALL: "largest fall of training success, points",
}
START, BEST_SINGLE = "<start>", "<best single>"
"""Stand for the policy that RL started from, and the single-task policy with the best average."""


@dataclass(frozen=True, slots=True)
class Claim:
    """`policy` minus `other` in `statistic` (for FALL: `other` minus `policy`) is above `bound`."""

    name: str
    quote: str
    """Of the abstract."""
    statement: str
    other: str
    statistic: str = SUCCESS
    bound: float = 0.0
    enough: float = SMALLEST
    missing: str = "train it: `--config matrix=full`"
    policy: str = MULTI_TASK


CLAIMS = (
    Claim(
        "rl-improves",
        "scalable multi-turn, multi-task agentic RL training",
        "RL raises success over the policy that it starts from",
        START,
        missing="needs a policy that RL starts from",
    ),
    Claim(
        "rl-beats-cloning",
        "significantly outperforms … other open-source LLM agents",
        "RL raises success more than as many tokens of cloning (the miniature's counterpart)",
        "cloned-plus",
        missing="no clone named `cloned-plus`",
    ),
    Claim(
        "beats-api-models",
        "significantly outperforms GPT-5, Claude-Sonnet-4, DeepSeek-R1",
        "RL succeeds more often than GPT-5 on the same samples",
        "gpt-5",
        missing="needs episodes of the model: docs/api-models.md",
    ),
    Claim(
        "matches-specialists",
        "matches the best results among all task-specific models",
        "one multi-task policy is as good as single-task policies, each on its own task",
        SPECIALISTS,
        bound=-MARGIN,
        enough=-MARGIN,
        missing="needs `single_task_runs: true` and several tasks",
    ),
    Claim(
        "beats-each-specialist",
        "building generalist agents",
        "over all tasks, multi-task is better than the best policy that was trained on one",
        BEST_SINGLE,
        missing="needs `single_task_runs: true` and several tasks",
    ),
    Claim(
        "cross-policy-helps",
        "cross-policy sampling to encourage model exploration in multi-turn settings",
        "cross-policy sampling raises success",
        "without-cross-policy",
    ),
    Claim(
        "normalization-helps",
        "task advantage normalization",
        "task advantage normalization raises success",
        "without-task-normalization",
    ),
    Claim(
        "normalization-stabilizes",
        "task advantage normalization to stabilize multi-task training",
        "with task advantage normalization training success falls less from its best",
        "without-task-normalization",
        FALL,
    ),
    Claim(
        "both-help",
        "on the algorithm side, we propose cross-policy sampling … and task advantage normalization",
        "both together raise success",
        "without-both",
    ),
    Claim(
        "asynchrony-is-faster",
        "a fully-asynchronous generation-training pipeline for efficient multi-turn RL",
        "asynchronous training samples more tokens a second than synchronous training",
        "synchronous",
        SPEED,
    ),
    Claim(
        "asynchrony-costs-nothing",
        "a fully-asynchronous generation-training pipeline for efficient multi-turn RL",
        "asynchronous training ends as good as synchronous training",
        "synchronous",
        bound=-MARGIN,
        enough=-MARGIN,
    ),
)


def verdict(interval: Interval, seeds: int, bound: float, enough: float) -> str:
    """The rule of the module's docstring, for a claim whose rows are there."""
    if seeds < MIN_SEEDS or np.isnan(interval.low):
        return INCONCLUSIVE
    if interval.low > bound:
        return SHOWN
    return NOT_SHOWN if interval.high < enough else INCONCLUSIVE


def claims_table(
    episodes: pd.DataFrame, history: pd.DataFrame, starts: Mapping[str, str]
) -> pd.DataFrame:
    """One line a claim: claim, quote, statement, policy, other, unit, value, low, high (fractions),
    bound, enough, seeds, pairs, verdict, note.

    Args:
        episodes: as `read_episodes` gives them. history: as `read_history`.
        starts: which policy each run continued from, as in the provenance.
    """
    episodes = with_specialists(episodes)
    return pd.DataFrame([_line(claim, episodes, history, starts) for claim in CLAIMS])


def to_markdown(table: pd.DataFrame) -> str:
    header = ["", "compared with", "measure", "difference", "seeds", "verdict"]
    body = [_cells(line) for _, line in table.iterrows()]
    return layout.markdown(layout.Block("Claims", header, body)) + "\n" + CAPTION + "\n"


def to_latex(table: pd.DataFrame) -> str:
    header = ["", "compared with", "measure", "difference", "seeds", "verdict"]
    blocks = [layout.Block("Claims", header, [_cells(line) for _, line in table.iterrows()])]
    return layout.to_latex(header, blocks, CAPTION.replace("\n", " "))


def write_claims(table: pd.DataFrame, csv: Path, stem: Path) -> None:
    """`csv` (tidy), and `stem`.md and .tex (for people)."""
    layout.write_csv(table, csv)
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".md").write_text(to_markdown(table), encoding="utf-8")
    stem.with_suffix(".tex").write_text(to_latex(table), encoding="utf-8")


CAPTION = (
    "Multi-task RL minus the other, with a 95% interval (hierarchical bootstrap, paired over seeds and samples). "
    f"Shown: the interval is above the claim's bound. Not shown: it rules out a gain of {100 * SMALLEST:g} points, or "
    f"lies below the margin of {100 * MARGIN:g}. Inconclusive: otherwise, and always with fewer than {MIN_SEEDS} seeds. "
    "Verdicts are of this scale's policies and samples, not of the paper's."
)


def _line(
    claim: Claim, episodes: pd.DataFrame, history: pd.DataFrame, starts: Mapping[str, str]
) -> dict[str, Any]:
    other = _other(claim, episodes, starts)
    cells = _differences(claim, other, episodes, history) if other else {}
    line = {
        "claim": claim.name,
        "quote": claim.quote,
        "statement": claim.statement,
        "policy": claim.policy,
        "other": other or claim.other.strip("<>"),
        "unit": UNITS[claim.statistic],
        **dict.fromkeys(("value", "low", "high"), np.nan),
        "bound": claim.bound,
        "enough": claim.enough,
        "seeds": 0,
        "pairs": 0,
        "verdict": NOT_RUN,
        "note": claim.missing,
    }
    if not cells:
        return line
    found, seeds = difference(cells), seed_count(cells)
    value, low, high = found[:3]
    if claim.statistic == SPEED:
        value, low, high = (float(np.expm1(number)) for number in (value, low, high))
    note = f"{seeds} of {MIN_SEEDS} seeds that a verdict needs" if seeds < MIN_SEEDS else ""
    return line | {
        "value": value,
        "low": low,
        "high": high,
        "seeds": seeds,
        "pairs": int(sum((~np.isnan(table)).sum() for table in cells.values())),
        "verdict": verdict(Interval(value, low, high, ""), seeds, claim.bound, claim.enough),
        "note": note,
    }


def _other(claim: Claim, episodes: pd.DataFrame, starts: Mapping[str, str]) -> str | None:
    if claim.other == START:
        return starts.get(claim.policy)
    if claim.other == BEST_SINGLE:
        rows = [row for row in dict.fromkeys(episodes["row"]) if _is_single(row)]
        return best_of(episodes, rows, MODES[0])
    return claim.other


def _is_single(row: str) -> bool:
    return row.startswith(SINGLE_TASK) and row != SPECIALISTS


def _differences(
    claim: Claim, other: str, episodes: pd.DataFrame, history: pd.DataFrame
) -> dict[str, np.ndarray]:
    if claim.statistic == SPEED:
        return efficiency(history, claim.policy, other)
    if claim.statistic == FALL:
        return falls(history, other, claim.policy)
    cells = pairs(episodes, claim.policy, other, MODES[0])
    tasks: Sequence[str] = list(dict.fromkeys(episodes["task"]))
    return cells if set(cells) == set(tasks) else {}


def _cells(line: pd.Series[Any]) -> list[str]:
    shown = layout.percent(line["value"], line["low"], line["high"], signed=True)
    seeds = str(line["seeds"]) if line["seeds"] else layout.MISSING
    said = f"{line['verdict']} ({line['note']})" if line["note"] else str(line["verdict"])
    return [str(line["statement"]), label(line["other"]), str(line["unit"]), shown, seeds, said]

"""One episode for people: its turns as a table, its tokens as a table or as coloured text.

What a token shows is what the learner sees (invariants 1 and 2): its id, whether it enters the loss,
the log-probability it was sampled with, the policy's role and version.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from agentrl.rollout.trajectory import Trajectory

Decode = Callable[[Sequence[int]], str]
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""One a role (Okabe and Ito); environment tokens are grey."""


def turn_table(trajectory: Trajectory) -> pd.DataFrame:
    """One row a turn: the call, the environment's answer, tokens, versions and role."""
    rows = []
    for number, turn in enumerate(trajectory.turns):
        mine = trajectory.loss_mask & (trajectory.turn == number)
        calls = [call["function"] for call in turn.assistant.get("tool_calls", ())]
        said = "; ".join(f"{call['name']}({call['arguments']})" for call in calls)
        rows.append(
            {
                "turn": number,
                "policy": turn.role,
                "versions": _span(trajectory.policy_version[mine]),
                "sampled": int(mine.sum()),
                "logprob": float(trajectory.behaviour_logprobs[mine].sum()),
                "action": said or turn.assistant.get("content", ""),
                "answer": " / ".join(str(reply["content"]) for reply in turn.replies),
            }
        )
    return pd.DataFrame(rows)


def token_table(trajectory: Trajectory, decode: Decode) -> pd.DataFrame:
    """One row a token; its text is what it adds behind the token before it."""
    roles = ["environment", *trajectory.roles]
    return pd.DataFrame(
        {
            "turn": trajectory.turn,
            "text": _texts(trajectory.token_ids.tolist(), decode),
            "id": trajectory.token_ids,
            "in_loss": trajectory.loss_mask,
            "logprob": np.where(trajectory.loss_mask, trajectory.behaviour_logprobs, np.nan),
            "version": trajectory.policy_version,
            "role": [roles[role + 1] for role in trajectory.policy_role],
        }
    )


def to_html(trajectory: Trajectory, decode: Decode) -> str:
    """The episode's tokens in one flow: sampled ones on their policy's colour, the rest grey.

    Hovering over a token tells its id, version and probability.
    """
    spans: list[str] = []
    turn: object = 0
    for row in token_table(trajectory, decode).itertuples():
        if row.turn != turn:
            turn = row.turn
            spans.append("<br>")
        text = html.escape(str(row.text)).replace("\n", "↵<br>")
        if not row.in_loss:
            spans.append(f'<span style="color:#767676" title="id {row.id}">{text}</span>')
            continue
        colour = COLOURS[trajectory.roles.index(str(row.role)) % len(COLOURS)]
        about = f"id {row.id}, {row.role} v{row.version}, p={np.exp(float(str(row.logprob))):.2f}"
        style = f"background:{colour};color:#fff;border-radius:2px"
        spans.append(f'<span style="{style}" title="{about}">{text}</span>')
    legend = " ".join(
        f'<b style="color:{COLOURS[i % len(COLOURS)]}">■ {html.escape(role)}</b>'
        for i, role in enumerate(trajectory.roles)
    )
    return (
        f'<div>{legend} <span style="color:#767676">■ environment (not in the loss)</span></div>'
        f'<div style="font-family:monospace;line-height:1.6;white-space:pre-wrap">{"".join(spans)}</div>'
    )


def summary(trajectory: Trajectory) -> pd.DataFrame:
    """The facts of the whole episode, one a row."""
    reward = "none: infrastructure failure" if trajectory.reward is None else trajectory.reward
    facts = {
        "task": trajectory.task,
        "sample": f"{trajectory.split} {trajectory.index}",
        "ended as": str(trajectory.status),
        "reward": str(reward),
        "turns": str(len(trajectory.turns)),
        "tokens": str(len(trajectory.token_ids)),
        "of them sampled": str(trajectory.sampled),
        "policy versions": _span(trajectory.policy_version[trajectory.loss_mask]),
    }
    return pd.DataFrame({"value": facts})


def _texts(ids: Sequence[int], decode: Decode) -> list[str]:
    """Decoded alone, a token may lose the space in front of it."""
    texts = []
    for place, token in enumerate(ids):
        before = ids[max(place - 1, 0) : place]
        both, first = decode([*before, token]), decode(before) if before else ""
        texts.append(both.removeprefix(first) if both.startswith(first) else decode([token]))
    return texts


def _span(versions: np.ndarray) -> str:
    if not len(versions):
        return "–"
    low, high = int(versions.min()), int(versions.max())
    return str(low) if low == high else f"{low} to {high}"

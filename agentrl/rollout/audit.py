"""Re-renders finished trajectories by paths of their own and compares them with what was recorded.

A rollout renders a conversation piece by piece and never encodes a completion. Here the whole
conversation is rendered at once, twice: as text by the tokenizer's chat template, as ids by the
renderer's full rendering. Invariants that are checked: 1 (ids), 2 (columns), pitfalls 1-7 and 11.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from renderers import Renderer

from agentrl.messages import Message, ToolSpec
from agentrl.rollout.parts import PartsRenderer
from agentrl.rollout.rendering import parse_message, render
from agentrl.rollout.trajectory import ENVIRONMENT, Trajectory


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Something that a trajectory says in two ways."""

    trajectory: tuple[str, str, int, int, int]
    """task, split, index, group, member"""
    what: str
    """"text", "environment tokens", "message", "columns" """
    turn: int
    """-1 where no turn can be named"""
    expected: str
    found: str

    def __str__(self) -> str:
        where = "/".join(map(str, self.trajectory))
        return f"{where} turn {self.turn}: {self.what}: {self.expected!r} != {self.found!r}"


@dataclass(slots=True)
class AuditReport:
    trajectories: int = 0
    turns: int = 0
    recoded: int = 0
    """Turns that the policy wrote in other tokens than the tokenizer would: allowed, and the reason
    why completions are never encoded again."""
    mismatches: list[Mismatch] = field(default_factory=list)


def audit(
    trajectories: Iterable[Trajectory],
    renderer: Renderer,
    tokenizer: Any,
    tools: Mapping[str, Sequence[ToolSpec]],
) -> AuditReport:
    """Compare trajectories with their messages. `tools` by task, as the episodes were given them."""
    report = AuditReport()
    for trajectory in trajectories:
        _Audit(trajectory, renderer, tokenizer, tools[trajectory.task], report).run()
    return report


class _Audit:
    def __init__(
        self,
        trajectory: Trajectory,
        renderer: Renderer,
        tokenizer: Any,
        tools: Sequence[ToolSpec],
        report: AuditReport,
    ) -> None:
        self.trajectory, self.renderer, self.tokenizer = trajectory, renderer, tokenizer
        self.tools, self.report = tools, report
        self.ids = trajectory.token_ids.tolist()
        self.spans = _runs(trajectory.loss_mask)

    def run(self) -> None:
        self.report.trajectories += 1
        self._columns()
        if not self.ids:
            return
        spoken = [span for span in self.spans if span[2]]
        self.report.turns += len(spoken)
        if len(spoken) > len(self.trajectory.turns):
            self._differ("columns", -1, len(self.trajectory.turns), len(spoken))
            return
        texts = [self._completion(turn, span) for turn, span in enumerate(spoken)]
        self._text(texts)
        self._environment(texts)

    def _completion(self, turn: int, span: tuple[int, int, bool]) -> str:
        """The text of a completion, and whether it is the message that was recorded."""
        ids = self.ids[span[0] : span[1]]
        parsed = parse_message(
            self.renderer, ids, self.tools, prompt=self.ids[: span[0]], turn=turn
        )
        recorded = Message.from_openai(self.trajectory.turns[turn].assistant)
        if parsed != recorded:
            self._differ("message", turn, recorded, parsed)
        return self._decode(ids[:-1] if self._closed(ids, turn) else ids)

    def _messages(self, texts: Sequence[str]) -> list[Message]:
        """The conversation as far as its tokens go, completions as plain content."""
        told = [Message.from_openai(message) for message in self.trajectory.opening]
        for turn, text in enumerate(texts):
            told.append(Message("assistant", self._verbatim(text)))
            if turn + 1 < len(texts) or not self.spans[-1][2]:
                told += [Message.from_openai(r) for r in self.trajectory.turns[turn].replies]
        return told

    def _text(self, texts: Sequence[str]) -> None:
        messages = self._messages(texts)
        expected = self.tokenizer.apply_chat_template(
            [message.to_openai() for message in messages],
            tools=[tool.to_openai() for tool in self.tools] or None,
            tokenize=False,
            add_generation_prompt=messages[-1].role != "assistant",
        )
        found = self._decode(self.ids)
        # A trajectory ends with its last completion: without glue, or cut off without a close.
        rest = expected[len(found) :]
        ends = ["", *(close + "\n" * n for close in ("", *self._closes()) for n in (0, 1))]
        if not expected.startswith(found) or rest not in ends:
            at = next(
                (i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), 0
            )
            turn = int(self.trajectory.turn[min(at, len(self.ids) - 1)])
            self._differ("text", turn, expected[at : at + 80], found[at : at + 80])

    def _environment(self, texts: Sequence[str]) -> None:
        """Compare the environment's runs of tokens with those of one full rendering."""
        messages = self._messages(texts)
        rendered = render(
            self.renderer,
            messages,
            self.tools,
            add_generation_prompt=messages[-1].role != "assistant",
        )
        if not rendered.sampled_mask:
            return  # a renderer that does not say which tokens a policy would write
        mask = np.asarray(rendered.sampled_mask, bool)
        whole = _runs(mask)
        expected = [rendered.token_ids[a:b] for a, b, sampled in whole if not sampled]
        found = [self.ids[a:b] for a, b, sampled in self.spans if not sampled]
        written = [rendered.token_ids[a:b] for a, b, sampled in whole if sampled]
        spoken = [self.ids[a:b] for a, b, sampled in self.spans if sampled]
        for turn, (wanted, got) in enumerate(zip(expected, found, strict=False)):
            if turn and not self._closed(spoken[turn - 1], turn - 1):
                wanted = [*written[turn - 1][-1:], *wanted]  # the close that was put in its place
            if wanted != got:
                self._differ("environment tokens", turn, self._decode(wanted), self._decode(got))
        for wrote, sampled in zip(written, spoken, strict=False):
            self.report.recoded += wrote[: len(sampled)] != sampled

    def _columns(self) -> None:
        t = self.trajectory
        outside = ~t.loss_mask
        checks = {
            "a version for every sampled token": (t.policy_version[t.loss_mask] >= 0).all(),
            "a role for every sampled token": (
                (t.policy_role[t.loss_mask] >= 0) & (t.policy_role[t.loss_mask] < len(t.roles))
            ).all(),
            "log-probabilities at most 0": (t.behaviour_logprobs[t.loss_mask] <= 0).all(),
            "no version outside": (t.policy_version[outside] == ENVIRONMENT).all(),
            "no role outside": (t.policy_role[outside] == ENVIRONMENT).all(),
            "no log-probability outside": (t.behaviour_logprobs[outside] == 0).all(),
            "turns in order": (np.diff(t.turn) >= 0).all(),
        }
        for what, holds in checks.items():
            if not holds:
                self._differ("columns", -1, what, "not so")

    def _closed(self, completion: Sequence[int], turn: int) -> bool:
        if not isinstance(self.renderer, PartsRenderer):
            close: int = self.renderer.get_stop_token_ids()[0]
            return completion[-1] == close
        answered = turn + 1 < sum(spoken for _, _, spoken in self.spans) or not self.spans[-1][2]
        replies = self.trajectory.turns[turn].replies
        return self.renderer.is_closed(completion, replies[0]["role"] if answered else None)

    def _verbatim(self, text: str) -> str:
        return self.renderer.verbatim(text) if isinstance(self.renderer, PartsRenderer) else text

    def _closes(self) -> list[str]:
        return [self._decode([stop]) for stop in self.renderer.get_stop_token_ids()]

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=False)
        return text

    def _differ(self, what: str, turn: int, expected: Any, found: Any) -> None:
        t = self.trajectory
        name = (t.task, t.split, t.index, t.group_id, t.member)
        self.report.mismatches.append(Mismatch(name, what, turn, str(expected), str(found)))


def _runs(mask: np.ndarray) -> list[tuple[int, int, bool]]:
    """(start, end, value) of the runs of equal values."""
    if not len(mask):
        return []
    edges = [0, *(np.flatnonzero(np.diff(mask)) + 1).tolist(), len(mask)]
    return [(a, b, bool(mask[a])) for a, b in pairwise(edges)]

"""A recorded episode with its tokens, and its Parquet form.

Invariants: ids are those the engine saw and sampled (invariant 1); every sampled token has its
log-probability, policy version and role (invariant 2); an infrastructure failure has no reward
(invariant 4). All per-token arrays have the same length T.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentrl.messages import Status
from agentrl.rollout.engine import Completion

ENVIRONMENT = -1
"""`policy_version` and `policy_role` of a token that no policy sampled."""


@dataclass(slots=True)
class Turn:
    """One assistant message and the environment's reply, for reading and for replay."""

    assistant: dict[str, Any]
    """OpenAI message, as parsed from the sampled tokens."""
    replies: list[dict[str, Any]]
    finish_reason: str
    role: str
    """Which policy of the pool spoke: "current", "stale", a model's name."""
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Trajectory:
    """One row of a trajectory file; see the module's docstring for what always holds."""

    task: str
    split: str
    index: int
    group_id: int
    """Trajectories of one sample in one step share it; -1 outside training."""
    member: int
    """Place in the group, 0 … group size - 1."""
    seed: int
    status: Status
    reward: float | None
    """None for an infrastructure failure, never 0."""
    metrics: dict[str, float]
    opening: list[dict[str, Any]]
    """System and user messages that open the episode (OpenAI objects)."""
    turns: list[Turn]
    timings: dict[str, float]
    roles: tuple[str, ...]
    """Names of the policies that `policy_role` counts."""
    token_ids: np.ndarray
    """int32[T]"""
    loss_mask: np.ndarray
    """bool[T], True on sampled tokens"""
    behaviour_logprobs: np.ndarray
    """float32[T], 0 where the environment spoke"""
    policy_version: np.ndarray
    """int32[T], -1 where the environment spoke"""
    policy_role: np.ndarray
    """int8[T], index into `roles`, -1 where the environment spoke"""
    turn: np.ndarray
    """int16[T], 0 for the opening and the first assistant message"""
    error: str | None = None
    """Why an infrastructure failure happened."""

    def __post_init__(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in TOKEN_COLUMNS}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"token columns of different lengths: {lengths}")
        if self.status.is_infrastructure and self.reward is not None:
            raise ValueError(f"status {self.status!r} must not carry a reward")

    @property
    def key(self) -> tuple[int, int]:
        return (self.group_id, self.member)

    @property
    def sampled(self) -> int:
        """How many tokens a policy sampled."""
        return int(self.loss_mask.sum())

    @property
    def oldest_version(self) -> int:
        """The oldest policy version of any sampled token; -1 when none was sampled."""
        versions = self.policy_version[self.loss_mask]
        return int(versions.min()) if len(versions) else ENVIRONMENT


TOKEN_COLUMNS: Mapping[str, np.dtype] = {
    "token_ids": np.dtype(np.int32),
    "loss_mask": np.dtype(np.bool_),
    "behaviour_logprobs": np.dtype(np.float32),
    "policy_version": np.dtype(np.int32),
    "policy_role": np.dtype(np.int8),
    "turn": np.dtype(np.int16),
}


def empty_columns() -> dict[str, np.ndarray]:
    """Columns of a trajectory that failed before any token."""
    return {name: np.zeros(0, dtype) for name, dtype in TOKEN_COLUMNS.items()}


def by_group(trajectories: Sequence[Trajectory]) -> dict[int, list[Trajectory]]:
    """Groups by id, never by position (invariant 5); members in their order."""
    groups: dict[int, list[Trajectory]] = {}
    for trajectory in sorted(trajectories, key=lambda t: t.key):
        groups.setdefault(trajectory.group_id, []).append(trajectory)
    return groups


class TokenRecord:
    """The token columns of an episode while it lives: every column grows with the ids.

    There is no other way to make columns, so no mask can be a token longer than its ids
    (pitfall 5). Glue and closes that the policy did not sample come in by `environment`.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._rows: list[tuple[bool, float, int, int, int]] = []
        self._spoken = 0

    def __len__(self) -> int:
        return len(self.ids)

    def environment(self, ids: Sequence[int], turn: int) -> None:
        """Tokens that no policy sampled, in front of the assistant message of `turn`."""
        self.ids += ids
        self._rows += [(False, 0.0, ENVIRONMENT, ENVIRONMENT, turn)] * len(ids)
        if ids:
            self._spoken = len(self.ids)

    def sampled(self, completion: Completion, role: int, turn: int) -> None:
        """A completion as the engine gave it; `role` is an index into the trajectory's `roles`."""
        for token, logprob, version in zip(
            completion.token_ids, completion.logprobs, completion.policy_version, strict=True
        ):
            self.ids.append(token)
            self._rows.append((True, logprob, version, role, turn))

    def split(self) -> tuple[list[int], list[int]]:
        """All ids up to the environment's last word, and what was sampled after it."""
        return self.ids[: self._spoken], self.ids[self._spoken :]

    def columns(self) -> dict[str, np.ndarray]:
        """The six columns of a trajectory."""
        if not self.ids:
            return empty_columns()
        values = [self.ids, *(list(column) for column in zip(*self._rows, strict=True))]
        return {
            name: np.asarray(column, dtype)
            for (name, dtype), column in zip(TOKEN_COLUMNS.items(), values, strict=True)
        }

    def to_dict(self) -> dict[str, list[Any]]:
        """JSON-able form; `from_dict` gives it back bit by bit."""
        columns = [list(column) for column in zip(*self._rows, strict=True)] or [[]] * 5
        return dict(zip(TOKEN_COLUMNS, [list(self.ids), *columns], strict=True))

    @classmethod
    def from_dict(cls, data: Mapping[str, Sequence[Any]]) -> TokenRecord:
        record = cls()
        ids, *columns = (data[name] for name in TOKEN_COLUMNS)
        record.ids = list(ids)
        record._rows = list(zip(*columns, strict=True))
        record._spoken = max((i + 1 for i, row in enumerate(record._rows) if not row[0]), default=0)
        return record

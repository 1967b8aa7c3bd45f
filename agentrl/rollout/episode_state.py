"""What is kept of an episode under way, so that a run killed with -9 goes on where it was.

The environment is not saved: it is rebuilt by playing the same messages to it again, and whatever
it answers differently is an infrastructure failure (9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from agentrl.rollout.engine import Completion
from agentrl.rollout.trajectory import TokenRecord, Turn
from agentrl.tasks.base import Sample


@dataclass(slots=True)
class EpisodeState:
    """An episode between two decode steps."""

    sample: Sample
    seed: int
    group_id: int
    member: int
    session: int
    """Its name at the engines."""
    opening: list[dict[str, Any]] | None = None
    """None as long as the environment has not answered."""
    turns: list[Turn] = field(default_factory=list)
    answered: int = 0
    """How many of `turns` are behind the episode: all, or all but the last, whose reply has not
    come or has ended the episode."""
    tokens: TokenRecord = field(default_factory=TokenRecord)
    role: str | None = None
    """Which policy speaks now; None while the environment does."""
    partial: Completion | None = None
    """What it has sampled so far."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; the inverse of `from_dict`."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "sample": asdict(self.sample),
            "turns": [asdict(turn) for turn in self.turns],
            "tokens": self.tokens.to_dict(),
            "partial": None if self.partial is None else asdict(self.partial),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EpisodeState:
        partial = data["partial"]
        return cls(
            **{name: data[name] for name in _PLAIN},
            sample=Sample(**data["sample"]),
            turns=[Turn(**turn) for turn in data["turns"]],
            tokens=TokenRecord.from_dict(data["tokens"]),
            partial=None if partial is None else Completion(**partial),
        )


_PLAIN = ("seed", "group_id", "member", "session", "opening", "answered", "role")

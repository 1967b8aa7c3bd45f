"""What an agent loop sees of the environments: start, interact, cancel.

The in-process controller and the network one sit behind this one protocol, so nothing above this
floor knows where an episode lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agentrl.messages import Message, ToolSpec
from agentrl.tasks.base import Sample, Step


@dataclass(frozen=True, slots=True)
class Opening:
    """What a started session tells the agent. `session` is a positive integer, never reused."""

    session: int
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]


class EnvironmentClient(Protocol):
    """Sessions of any task, wherever they run.

    Every failure of the environment itself is an `InfrastructureError`; a wrong action of the
    agent is an ordinary `Step`.
    """

    async def start(self, sample: Sample, seed: int) -> Opening: ...

    async def interact(self, session: int, message: Message) -> Step:
        """Raises `KeyError` for an unknown or ended session."""
        ...

    async def cancel(self, session: int) -> None:
        """End a session and give back what it holds. Idempotent; safe after its last step."""
        ...

"""What the loop needs of its surroundings, so that tests run it on fakes and a virtual clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from agentrl.rollout.trajectory import Trajectory


class Learner(Protocol):
    async def train_step(self, trajectories: Sequence[Trajectory]) -> Mapping[str, float]:
        """One optimiser step over whole groups; returns its metrics."""
        ...

    async def publish(self, version: int) -> Path:
        """Write the weights where engines read them, and say where."""
        ...

    async def log(self, step: int, values: Mapping[str, float]) -> None:
        """Tell the trackers, where the settings name any."""
        ...


class Snapshots(Protocol):
    async def save(
        self, step: int, rollouts: Mapping[str, Any], buffered: Iterable[Trajectory]
    ) -> None: ...

    def prune_weights(self, versions: set[int]) -> None:
        """Published weights of any other version are not needed any more."""
        ...


class Recorder(Protocol):
    def step(
        self,
        step: int,
        trajectories: Sequence[Trajectory],
        rows: Sequence[Mapping[str, Any]],
        report: Mapping[str, float],
    ) -> None:
        """Keep what happened in a step that has just been trained."""
        ...

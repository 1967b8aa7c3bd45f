"""Which sample comes next: a pure function of (run seed, group number).

Invariants: every step holds the same groups-per-task of each task, spread evenly over the step, so
no task is starved (6); every sample of a task is used once before any is used again;
the stream has no state, so a resumed run needs one number to go on (9).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agentrl.errors import DataError
from agentrl.randomness import derive, generator
from agentrl.rollout.trajectory import Trajectory
from agentrl.tasks.base import Sample


@dataclass(frozen=True, slots=True)
class Group:
    """`size` episodes of one sample, trained together in `step`."""

    id: int
    step: int
    sample: Sample


class GroupStream:
    """The groups of a run, numbered from 0; group g belongs to step g // groups per step."""

    def __init__(
        self,
        samples: Mapping[str, Sequence[Sample]],
        groups_per_task: Mapping[str, int],
        seed: int,
    ) -> None:
        for task, found in samples.items():
            if not len(found):
                raise DataError(f"task {task!r} has no samples to train on")
        self._samples = dict(samples)
        self._seed = seed
        self._counts = {task: groups_per_task[task] for task in samples}
        self._pattern = _interleave(self._counts)
        self.groups_per_step = len(self._pattern)

    def group(self, number: int) -> Group:
        step, place = divmod(number, self.groups_per_step)
        task, within = self._pattern[place]
        turn = step * self._counts[task] + within
        return Group(number, step, self._samples[task][self.position(task, turn)])

    def position(self, task: str, turn: int) -> int:
        """Where the `turn`-th sample of `task` stands among its samples."""
        size = len(self._samples[task])
        epoch, place = divmod(turn, size)
        return _order(self._seed, task, epoch, size)[place]

    def learn(self, trajectories: Sequence[Trajectory]) -> None:
        """What a step's groups came to; nothing that this stream would go by."""

    def counts(self) -> dict[str, float]:
        """Of a stream that learns, for the metrics."""
        return {}

    def state(self) -> dict[str, Any]:
        """What `restore` needs besides seed and number."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was called."""

    def episode_seed(self, group: int, member: int) -> int:
        return derive(self._seed, "episode", group, member)


def _interleave(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """(task, how many of it came before) for each group of a step: tasks take turns, each as often
    as its count; equal counts are a round."""
    turns = [
        ((within + 0.5) / count, place, task, within)
        for place, (task, count) in enumerate(counts.items())
        for within in range(count)
    ]
    return [(task, within) for _, _, task, within in sorted(turns)]


@lru_cache(maxsize=16)
def _order(seed: int, task: str, epoch: int, size: int) -> Sequence[int]:
    """A permutation of the task's samples, another one each epoch."""
    order: list[int] = generator(seed, "sample order", task, epoch).permutation(size).tolist()
    return order

"""Which sample comes next: a pure function of (run seed, group number).

Invariants: tasks take turns, one group at a time, so each step holds the same number of groups of
every task and no task is starved (6); every sample of a task is used once before any is used again;
the stream has no state, so a resumed run needs one number to go on (9).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from agentrl.errors import DataError
from agentrl.randomness import derive, generator
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
        self, samples: Mapping[str, Sequence[Sample]], groups_per_task: int, seed: int
    ) -> None:
        for task, found in samples.items():
            if not len(found):
                raise DataError(f"task {task!r} has no samples to train on")
        self._samples = dict(samples)
        self._tasks = tuple(samples)
        self._seed = seed
        self.groups_per_step = groups_per_task * len(self._tasks)

    def group(self, number: int) -> Group:
        turn, which = divmod(number, len(self._tasks))
        task = self._tasks[which]
        samples = self._samples[task]
        epoch, place = divmod(turn, len(samples))
        index = _order(self._seed, task, epoch, len(samples))[place]
        return Group(number, number // self.groups_per_step, samples[index])

    def episode_seed(self, group: int, member: int) -> int:
        return derive(self._seed, "episode", group, member)


@lru_cache(maxsize=16)
def _order(seed: int, task: str, epoch: int, size: int) -> Sequence[int]:
    """A permutation of the task's samples, another one each epoch."""
    order: list[int] = generator(seed, "sample order", task, epoch).permutation(size).tolist()
    return order

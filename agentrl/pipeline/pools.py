"""Difficulty pools: samples come again according to how their last group did.

A sample that every member of its last group solved is in pool `easy`, one that none did in `hard`, any
other - and one that was never played - in `usual`. A group draws its pool by (run seed, group number) with
the shares of `training.pools.TASK`, and takes the sample that has waited longest in it; an empty pool
is `usual`'s turn. New samples come before known ones of `usual`, in the order of `GroupStream`.

Invariants: how often a task comes is not the pools' business (6); results count when their step is taken, a
point of the run and not of the clock, and what was drawn is state, so that a resumed run draws the
same (8, 9); a sample is in one pool at most, and in none while it is played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.config.learning import PoolConfig
from agentrl.pipeline.stream import Group, GroupStream
from agentrl.randomness import generator
from agentrl.rollout.trajectory import Trajectory, by_group
from agentrl.tasks.base import Sample

POOLS = ("easy", "hard", "usual")


class PooledStream(GroupStream):
    """A `GroupStream` in which the tasks of `pools` choose their samples by difficulty.

    Groups of those tasks must be asked for in the order of their numbers the first time.
    """

    def __init__(
        self,
        samples: Mapping[str, Sequence[Sample]],
        groups_per_task: Mapping[str, int],
        seed: int,
        pools: Mapping[str, PoolConfig],
    ) -> None:
        super().__init__(samples, groups_per_task, seed)
        self._shares = {task: pools[task] for task in samples if task in pools}
        self._waiting = {task: {name: list[int]() for name in POOLS} for task in self._shares}
        self._new = dict.fromkeys(self._shares, 0)
        self._drawn: dict[int, int] = {}

    def group(self, number: int) -> Group:
        plain = super().group(number)
        task = plain.sample.task
        if task not in self._shares:
            return plain
        if number not in self._drawn:
            self._drawn[number] = self._draw(task, number)
        return Group(number, plain.step, self._samples[task][self._drawn[number]])

    def _draw(self, task: str, number: int) -> int:
        """Position of the next sample of `task`."""
        waiting, shares = self._waiting[task], self._shares[task]
        draw = generator(self._seed, "pool", number).random()
        if draw < shares.easy + shares.hard:
            wanted = waiting["easy" if draw < shares.easy else "hard"]
            if wanted:
                return wanted.pop(0)
        if self._new[task] < len(self._samples[task]):
            self._new[task] += 1
            return self.position(task, self._new[task] - 1)
        for name in ("usual", "hard", "easy"):
            if waiting[name]:
                return waiting[name].pop(0)
        return self.position(task, number)  # every sample is being played

    def learn(self, trajectories: Sequence[Trajectory]) -> None:
        for number, members in by_group(trajectories).items():
            position = self._drawn.pop(number, None)
            if position is None:
                continue
            waiting = self._waiting[members[0].task]
            for pool in waiting.values():
                if position in pool:
                    pool.remove(position)
            wins = [t.metrics.get("success", 0.0) > 0 for t in members if t.reward is not None]
            name = (
                "usual" if not wins or any(wins) != all(wins) else "easy" if all(wins) else "hard"
            )
            waiting[name].append(position)

    def counts(self) -> dict[str, float]:
        return {
            f"pool_{name}/{task}": float(len(pool))
            for task, pools in self._waiting.items()
            for name, pool in pools.items()
        }

    def state(self) -> dict[str, Any]:
        drawn = [[number, position] for number, position in sorted(self._drawn.items())]
        waiting = {
            task: {name: list(pool) for name, pool in pools.items()}
            for task, pools in self._waiting.items()
        }
        return {"waiting": waiting, "new": dict(self._new), "drawn": drawn}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._waiting = {
            task: {name: list(pool) for name, pool in pools.items()}
            for task, pools in state["waiting"].items()
        }
        self._new = dict(state["new"])
        self._drawn = dict(state["drawn"])

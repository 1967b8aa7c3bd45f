"""Finished trajectories that wait for their step.

Invariants: a step is trained on exactly the groups that were dispatched for it, in that order, so
what is trained depends neither on which episode happened to end first (pitfall 42) nor on how slow
a task is (pitfall 29); each trajectory enters once and leaves once (3); groups of later steps stay
(pitfall 31). The admission bound of `rollouts` limits how many there can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentrl.rollout.trajectory import Trajectory


class GroupBuffer:
    """Collects `group_size` trajectories a group and `groups_per_step` groups a step."""

    def __init__(self, groups_per_step: int, group_size: int) -> None:
        self.groups_per_step, self.group_size = groups_per_step, group_size
        self._groups: dict[int, dict[int, Trajectory]] = {}
        self._taken = 0

    def __len__(self) -> int:
        return sum(len(group) for group in self._groups.values())

    def __iter__(self) -> Iterator[Trajectory]:
        for _, group in sorted(self._groups.items()):
            yield from (group[member] for member in sorted(group))

    def add(self, trajectory: Trajectory) -> None:
        number, member = trajectory.key
        if not 0 <= member < self.group_size or number < self._taken * self.groups_per_step:
            raise ValueError(f"trajectory {trajectory.key} belongs to no step that is still open")
        group = self._groups.setdefault(number, {})
        if member in group:
            raise ValueError(f"trajectory {trajectory.key} came twice")
        group[member] = trajectory

    def ready(self, step: int) -> bool:
        """Whether every group of `step` is complete, failure records included."""
        first = step * self.groups_per_step
        return all(
            len(self._groups.get(number, ())) == self.group_size
            for number in range(first, first + self.groups_per_step)
        )

    def take(self, step: int) -> list[Trajectory]:
        """The trajectories of `step` in dispatch order; steps leave one after the other."""
        if step != self._taken or not self.ready(step):
            raise ValueError(f"step {step} is not ready (next is {self._taken})")
        first = step * self.groups_per_step
        out: list[Trajectory] = []
        for number in range(first, first + self.groups_per_step):
            group = self._groups.pop(number)
            out.extend(group[member] for member in sorted(group))
        self._taken = step + 1
        return out

    def restore(self, step: int, trajectories: Sequence[Trajectory]) -> None:
        """Become what a snapshot saw: `step` is the next to be taken."""
        self._groups, self._taken = {}, step
        for trajectory in trajectories:
            self.add(trajectory)

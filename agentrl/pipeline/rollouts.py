"""Keeps the engines busy: dispatches episodes in order, retries failures, fills the buffer.

Invariants: episodes start in the order of (group, member) as far as admission allows (6); each one
reaches the buffer exactly once, as a trajectory or as a failure record after the last attempt (3);
its seed depends on group and member only, so a retry or a resumed run plays the same episode (8, 9);
without partial rollouts the current policy speaks with one version in an episode, or the run ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.hosting.client import EnvironmentClient
from agentrl.pipeline.admission import Admission
from agentrl.pipeline.buffer import GroupBuffer
from agentrl.pipeline.stream import Group, GroupStream
from agentrl.rollout.agent_loop import AgentEpisode, EpisodeSettings
from agentrl.rollout.conductor import Conductor
from agentrl.rollout.cross_policy import CURRENT, PolicyPool
from agentrl.rollout.episode_state import EpisodeState
from agentrl.rollout.trajectory import Trajectory


class Rollouts:
    """The generating half of a run; `state` and `restore` make it resumable between steps."""

    def __init__(
        self,
        *,
        stream: GroupStream,
        buffer: GroupBuffer,
        admission: Admission,
        conductor: Conductor,
        client: EnvironmentClient,
        pool: PolicyPool,
        settings: EpisodeSettings,
        attempts: int,
        partial: bool = True,
        log: Callable[[str, Mapping[str, Any]], None] = lambda event, fields: None,
    ) -> None:
        self.stream, self.buffer, self.admission = stream, buffer, admission
        self.conductor, self.client, self.pool = conductor, client, pool
        self._settings, self._attempts, self._log = settings, attempts, log
        self._partial = partial
        self._live: dict[tuple[int, int], AgentEpisode] = {}
        self.dispatched = 0
        """Episodes started so far, retries not counted."""
        self.finished = 0
        """Episodes that reached the buffer."""
        self.held = False
        """No episode starts while this is set."""

    def refill(self) -> None:
        """Start episodes while admission allows; called whenever one of its inputs changed."""
        while not self.held:
            number, member = divmod(self.dispatched, self.buffer.group_size)
            group = self.stream.group(number)
            if not self.admission.allows(group.step, self.pool.version, len(self._live)):
                return
            self.dispatched += 1
            self._start(group, member, None)

    def _start(self, group: Group, member: int, state: EpisodeState | None) -> None:
        episode = self._episode(group, member, state)
        self._live[group.id, member] = episode
        self.conductor.spawn(self._play(group, member, episode), self._report)

    def _episode(self, group: Group, member: int, state: EpisodeState | None) -> AgentEpisode:
        return AgentEpisode(
            self.client,
            self.pool,
            self._settings,
            group.sample,
            seed=self.stream.episode_seed(group.id, member),
            group_id=group.id,
            member=member,
            session=group.id * self.buffer.group_size + member + 1,
            state=state,
        )

    async def _play(self, group: Group, member: int, episode: AgentEpisode) -> Trajectory:
        trajectory = await episode.run()
        for _ in range(self._attempts - 1):
            if not trajectory.status.is_infrastructure:
                break
            self._log("retry", {"group": group.id, "member": member, "error": trajectory.error})
            episode = self._live[group.id, member] = self._episode(group, member, None)
            trajectory = await episode.run()
        return trajectory

    def _report(self, trajectory: Trajectory) -> None:
        del self._live[trajectory.key]
        if not self._partial:
            _refuse_mixture(trajectory)
        self.finished += 1
        self.buffer.add(trajectory)
        self._log(
            "finished",
            {
                "group": trajectory.group_id,
                "member": trajectory.member,
                "status": trajectory.status,
            },
        )
        self.refill()

    def learn(self, batch: Sequence[Trajectory]) -> None:
        """A step's trajectories have been taken: what comes next may depend on how they went."""
        self.stream.learn(batch)

    def state(self) -> dict[str, Any]:
        """What a snapshot keeps besides the buffer. Call between two decode steps."""
        live = [self._live[key].state().to_dict() for key in sorted(self._live)]
        return {
            "dispatched": self.dispatched,
            "finished": self.finished,
            "live": live,
            "stream": self.stream.state(),
        }

    def restore(self, state: Mapping[str, Any], buffered: Sequence[Trajectory], step: int) -> None:
        """Go on from a snapshot: the live episodes are rebuilt by replay, in their old order."""
        self.dispatched, self.finished = state["dispatched"], state["finished"]
        self.buffer.restore(step, buffered)
        self.stream.restore(state["stream"])
        for item in state["live"]:
            saved = EpisodeState.from_dict(item)
            self._start(self.stream.group(saved.group_id), saved.member, saved)


def _refuse_mixture(trajectory: Trajectory) -> None:
    current = trajectory.policy_role == trajectory.roles.index(CURRENT) if trajectory.roles else []
    versions = np.unique(trajectory.policy_version[current])
    if len(versions) > 1:
        raise RuntimeError(
            f"group {trajectory.group_id} member {trajectory.member} was played by versions "
            f"{versions.tolist()} of the current policy, though pipeline.partial_rollouts is off"
        )

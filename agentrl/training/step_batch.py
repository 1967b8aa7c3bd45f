"""What one step trains on: rewards, advantages, and which trajectories carry a gradient.

Invariants: canonical order, so that nothing depends on how the trajectories came (8); groups by id
(5); an episode without a reward or without a sampled token enters neither loss nor baseline (4,
pitfall 19).

Dead groups, by `algorithm.dead_groups`. `zero`: their trajectories are left out of the backward pass -
advantage and KL alike - but count in the loss's denominator, so a step with few live groups is a
small step (pitfall 13); `drop`: they do not count there either, so what is left is trained on as if
they had not been; `keep`: they are trained on like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agentrl.algorithms.advantages import Advantages, compute_advantages
from agentrl.algorithms.rewards import training_reward
from agentrl.algorithms.statistics import age_cells
from agentrl.config.algorithm import AlgorithmConfig
from agentrl.errors import InfrastructureError
from agentrl.rollout.trajectory import Trajectory
from agentrl.training.batch import Row


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The trajectories of one step in canonical order, with their advantages; N of each."""

    trajectories: list[Trajectory]
    tasks: list[str]
    """Names that task ids count."""
    task_ids: list[int]
    roles: list[str]
    """Names that role ids count."""
    advantages: Advantages
    tokens: list[int]
    """Sampled tokens that count in the loss: 0 where there is no advantage, or no room."""
    live: list[bool]
    """Goes through the backward pass."""
    too_long: list[bool]
    algorithm: AlgorithmConfig
    room: int
    """`rollout.max_total_tokens`"""
    version: int
    """Of the weights that are trained on."""

    def row(self, index: int) -> Row:
        """A live trajectory for the learner."""
        trajectory = self.trajectories[index]
        weight = 1.0 / self.tokens[index] if self.algorithm.loss_mean == "sequence" else 1.0
        names = np.array([self.roles.index(role) for role in trajectory.roles], np.int64)
        return Row(
            trajectory.token_ids,
            trajectory.loss_mask.astype(np.float32) * np.float32(weight),
            self.task_ids[index],
            float(self.advantages.values[index]),
            trajectory.behaviour_logprobs,
            roles=names[trajectory.policy_role],
            ages=age_cells(self.version - trajectory.policy_version),
        )

    def denominator(self, part: Sequence[int]) -> float:
        """What the loss of the optimiser step over `part` is divided by (`algorithm.loss_mean`)."""
        if self.algorithm.loss_mean == "token":
            return sum(self.tokens[index] for index in part)
        trajectories = sum(self.tokens[index] > 0 for index in part)
        return trajectories * (self.room if self.algorithm.loss_mean == "constant" else 1)

    def counts(self) -> dict[str, float]:
        dead = self.advantages.dead.tolist()
        groups = {t.group_id for t, is_dead in zip(self.trajectories, dead, strict=True) if is_dead}
        return {
            "trajectories": float(len(self.trajectories)),
            "without_advantage": float((~self.advantages.present).sum()),
            "dead_groups": float(len(groups)),
            "trained_trajectories": float(sum(self.live)),
            "dropped_too_long": float(sum(self.too_long)),
            "truncated_trajectories": float(sum(t.status.is_truncation for t in self.trajectories)),
            "truncated_turns": sum(
                t.metrics.get("truncated_turns", 0.0) for t in self.trajectories
            ),
            "tokens": float(sum(self.tokens)),
        }


def prepare_step(
    trajectories: Iterable[Trajectory],
    algorithm: AlgorithmConfig,
    *,
    budget: int,
    room: int,
    version: int = 0,
) -> StepBatch:
    """Rewards, advantages and the choice of what is trained on, for one step.

    A trajectory that the model would have to read past `budget` tokens is dropped and counted; its
    reward stays in its group's baseline. `room` and `version` are `StepBatch`'s. Raises
    `InfrastructureError` for broken log-probabilities.
    """
    ordered = sorted(trajectories, key=lambda t: (t.task, *t.key))
    for trajectory in ordered:
        if not np.isfinite(trajectory.behaviour_logprobs).all():
            raise InfrastructureError(
                f"{trajectory.task} {trajectory.index}, group {trajectory.group_id} member "
                f"{trajectory.member}: the engine gave a log-probability that is not a number"
            )
    tasks = list(dict.fromkeys(t.task for t in ordered))
    task_ids = [tasks.index(t.task) for t in ordered]
    rewards = [
        training_reward(t.status, t.reward, algorithm, length=len(t.token_ids), room=room)
        for t in ordered
    ]
    sampled = [t.sampled for t in ordered]
    too_long = [_inputs(t) > budget for t in ordered]
    masking = algorithm.truncated == "mask"
    masked = [
        long or (masking and t.status.is_truncation)
        for t, long in zip(ordered, too_long, strict=True)
    ]
    advantages = compute_advantages(
        torch.tensor([np.nan if r is None else r for r in rewards], dtype=torch.float64),
        torch.tensor([t.group_id for t in ordered], dtype=torch.int64),
        torch.tensor(task_ids, dtype=torch.int64),
        torch.tensor(sampled, dtype=torch.int64),
        algorithm,
        masked=torch.tensor(masked, dtype=torch.bool),
    )
    counted = advantages.present & ~torch.tensor(masked, dtype=torch.bool)
    if algorithm.dead_groups == "drop":
        counted &= ~advantages.dead
    with_kl = torch.full_like(counted, algorithm.kl_coefficient > 0)
    if algorithm.dead_groups != "keep":
        with_kl &= ~advantages.dead
    live = counted & ((advantages.values != 0) | with_kl)
    return StepBatch(
        ordered,
        tasks,
        task_ids,
        list(dict.fromkeys(role for t in ordered for role in t.roles)),
        advantages,
        [n if ok else 0 for n, ok in zip(sampled, counted.tolist(), strict=True)],
        live.tolist(),
        too_long,
        algorithm,
        room,
        version,
    )


def _inputs(trajectory: Trajectory) -> int:
    """Tokens to be read: all before the last sampled one."""
    sampled = np.flatnonzero(trajectory.loss_mask)
    return int(sampled[-1]) if len(sampled) else 0

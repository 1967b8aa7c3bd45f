"""What one step trains on: rewards, advantages, and which trajectories carry a gradient.

Invariants: canonical order, so that nothing depends on how the trajectories came (8); groups by id
(5); an episode without a reward or without a sampled token enters neither loss nor baseline (4,
pitfall 19).

Dead groups: their trajectories are left out of the backward pass - advantage and KL alike - but
their tokens count in the loss's denominator, so a step with few live groups is a small step
(pitfall 13). With `dead_groups_in_statistics` they are trained on like any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from agentrl.algorithms.advantages import Advantages, compute_advantages, training_reward
from agentrl.config.models import AlgorithmConfig
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
    advantages: Advantages
    tokens: list[int]
    """Sampled tokens that count in the loss: 0 where there is no advantage, or no room."""
    live: list[bool]
    """Goes through the backward pass."""
    too_long: list[bool]

    def row(self, index: int) -> Row:
        trajectory = self.trajectories[index]
        return Row(
            trajectory.token_ids,
            trajectory.loss_mask.astype(np.float32),
            self.task_ids[index],
            float(self.advantages.values[index]),
            trajectory.behaviour_logprobs,
        )

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
    trajectories: Iterable[Trajectory], algorithm: AlgorithmConfig, budget: int
) -> StepBatch:
    """Rewards, advantages and the choice of what is trained on, for one step.

    A trajectory that the model would have to read past `budget` tokens is dropped and counted; its
    reward stays in its group's baseline. Raises `InfrastructureError` for broken log-probabilities.
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
    rewards = [training_reward(t.status, t.reward, algorithm.incomplete_reward) for t in ordered]
    sampled = [t.sampled for t in ordered]
    advantages = compute_advantages(
        torch.tensor([np.nan if r is None else r for r in rewards], dtype=torch.float64),
        torch.tensor([t.group_id for t in ordered], dtype=torch.int64),
        torch.tensor(task_ids, dtype=torch.int64),
        torch.tensor(sampled, dtype=torch.int64),
        algorithm,
    )
    too_long = [_inputs(t) > budget for t in ordered]
    usable = [
        present and not long
        for present, long in zip(advantages.present.tolist(), too_long, strict=True)
    ]
    trained = advantages.present & (
        (advantages.values != 0) | (algorithm.kl_coefficient > 0) & ~advantages.dead
    )
    return StepBatch(
        ordered,
        tasks,
        task_ids,
        advantages,
        [n if ok else 0 for n, ok in zip(sampled, usable, strict=True)],
        [ok and t for ok, t in zip(usable, trained.tolist(), strict=True)],
        too_long,
    )


def _inputs(trajectory: Trajectory) -> int:
    """Tokens to be read: all before the last sampled one."""
    sampled = np.flatnonzero(trajectory.loss_mask)
    return int(sampled[-1]) if len(sampled) else 0

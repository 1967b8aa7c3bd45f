"""Which of the groups that were played for a step are trained: over-sampling past dead ones.

Invariants: with `training.oversampling` every step plays the same number of groups of each task, more
than it trains, so nothing depends on how earlier ones came out (8, 9); of these the first in order of
dispatch that have something to say are trained, never the first to end (pitfall 42); the step is full in any
case - where too few have, dead groups fill it (their weight is `algorithm.dead_groups`' decision).
Everything that was played is recorded, and what is left out is counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from agentrl.algorithms.advantages import group_advantages
from agentrl.algorithms.rewards import training_reward
from agentrl.config import Config
from agentrl.rollout.trajectory import Trajectory


def chosen(
    trajectories: Sequence[Trajectory], config: Config
) -> tuple[list[Trajectory], dict[str, float]]:
    """What is trained of a step's trajectories, in their order, and counters of what is not.

    `left_out_dead_groups`, `left_out_live_groups` (more than were needed), `dead_groups_kept` (to fill
    the step). No counters without over-sampling.
    """
    if config.training.oversampling == 1:
        return list(trajectories), {}
    dead = _dead_groups(trajectories, config)
    tasks = {t.group_id: t.task for t in trajectories}
    kept: set[int] = set()
    for task in dict.fromkeys(tasks.values()):
        groups = sorted(number for number, name in tasks.items() if name == task)
        by_worth = sorted(groups, key=lambda number: (number in dead, number))
        kept.update(by_worth[: config.training.groups_of(task)])
    left = tasks.keys() - kept
    counts = {
        "left_out_dead_groups": float(len(left & dead)),
        "left_out_live_groups": float(len(left - dead)),
        "dead_groups_kept": float(len(kept & dead)),
    }
    return [t for t in trajectories if t.group_id in kept], counts


def _dead_groups(trajectories: Sequence[Trajectory], config: Config) -> set[int]:
    """Groups in which no member was better than another, by the rewards that are trained on."""
    algorithm, room = config.algorithm, config.rollout.max_total_tokens
    rewards = [
        training_reward(t.status, t.reward, algorithm, length=len(t.token_ids), room=room)
        if t.sampled
        else None
        for t in trajectories
    ]
    numbers = [t.group_id for t in trajectories]
    found = group_advantages(
        torch.tensor([np.nan if r is None else r for r in rewards], dtype=torch.float64),
        torch.tensor(numbers, dtype=torch.int64),
        estimator="dr-grpo",
        min_size=algorithm.min_group_size,
    )
    says = (found.present & ~found.dead).tolist()
    return set(numbers) - {number for number, live in zip(numbers, says, strict=True) if live}

"""From rewards to advantages: pure functions on tensors over the N trajectories of one step.

Invariants: groups are made by id, never by position; an advantage that cannot be computed is
absent (NaN here, so that it cannot pass for a number), never 0 by accident; a dead group - no
spread, or a single survivor - is exactly 0 (invariant 5). A missing reward enters no baseline
(invariant 4), nor does a trajectory without a sampled token (pitfall 19). Statistics are two-pass
in float64 (pitfall 15), over sampled tokens only (pitfall 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from agentrl.config.algorithm import AlgorithmConfig

Estimator = Literal["grpo", "dr-grpo", "rloo", "reinforce++"]
SPREAD_FLOOR = 1.0e-4
"""Rewards closer than this are equal; no advantage is divided by less (corrected preset)."""
FAITHFUL_EPSILON = 1.0e-6
"""Added to every std by the reference code."""


@dataclass(frozen=True, slots=True)
class Advantages:
    """One advantage a trajectory, given to each of its sampled tokens."""

    values: Tensor
    """float64[N], NaN where absent"""
    dead: Tensor
    """bool[N]: present, in a group without spread"""

    @property
    def present(self) -> Tensor:
        """bool[N]: has an advantage, be it 0."""
        return ~self.values.isnan()


def group_advantages(
    rewards: Tensor,
    group_ids: Tensor,
    *,
    estimator: Estimator,
    min_size: int = 2,
    epsilon: float | None = None,
) -> Advantages:
    """The reward minus a baseline made of the group's present rewards, n of them.

    `dr-grpo` and `reinforce++`: r - mean; `grpo`: that over the group's unbiased std; `rloo`: r - mean
    of the n - 1 others, which is n / (n - 1) times r - mean.

    Args:
        rewards: float[N]; NaN or infinite means missing.
        group_ids: int[N].
        min_size: a group with fewer present rewards is dead.
        epsilon: added to the std (reference code); None floors it at `SPREAD_FLOOR` instead.
    """
    rewards = rewards.double()
    present = rewards.isfinite()
    known = torch.where(present, rewards, 0.0)
    _, group = torch.unique(group_ids, return_inverse=True)
    groups = int(group.max()) + 1 if len(group) else 0
    size = _sum_by(present.double(), group, groups)
    mean = _sum_by(known, group, groups) / size.clamp(min=1)
    centred = torch.where(present, known - mean[group], 0.0)
    spread = _extreme_by(centred, group, groups, "amax") - _extreme_by(
        centred, group, groups, "amin"
    )
    dead = ((size < max(min_size, 2)) | (spread <= SPREAD_FLOOR))[group]
    others = (size - 1).clamp(min=1)
    if estimator == "grpo":
        variance = _sum_by(centred.square(), group, groups) / others
        centred = centred / _divisor(variance.sqrt(), epsilon)[group]
    elif estimator == "rloo":
        centred = centred * (size / others)[group]
    values = torch.where(dead, 0.0, centred)
    return Advantages(torch.where(present, values, torch.nan), dead & present)


def token_normalize(
    advantages: Advantages,
    tokens: Tensor,
    part_ids: Tensor,
    *,
    dead_in_statistics: bool,
    epsilon: float | None = None,
) -> Advantages:
    """(A - mean) / std over all token-level advantages of a part of the step: paper Eq. 1 where the
    parts are the tasks, REINFORCE++'s batch normalisation where there is one part.

    A trajectory's tokens share one advantage, so it counts once for each of them. Dead groups stay
    out of the statistics and at exactly 0 (pitfall 14) unless `dead_in_statistics`, which is what
    the reference code does. A part with fewer than two counted tokens gets 0, never NaN.

    Args:
        tokens: int[N], tokens of each trajectory that enter the loss.
        part_ids: int[N], 0 … number of parts - 1.
        epsilon: as in `group_advantages`.
    """
    counted = advantages.present if dead_in_statistics else advantages.present & ~advantages.dead
    weight = torch.where(counted, tokens.double(), 0.0)
    known = torch.where(counted, advantages.values, 0.0)
    parts = int(part_ids.max()) + 1 if len(part_ids) else 0
    total = _sum_by(weight, part_ids, parts)
    mean = _sum_by(weight * known, part_ids, parts) / total.clamp(min=1)
    centred = torch.where(counted, known - mean[part_ids], 0.0)
    variance = _sum_by(weight * centred.square(), part_ids, parts) / (total - 1).clamp(min=1)
    values = centred / _divisor(variance.sqrt(), epsilon)[part_ids]
    return Advantages(
        torch.where(counted, values, torch.where(advantages.present, 0.0, torch.nan)),
        advantages.dead,
    )


def compute_advantages(
    rewards: Tensor,
    group_ids: Tensor,
    task_ids: Tensor,
    tokens: Tensor,
    config: AlgorithmConfig,
    *,
    masked: Tensor | None = None,
) -> Advantages:
    """The advantages of one step as `config` says; shapes [N] as above.

    Args:
        tokens: sampled tokens of each trajectory; one without any has no advantage.
        masked: bool[N], not in the loss: in its group's baseline, but not in token statistics.
    """
    epsilon = FAITHFUL_EPSILON if config.preset == "faithful" else None
    out = group_advantages(
        torch.where(tokens > 0, rewards.double(), torch.nan),
        group_ids,
        estimator=config.estimator,
        min_size=config.min_group_size,
        epsilon=epsilon,
    )
    whole_step = config.estimator == "reinforce++"
    if config.task_normalization or whole_step:
        out = token_normalize(
            out,
            tokens if masked is None else torch.where(masked, 0, tokens),
            torch.zeros_like(task_ids) if whole_step else task_ids,
            dead_in_statistics=config.dead_groups == "keep",
            epsilon=epsilon,
        )
    return out


def _divisor(std: Tensor, epsilon: float | None) -> Tensor:
    return std.clamp(min=SPREAD_FLOOR) if epsilon is None else std + epsilon


def _sum_by(values: Tensor, index: Tensor, size: int) -> Tensor:
    return values.new_zeros(size).index_add(0, index, values)


def _extreme_by(values: Tensor, index: Tensor, size: int, which: str) -> Tensor:
    # Starts from 0: centred values of one group always lie on both sides of it.
    return values.new_zeros(size).scatter_reduce(0, index, values, which)

"""Ratios, importance weights and KL estimates on log-probabilities of K tokens of whole trajectories.

Invariants: a wild token stays finite; importance weights carry no gradient; what belongs to one
trajectory is told by id, so nothing depends on where it lies in a batch (invariant 7).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Bound of log-ratios before `exp`."""


def limited(log_ratio: Tensor) -> Tensor:
    """Log-ratios that can be exponentiated."""
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def sequence_sum(values: Tensor, sequence_ids: Tensor) -> Tensor:
    """float[K]: for each token the sum over its sequence (ids int64[K], from 0)."""
    count = int(sequence_ids.max()) + 1 if len(sequence_ids) else 0
    return values.new_zeros(count).index_add(0, sequence_ids, values)[sequence_ids]


def sequence_log_ratio(log_ratio: Tensor, sequence_ids: Tensor) -> Tensor:
    """GSPO's (arXiv 2507.18071, Eq. 7): the mean over each sequence, so that `exp` of it is the
    geometric mean of its tokens' ratios; with the gradient of all of them."""
    length = sequence_sum(torch.ones_like(log_ratio), sequence_ids)
    return sequence_sum(log_ratio, sequence_ids) / length


def importance_weights(
    log_ratio: Tensor, sequence_ids: Tensor, level: Literal["token", "sequence"], cap: float | None
) -> tuple[Tensor, Tensor]:
    """min(π_proximal / π_behaviour, cap), detached, and bool[K] where the cap cut it.

    Args:
        log_ratio: float[K], proximal minus behaviour.
        level: `sequence` takes the product of the ratios over a whole trajectory.
    """
    log_ratio = log_ratio.detach()
    if level == "sequence":
        log_ratio = sequence_sum(log_ratio, sequence_ids)
    weights = limited(log_ratio).exp()
    if cap is None:
        return weights, torch.zeros_like(weights, dtype=torch.bool)
    return weights.clamp(max=cap), weights > cap


def kl_estimate(log_ratio: Tensor, estimator: Literal["k1", "k2", "k3"]) -> Tensor:
    """KL(p || q) per token from d = log q - log p on tokens sampled from p (Schulman, 2020).

    k1 = -d: unbiased, may be negative, and its gradient is 0 in expectation. k2 = d²/2: biased, but
    with the gradient of KL(p || q). k3 = e^d - d - 1: unbiased, never negative, with the gradient
    of KL(q || p).
    """
    log_ratio = limited(log_ratio)
    if estimator == "k1":
        return -log_ratio
    if estimator == "k2":
        return log_ratio.square() / 2
    return log_ratio.exp() - log_ratio - 1

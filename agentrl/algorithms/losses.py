"""The clipped policy-gradient loss on token log-probabilities.

Invariants: with the default `proximal` the ratio is to the policy that sampled the token
(invariant 2); a loss is a weighted sum over tokens divided by a number that the caller takes over
the whole optimiser step, so it does not depend on how the step is cut (invariant 7) as long as
trajectories stay whole.
"""

from __future__ import annotations

import torch
from torch import Tensor

from agentrl.algorithms.ratios import (
    importance_weights,
    kl_estimate,
    limited,
    sequence_log_ratio,
)
from agentrl.config.algorithm import AlgorithmConfig


def policy_loss(
    logprobs: Tensor,
    behaviour: Tensor,
    advantages: Tensor,
    denominator: float,
    config: AlgorithmConfig,
    *,
    weights: Tensor | None = None,
    sequence_ids: Tensor | None = None,
    proximal: Tensor | None = None,
    reference: Tensor | None = None,
    entropy: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """PPO clip with dual clip, corrected for stale data, plus KL to a reference, over K tokens.

    Per token, with ratio ρ = exp(logprobs - proximal), or its geometric mean over the trajectory, and
    advantage A: L = max(-Aρ, -A clip(ρ, 1 - clip_low, 1 + clip_high)), for A < 0 at most
    -A dual_clip. The token's loss is weight · (importance · L + kl_coefficient · KL).

    Args:
        logprobs: float[K] of the learner, at the temperature that the engine sampled with.
        behaviour, advantages, entropy, reference: float[K].
        denominator: over the whole optimiser step, dead groups included; `StepBatch.denominator`.
        weights: float[K]; 1 where None.
        sequence_ids: int64[K], from 0; what has the same id is one trajectory. All one where None.
        proximal: float[K], log-probabilities of the proximal policy; that which sampled where None.

    Returns:
        The loss, Σ over tokens / denominator, and detached columns for `LossStatistics`.
    """
    anchor = behaviour if proximal is None else proximal
    if sequence_ids is None:
        sequence_ids = torch.zeros_like(logprobs, dtype=torch.int64)
    log_ratio = logprobs - anchor
    if config.ratio == "sequence":
        log_ratio = sequence_log_ratio(log_ratio, sequence_ids)
    ratio = limited(log_ratio).exp()
    free = -advantages * ratio
    bound = -advantages * ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    per_token = torch.maximum(free, bound)
    nowhere = torch.zeros_like(per_token, dtype=torch.bool)
    dual, importance, capped = nowhere, torch.zeros_like(per_token), nowhere
    if config.dual_clip is not None:
        ceiling = -advantages * config.dual_clip
        dual = (advantages < 0) & (per_token > ceiling)
        per_token = torch.where(dual, ceiling, per_token)
    if config.importance != "none":
        importance, capped = importance_weights(
            anchor - behaviour, sequence_ids, config.importance, config.importance_cap
        )
        per_token = per_token * importance
    kl_reference = torch.zeros_like(per_token)
    if reference is not None:
        kl_reference = kl_estimate(reference - logprobs, config.kl_estimator)
        per_token = per_token + config.kl_coefficient * kl_reference
    if weights is not None:
        per_token = per_token * weights
    loss = per_token.sum() / denominator
    with torch.no_grad():
        lag = limited(logprobs - behaviour)
        columns = torch.stack(
            [
                torch.ones_like(per_token),
                per_token,
                bound > free,
                dual,
                ratio,
                lag.exp() - 1 - lag,
                lag.abs(),
                torch.zeros_like(per_token) if entropy is None else entropy,
                kl_reference,
                importance,
                capped,
            ],
            dim=1,
        )
    return loss, columns.double()

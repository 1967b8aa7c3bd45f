"""The clipped policy-gradient loss on token log-probabilities, and its exact statistics.

Invariants: the ratio is to the policy that sampled the token (invariant 2); a loss is a sum over
tokens divided by a count that the caller takes over the whole optimiser step, so it does not
depend on how the step is cut (invariant 7); statistics are sums, so that they add up exactly over
micro-batches and tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from agentrl.config.models import AlgorithmConfig

LOG_RATIO_LIMIT = 20.0
"""Bound of log-ratios before `exp`, so that a wild token stays finite."""

SUMS = (
    "tokens",
    "loss",
    "clipped",
    "dual_clipped",
    "ratio",
    "kl_behaviour",
    "logprob_gap",
    "entropy",
    "kl_reference",
)


@dataclass(slots=True)
class LossStatistics:
    """Sums over tokens by task, and the largest ratio."""

    sums: Tensor
    """float64[tasks, len(SUMS)]"""
    ratio_max: Tensor
    """float64[tasks]"""

    @classmethod
    def empty(cls, tasks: int) -> LossStatistics:
        return cls(
            torch.zeros(tasks, len(SUMS), dtype=torch.float64),
            torch.zeros(tasks, dtype=torch.float64),
        )

    def __add__(self, other: LossStatistics) -> LossStatistics:
        return LossStatistics(
            self.sums + other.sums, torch.maximum(self.ratio_max, other.ratio_max)
        )

    @property
    def loss(self) -> float:
        """Sum of the per-token losses."""
        return float(self.sums[:, SUMS.index("loss")].sum())

    def metrics(self, task: int | None = None) -> dict[str, float]:
        """Means over the tokens that carried a gradient; of one task, or of all. Empty without any.

        `kl_behaviour` estimates KL(behaviour || learner) with the low-variance form; `logprob_gap`
        is the mean |log ratio|.
        """
        sums = (self.sums.sum(0) if task is None else self.sums[task]).tolist()
        values = dict(zip(SUMS, sums, strict=True))
        tokens = values.pop("tokens")
        if not tokens:
            return {}
        means = {name: value / tokens for name, value in values.items()}
        del means["loss"]  # its denominator is the optimiser step, not these tokens
        means["clip_fraction"] = means.pop("clipped")
        means["dual_clip_fraction"] = means.pop("dual_clipped")
        means["ratio_mean"] = means.pop("ratio")
        means["ratio_max"] = float(self.ratio_max.max() if task is None else self.ratio_max[task])
        return means


def policy_loss(
    logprobs: Tensor,
    behaviour: Tensor,
    advantages: Tensor,
    denominator: int,
    config: AlgorithmConfig,
    *,
    task_ids: Tensor,
    tasks: int,
    entropy: Tensor | None = None,
    reference: Tensor | None = None,
) -> tuple[Tensor, LossStatistics]:
    """PPO clip with dual clip, plus KL to a reference (k3), over K sampled tokens.

    Per token, with ratio ρ = exp(logprobs - behaviour) and advantage A:
    max(-Aρ, -A clip(ρ, 1 - clip_low, 1 + clip_high)), and for A < 0 at most -A dual_clip; plus
    kl_coefficient (e^d - d - 1) with d = reference - logprobs.

    Args:
        logprobs: float32[K] of the learner, at the temperature that the engine sampled with.
        behaviour, advantages, entropy, reference: float32[K].
        denominator: sampled tokens of the whole optimiser step, those of dead groups included.
        task_ids: int64[K], below `tasks`.

    Returns:
        The loss, Σ per token / denominator, and its detached statistics.
    """
    log_ratio = (logprobs - behaviour).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    ratio = log_ratio.exp()
    free = -advantages * ratio
    bound = -advantages * ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    per_token = torch.maximum(free, bound)
    dual = torch.zeros_like(per_token, dtype=torch.bool)
    if config.dual_clip is not None:
        ceiling = -advantages * config.dual_clip
        dual = (advantages < 0) & (per_token > ceiling)
        per_token = torch.where(dual, ceiling, per_token)
    kl_reference = torch.zeros_like(per_token)
    if reference is not None:
        kl_reference = low_variance_kl(reference - logprobs)
        per_token = per_token + config.kl_coefficient * kl_reference
    loss = per_token.sum() / denominator
    with torch.no_grad():
        columns = torch.stack(
            [
                torch.ones_like(per_token),
                per_token,
                bound > free,
                dual,
                ratio,
                ratio - 1 - log_ratio,
                log_ratio.abs(),
                torch.zeros_like(per_token) if entropy is None else entropy,
                kl_reference,
            ],
            dim=1,
        ).double()
        sums = columns.new_zeros(tasks, len(SUMS)).index_add(0, task_ids, columns)
        ratio_max = columns.new_zeros(tasks).scatter_reduce(0, task_ids, ratio.double(), "amax")
    return loss, LossStatistics(sums.cpu(), ratio_max.cpu())


def low_variance_kl(log_ratio: Tensor) -> Tensor:
    """k3, e^d - d - 1: non-negative, and unbiased for KL(p || q) with d = log q - log p on
    tokens sampled from p."""
    log_ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return log_ratio.exp() - log_ratio - 1

"""Draws tokens from logits, each by one uniform number that depends on nothing but where it stands.

Invariants: the draw of a token derives from (episode's sampling seed, position in the episode), so
it is independent of the batch, of the engine and of what was cut off before (8, 9); its
log-probability is that of the distribution it was drawn from (pitfall 22).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def uniforms(seeds: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """float64[B] in [0, 1): element `positions` of the SplitMix64 stream of `seeds` (uint64[B]).

    Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014.
    """
    with np.errstate(over="ignore"):
        state = seeds.astype(np.uint64)
        state = state + (positions.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw(logits: Tensor, temperatures: np.ndarray, uniform: np.ndarray) -> tuple[Tensor, Tensor]:
    """Inverse-CDF sampling.

    Args:
        logits: float32[B, V].
        temperatures: float64[B]; 0 takes the largest logit, with log-probabilities of temperature 1.
        uniform: float64[B] in [0, 1).

    Returns:
        ids int64[B] and their log-probabilities float32[B].
    """
    scale = np.where(temperatures > 0, temperatures, 1.0)
    if (scale != 1.0).any():
        logits = logits / _like(logits, scale.astype(np.float32))
    logprobs = torch.log_softmax(logits, dim=-1)
    # float64: the running sum of thousands of float32 probabilities would not reach 1.
    cumulative = logprobs.exp().cumsum(dim=-1, dtype=torch.float64)
    target = _like(logits, uniform) * cumulative[:, -1:]
    ids = torch.searchsorted(cumulative, target, right=True).clamp_(max=logits.shape[1] - 1)
    greedy = temperatures <= 0
    if greedy.any():
        ids = torch.where(_like(logits, greedy), logits.argmax(-1, True), ids)
    return ids.squeeze(1), logprobs.gather(1, ids).squeeze(1)


def _like(logits: Tensor, values: np.ndarray) -> Tensor:
    """A column of `values`, where `logits` are."""
    return torch.from_numpy(values).to(logits.device).unsqueeze(1)

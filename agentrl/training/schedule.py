"""The learning rate over a training: one shape for cloning and for reinforcement learning."""

from __future__ import annotations


def schedule(step: int, *, steps: int, warmup_steps: int, decay_fraction: float) -> float:
    """Factor on the learning rate at `step` (from 0) of `steps`.

    Rises linearly over `warmup_steps`, stays at 1, falls linearly towards 0 over the last
    `decay_fraction` of the steps.
    """
    rise = min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0
    falling = steps * decay_fraction
    fall = min(1.0, max(0.0, steps - step) / falling) if falling else 1.0
    return rise * fall

"""The reward that training uses, from the one that the environment gave.

Invariants: a missing reward stays missing, and so does that of an episode which has not ended in one
of the four ways (invariant 4, pitfall 18); truncation is dealt with by a named key, never by accident
(pitfall 10).
"""

from __future__ import annotations

from agentrl.config.algorithm import AlgorithmConfig
from agentrl.messages import Status


def training_reward(
    status: Status,
    reward: float | None,
    config: AlgorithmConfig,
    *,
    length: int = 0,
    room: int = 0,
) -> float | None:
    """`incomplete_reward`, if set, replaces the reward of a truncated or invalid ending (paper §5.2:
    -0.2); the penalty for a long episode is taken off; None where there is nothing to learn from.

    Args:
        length: tokens of the episode, all of them.
        room: `rollout.max_total_tokens`.
    """
    if reward is None or status in (Status.RUNNING, Status.UNKNOWN):
        return None
    if status.is_truncation and config.truncated == "drop":
        return None
    incomplete = status.is_truncation or status.is_invalid
    if incomplete and config.incomplete_reward is not None:
        reward = config.incomplete_reward
    return reward - overlong_penalty(length, room, config.overlong_buffer, config.overlong_penalty)


def overlong_penalty(length: int, room: int, buffer: int, penalty: float) -> float:
    """DAPO's soft overlong punishment: 0 up to `room - buffer` tokens, then linear, `penalty` from
    `room` on. No buffer, no penalty."""
    if not buffer:
        return 0.0
    return penalty * min(1.0, max(0.0, (length - (room - buffer)) / buffer))

"""What one training step was like: one row a task, and one for the whole step (task "*").

Rewards and successes are means over the episodes that have one; failures are counted, never
averaged in (invariant 4). Staleness is the version trained on minus the version that sampled, over
the tokens of role `current` (invariant 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.rollout.trajectory import Trajectory

WHOLE_STEP = "*"
LEARNER_COLUMNS = ("loss", "clip_fraction", "ratio_mean", "kl_behaviour", "grad_norm")
TIMING_COLUMNS = ("seconds", "seconds_generate", "seconds_train", "seconds_wait")


def step_rows(
    step: int,
    trajectories: Sequence[Trajectory],
    report: Mapping[str, float],
    seconds: Mapping[str, float],
) -> list[dict[str, Any]]:
    """Rows of one step. `step` counts from 0 and is also the version that was trained on.

    Args:
        report: the learner's metrics; keys of `LEARNER_COLUMNS` go to the whole-step row.
        seconds: keys of `TIMING_COLUMNS`, for the whole-step row.
    """
    tasks = list(dict.fromkeys(t.task for t in trajectories))
    rows = [_row(step, task, [t for t in trajectories if t.task == task]) for task in tasks]
    whole = _row(step, WHOLE_STEP, trajectories)
    whole |= {name: report.get(name) for name in LEARNER_COLUMNS}
    whole |= {name: seconds.get(name) for name in TIMING_COLUMNS}
    return [*rows, whole]


def _row(step: int, task: str, trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    rewarded = [t for t in trajectories if t.reward is not None]
    roles = np.concatenate([_sampled_roles(t) for t in trajectories] or [np.zeros(0)])
    lags = np.concatenate([_lags(t, step) for t in trajectories] or [np.zeros(0)])
    return {
        "step": step,
        "task": task,
        "version": step,
        "episodes": len(trajectories),
        "reward_mean": _mean(t.reward for t in rewarded if t.reward is not None),
        "success_mean": _mean(t.metrics.get("success", 0.0) for t in rewarded),
        "turns_mean": _mean(t.metrics.get("turns", 0.0) for t in rewarded),
        "invalid_calls": _mean(t.metrics.get("invalid_calls", 0.0) for t in rewarded),
        "truncated": sum(t.status.is_truncation for t in trajectories),
        "failures": sum(t.status.is_infrastructure for t in trajectories),
        "sampled_tokens": sum(t.sampled for t in trajectories),
        "staleness_mean": _mean(lags),
        "staleness_max": float(lags.max()) if len(lags) else None,
        "stale_share": float((roles > 0).mean()) if len(roles) else None,
        "dead_groups": _dead_groups(rewarded),
    }


def _sampled_roles(trajectory: Trajectory) -> np.ndarray:
    roles: np.ndarray = trajectory.policy_role[trajectory.loss_mask]
    return roles


def _lags(trajectory: Trajectory, step: int) -> np.ndarray:
    current = trajectory.loss_mask & (trajectory.policy_role == 0)
    lags: np.ndarray = step - trajectory.policy_version[current].astype(np.float64)
    return lags


def _dead_groups(rewarded: Sequence[Trajectory]) -> int:
    rewards: dict[int, set[float | None]] = {}
    for trajectory in rewarded:
        rewards.setdefault(trajectory.group_id, set()).add(trajectory.reward)
    return sum(len(values) == 1 for values in rewards.values())


def _mean(values: Iterable[float]) -> float | None:
    found = [float(value) for value in values]
    return sum(found) / len(found) if found else None

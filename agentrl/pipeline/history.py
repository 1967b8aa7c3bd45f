"""What one training step was like: one row a task, and one for the whole step (task "*").

Rewards and successes are means over the episodes that have one; failures are counted, never
averaged in (invariant 4). Staleness is the version trained on minus the version that sampled, over
the tokens of role `current` (invariant 2). Everything is of all episodes that were played for the step; the
learner's columns are of those that it trained on (`pipeline.selection`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.messages import Status
from agentrl.rollout.trajectory import Trajectory

ENDINGS = tuple(status for status in Status if status not in (Status.RUNNING, Status.UNKNOWN))
WHOLE_STEP = "*"
LEARNER_COLUMNS = (
    "ratio_mean",
    "ratio_max",
    "clip_fraction",
    "dual_clip_fraction",
    "kl_behaviour",
    "logprob_gap",
    "entropy",
)
"""Of a task as of the whole step."""
STEP_COLUMNS = (
    "loss",
    "grad_norm",
    "engine_gap",
    "trained_trajectories",
    "left_out_dead_groups",
    "left_out_live_groups",
    "dead_groups_kept",
    "buffered_episodes",
    "live_episodes",
)
"""Of the whole step alone."""
ENGINE_KL = "kl_behaviour/age/0"
"""KL(engine || learner) where both have the same version, but for the step's own earlier minibatches."""
TIMING_COLUMNS = ("seconds", "seconds_generate", "seconds_train", "seconds_wait")
EPISODE_TIMINGS = ("engine", "environment")
"""Keys of `Trajectory.timings` that are averaged, as `seconds_<key>_mean`."""
MEASURED_COLUMNS = (
    *TIMING_COLUMNS,
    *(f"seconds_{key}_mean" for key in EPISODE_TIMINGS),
    "tokens_per_second",
    "engine_gap",
)
"""Not decided by config and seed: times, and a check that every process makes at its own start."""


def step_rows(
    step: int,
    trajectories: Sequence[Trajectory],
    report: Mapping[str, float],
    seconds: Mapping[str, float],
) -> list[dict[str, Any]]:
    """Rows of one step. `step` counts from 0 and is also the version that was trained on.

    Args:
        report: the learner's metrics, `name` and `name/<task>`, and the loop's; see the columns above.
        seconds: keys of `TIMING_COLUMNS`, for the whole-step row.
    """
    tasks = list(dict.fromkeys(t.task for t in trajectories))
    rows = [_row(step, task, [t for t in trajectories if t.task == task]) for task in tasks]
    whole = _row(step, WHOLE_STEP, trajectories)
    for row in rows:
        row |= {name: report.get(f"{name}/{row['task']}") for name in LEARNER_COLUMNS}
    whole |= {name: report.get(name) for name in (*LEARNER_COLUMNS, *STEP_COLUMNS)}
    whole["kl_engine"] = report.get(ENGINE_KL)
    whole |= {name: seconds.get(name) for name in TIMING_COLUMNS}
    for row in (*rows, whole):
        if seconds.get("seconds"):
            row["tokens_per_second"] = row["sampled_tokens"] / seconds["seconds"]
    return [*rows, whole]


def scalars(rows: Iterable[Mapping[str, Any]], report: Mapping[str, float]) -> dict[str, float]:
    """A step's numbers by the names that TensorBoard and trackers show: `train/<name>`, of a task
    `train/<name>/<task>`."""
    out: dict[str, float] = {}
    for values, suffix in (
        *((row, "" if row["task"] == WHOLE_STEP else f"/{row['task']}") for row in rows),
        (report, ""),
    ):
        for name, value in values.items():
            if isinstance(value, int | float) and name not in ("step", "version"):
                out[f"train/{name}{suffix}"] = float(value)
    return out


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
        "tokens_mean": _mean(len(t.token_ids) for t in rewarded),
        "invalid_calls": _mean(t.metrics.get("invalid_calls", 0.0) for t in rewarded),
        "truncated": sum(t.status.is_truncation for t in trajectories),
        "failures": sum(t.status.is_infrastructure for t in trajectories),
        "sampled_tokens": sum(t.sampled for t in trajectories),
        "staleness_mean": _mean(lags),
        "staleness_max": float(lags.max()) if len(lags) else None,
        "stale_share": float((roles > 0).mean()) if len(roles) else None,
        "dead_groups": _dead_groups(rewarded),
        **{
            f"status_{status.replace(' ', '_')}": sum(t.status is status for t in trajectories)
            for status in ENDINGS
        },
        **{
            f"seconds_{part}_mean": _mean(
                t.timings[part] for t in trajectories if part in t.timings
            )
            for part in EPISODE_TIMINGS
        },
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

"""What a preset means: `faithful` is the released code with its faults, `corrected` the default.

Invariant: a key that the user sets always wins over the preset (13).
"""

from __future__ import annotations

from typing import Any

from agentrl.config.models import AlgorithmConfig

PRESETS: dict[str, dict[str, Any]] = {
    "corrected": {},
    "faithful": {
        "normalize_std": True,
        "task_normalization": True,
        "dead_groups_in_statistics": True,
        "clip_low": 0.2,
        "clip_high": 0.2,
        "dual_clip": 3.0,
        "kl_coefficient": 1.0e-4,
        "incomplete_reward": -0.2,
    },
}
"""Values of `faithful`: the released 14B five-task config and the code behind it (paper.md §5.2,
§5.6). Kept fault: zero-variance groups enter the task statistics and get a non-zero advantage (7).
Not kept: the raw reward as advantage of a group of one, and NaN for a task with one token (6)."""


def resolve_preset(config: AlgorithmConfig) -> AlgorithmConfig:
    """`config` with the preset's value for every key that was not set explicitly. Idempotent."""
    values = PRESETS[config.preset]
    return config.model_copy(
        update={key: value for key, value in values.items() if key not in config.model_fields_set}
    )

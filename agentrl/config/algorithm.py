"""Settings from rewards to a loss, and the released code's values of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from agentrl.config.section import NonNegativeInt, PositiveFloat, Section

FAITHFUL: Mapping[str, Any] = {
    "incomplete_reward": -0.2,
    "truncated": "train",
    "overlong_buffer": 0,
    "overlong_penalty": 1.0,
    "estimator": "grpo",
    "min_group_size": 2,
    "task_normalization": True,
    "dead_groups": "keep",
    "ratio": "token",
    "proximal": "behaviour",
    "importance": "none",
    "importance_cap": 2.0,
    "clip_low": 0.2,
    "clip_high": 0.2,
    "dual_clip": 3.0,
    "loss_mean": "token",
    "kl_coefficient": 1.0e-4,
    "kl_estimator": "k3",
}
"""The released 14B five-task settings and the code behind them (paper.md §5.2, §5.6): every key of
`AlgorithmConfig`. What is kept and what is not of the code's faults: docs/algorithms.md."""


class AlgorithmConfig(Section):
    """From rewards to a loss; formulas and sources of every key: docs/algorithms.md.

    `preset: corrected` is the defaults below, `preset: faithful` the released code's values.
    """

    preset: Literal["corrected", "faithful"] = Field(
        "corrected",
        description="faithful: the released code's values, and no others but those named in `ablate`",
    )
    ablate: tuple[str, ...] = Field(
        (),
        description="keys in which a faithful run departs from the preset, so that none is silent",
    )
    incomplete_reward: float | None = Field(
        None, description="reward of a truncated or invalid ending in training; none keeps it"
    )
    truncated: Literal["train", "mask", "drop"] = Field(
        "train",
        description="episodes that a limit ended. mask: not in the loss, but in their group's "
        "baseline; drop: in neither",
    )
    overlong_buffer: NonNegativeInt = Field(
        0,
        description="last tokens of rollout.max_total_tokens in which a penalty grows; 0: no penalty",
    )
    overlong_penalty: PositiveFloat = Field(1.0, description="taken from the reward at the limit")
    estimator: Literal["grpo", "dr-grpo", "rloo", "reinforce++"] = Field(
        "dr-grpo",
        description="advantage of a trajectory in its group. grpo: over the group's std; dr-grpo: "
        "mean only; rloo: mean of the others; reinforce++: mean, then normalised over the step",
    )
    min_group_size: int = Field(
        2, ge=2, description="a group with fewer rewards, after failures, counts as dead"
    )
    task_normalization: bool = Field(
        True, description="normalise advantages over each task's tokens (paper, Eq. 1)"
    )
    dead_groups: Literal["zero", "drop", "keep"] = Field(
        "zero",
        description="groups whose rewards are equal. zero: no advantage, no gradient, but counted in "
        "the loss's mean; drop: not counted either; keep: in the statistics and trained on",
    )
    ratio: Literal["token", "sequence"] = Field(
        "token", description="sequence: one ratio a trajectory, its geometric mean (GSPO)"
    )
    proximal: Literal["behaviour", "step"] = Field(
        "behaviour",
        description="what the ratio is to: the policy that sampled the token, or the weights at the "
        "start of the step (decoupled PPO; one more forward pass)",
    )
    importance: Literal["none", "token", "sequence"] = Field(
        "none",
        description="weight for the step from the sampling to the proximal policy, a token or a "
        "trajectory at a time; needs proximal: step",
    )
    importance_cap: float | None = Field(2.0, ge=1, description="bound of that weight; null: none")
    clip_low: PositiveFloat = Field(0.2, description="the ratio is clipped below 1 - this")
    clip_high: PositiveFloat = Field(0.28, description="the ratio is clipped above 1 + this")
    dual_clip: float | None = Field(
        3.0, gt=1, description="bound of the ratio for negative advantages; null: none"
    )
    loss_mean: Literal["token", "sequence", "constant"] = Field(
        "token",
        description="what weighs the same in a step: tokens (DAPO); trajectories (GRPO); tokens, over "
        "trajectories times rollout.max_total_tokens (Dr. GRPO)",
    )
    kl_coefficient: float = Field(
        0.0, ge=0, description="weight of the KL divergence from the policy RL started from"
    )
    kl_estimator: Literal["k1", "k2", "k3"] = Field("k3", description="how it is estimated")

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, data: Any) -> Any:
        # Here, so that settings written out and read again are the same settings.
        if isinstance(data, Mapping) and data.get("preset") == "faithful":
            return {**FAITHFUL, **data}
        return data

    @model_validator(mode="after")
    def _no_silent_mixture(self) -> Self:
        own = FAITHFUL if self.preset == "faithful" else {}
        changed = [key for key, value in own.items() if getattr(self, key) != value]
        for key in changed:
            if key not in self.ablate:
                raise ValueError(
                    f"{key}: {getattr(self, key)!r} is not {own[key]!r}, as preset 'faithful' has it; "
                    f"leave it out, or name {key} in ablate"
                )
        for key in self.ablate:
            if key not in changed:
                raise ValueError(
                    f"ablate: {key!r} is as preset {self.preset!r} has it; leave it out of ablate"
                )
        return self

    @model_validator(mode="after")
    def _every_option_has_an_effect(self) -> Self:
        if self.importance != "none" and self.proximal == "behaviour":
            raise ValueError(
                f"importance: {self.importance!r} has no effect, the ratio is to the sampling policy "
                "already; set proximal to 'step', or importance to 'none'"
            )
        if self.estimator == "reinforce++" and self.task_normalization:
            raise ValueError(
                "task_normalization: true undoes the normalisation of estimator 'reinforce++'; set it "
                "to false, or estimator to 'dr-grpo'"
            )
        return self

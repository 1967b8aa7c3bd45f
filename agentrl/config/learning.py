"""Settings of the learner."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from agentrl.config.section import (
    Fraction,
    Name,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
)

TRACKERS = ("wandb", "trackio")


class LoraConfig(Section):
    """Train low-rank adapters beside frozen weights (needs the extra `lora`). Not set: all weights."""

    rank: PositiveInt = Field(16, description="of the adapters")
    alpha: PositiveInt = Field(32, description="the adapter's share is alpha / rank")
    target_modules: tuple[str, ...] = Field(
        (), description="names of the layers that get one; empty: all linear ones but the output"
    )


class PoolConfig(Section):
    """Shares of a task's groups whose sample comes from a difficulty pool; the others are new ones, or
    neither easy nor hard. Only of use where samples come again."""

    easy: Fraction = Field(0.1, description="samples that their last group solved, every member")
    hard: Fraction = Field(0.3, description="samples that no member of their last group solved")

    @model_validator(mode="after")
    def _leaves_room(self) -> Self:
        if self.easy + self.hard > 1:
            raise ValueError(
                f"easy: {self.easy} and hard: {self.hard} are more than 1 together; lower one"
            )
        return self


class TrainingConfig(Section):
    """The learner of reinforcement learning."""

    start: str = Field("warm-start", description="the policy RL starts from: base or a clone")
    steps: NonNegativeInt = Field(60, description="steps, each on fresh episodes")
    groups_per_task: PositiveInt | dict[str, PositiveInt] = Field(
        8,
        description="samples of each task a step; a mapping gives tasks numbers of their own, and 8 "
        "to those that it does not name",
    )
    group_size: int = Field(8, ge=2, description="episodes of one sample a step")
    oversampling: float = Field(
        1.0,
        ge=1,
        description="groups played for each that is trained; the first with unequal rewards are, and "
        "dead ones only to fill the step",
    )
    pools: dict[Name, PoolConfig] = Field(
        default_factory=dict, description="by task; a task without has all samples in turn"
    )
    learning_rate: PositiveFloat = Field(6.0e-4, description="AdamW's")
    betas: tuple[Fraction, Fraction] = Field((0.9, 0.95), description="AdamW's")
    weight_decay: float = Field(0.0, ge=0, description="AdamW's")
    grad_clip: PositiveFloat = Field(1.0, description="largest norm of a gradient")
    warmup_steps: NonNegativeInt = Field(5, description="steps of linear rise of the learning rate")
    decay_fraction: Fraction = Field(
        0.0, description="last part of the run, in which the learning rate falls linearly to 0"
    )
    minibatches: PositiveInt = Field(2, description="optimiser steps a pass over a step's episodes")
    epochs: PositiveInt = Field(1, description="passes over a step's episodes")
    max_tokens_per_microbatch: PositiveInt = Field(
        8192, description="memory limit; does not change the numbers beyond rounding"
    )
    autocast: Literal["bf16", "none"] = Field(
        "none",
        description="bf16: passes in bfloat16, for GPUs and for processors with AVX512-BF16 or AMX; "
        "others emulate it, a hundred times slower",
    )
    gradient_checkpointing: bool = Field(
        False, description="compute activations again in the backward pass: less memory, more time"
    )
    lora: LoraConfig | None = None
    snapshot_every: PositiveInt = Field(10, description="steps; what a kill can cost")
    keep_snapshots: PositiveInt = Field(2, description="the newest ones")
    threads: PositiveInt = Field(1, description="of the learner's process")

    def groups_of(self, task: str) -> int:
        """Groups of `task` in every step."""
        if isinstance(self.groups_per_task, int):
            return self.groups_per_task
        return self.groups_per_task.get(task, 8)

    def played_groups_of(self, task: str) -> int:
        """Groups of `task` that are played for a step, of which `groups_of` are trained."""
        return math.ceil(self.groups_of(task) * self.oversampling - 1e-9)

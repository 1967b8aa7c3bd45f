"""Settings of behaviour cloning."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentrl.config.section import Fraction, NonNegativeInt, PositiveFloat, PositiveInt, Section


class WarmStartStage(Section):
    """`steps` optimiser steps of behaviour cloning on an expert with some noise."""

    steps: NonNegativeInt = Field(description="optimiser steps")
    noise: dict[str, Fraction] = Field(
        default_factory=dict, description="how unreliable the expert is, by task; absent: 0"
    )
    learning_rate: PositiveFloat = Field(0.02, description="of the weight matrices")
    warmup_steps: NonNegativeInt = Field(
        40, description="steps of linear rise of the learning rate"
    )
    decay_fraction: Fraction = Field(0.4, description="last part of the stage, linear to 0")


class WarmStartConfig(Section):
    """What all clones share. `stages` is filled in for one clone at a time, from `clones`."""

    stages: tuple[WarmStartStage, ...] = Field(
        (), description="not set by hand: the workflow fills in those of one clone"
    )
    optimizer: Literal["muon", "adamw"] = Field("muon", description="of the weight matrices")
    embedding_learning_rate: PositiveFloat = Field(
        3.0e-3, description="AdamW's, of embeddings and norms"
    )
    weight_decay: float = Field(0.05, ge=0, description="of the weight matrices")
    episodes_per_step: dict[str, PositiveInt] = Field(
        default_factory=dict, description="expert episodes a step, by task"
    )
    demonstrations: PositiveInt | None = Field(
        None,
        description="expert episodes that there are of each task, seen again and again; none: fresh "
        "ones at every step",
    )
    observation_weight: Fraction = Field(0.2, description="loss weight of environment tokens")
    max_tokens_per_microbatch: PositiveInt = Field(
        4096, description="memory limit; does not change the numbers beyond rounding"
    )
    threads: PositiveInt = Field(2, description="of torch; sums are cut by it, so it decides bits")


class CloneConfig(Section):
    """One policy made by behaviour cloning; what its stages share stands under `warm_start`."""

    start: str = Field("base", description="the policy it continues from: base or another clone")
    stages: tuple[WarmStartStage, ...] = Field(min_length=1, description="one after the other")

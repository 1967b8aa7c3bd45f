"""Settings of how episodes are played: in training, in evaluation, and where."""

from __future__ import annotations

from pathlib import Path
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


class CrossPolicyConfig(Section):
    """Each turn goes to a stale copy with probability `stale_ratio` (paper §3.1)."""

    stale_ratio: Fraction = Field(0.25, description="share of turns; 0 switches it off")
    refresh_every: PositiveInt = Field(10, description="steps between refreshes of the stale copy")


class VllmConfig(Section):
    """vLLM servers, where `engine` is vllm: started here, or named. docs/vllm.md."""

    python: Path = Field(
        Path(".vllm/bin/python"),
        description="of an environment with vLLM: `agentrl serve --install`",
    )
    servers: dict[Literal["current", "stale"], tuple[str, ...]] = Field(
        default_factory=dict,
        description="addresses of servers that run already, by role; a role without gets its own",
    )
    replicas: PositiveInt = Field(1, description="servers of the current policy that are started")
    stale_replicas: PositiveInt = Field(1, description="of the stale copy, where there is one")
    tensor_parallel: PositiveInt = Field(1, description="GPUs a server")
    cpu_cache_gib: PositiveInt = Field(1, description="without a GPU: memory of the KV cache")
    start_seconds: PositiveFloat = Field(
        600, description="a server may take to start, or to reload"
    )
    silent_seconds: PositiveFloat = Field(
        120, description="without a token, after which a server counts as hung"
    )
    arguments: tuple[str, ...] = Field((), description="further arguments of the server")
    environment: dict[str, str] = Field(
        default_factory=dict, description="further variables of its environment"
    )


class RolloutConfig(Section):
    """How training episodes are sampled."""

    engine: Literal["embedded", "vllm"] = Field(
        "embedded", description="in the process of the run, or vLLM servers, whose runs differ"
    )

    temperature: PositiveFloat = Field(1.0, description="of sampling, and of the loss")
    max_new_tokens: PositiveInt = Field(48, description="tokens a turn")
    max_total_tokens: PositiveInt = Field(768, description="tokens an episode, all of them")
    concurrency: PositiveInt = Field(64, description="episodes live at once")
    cross_policy: CrossPolicyConfig = CrossPolicyConfig()
    dtype: Literal["fp32", "bf16"] = Field("fp32", description="precision of the engine")
    threads: PositiveInt = Field(1, description="of the engine")
    vllm: VllmConfig = VllmConfig()


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


class PassAtKConfig(Section):
    """pass@k of two policies alone and mixed turn by turn (paper, Fig. 8); off where `samples` is 0."""

    samples: NonNegativeInt = Field(0, description="of each task, from split std; 0: not measured")
    attempts: PositiveInt = Field(64, description="episodes a sample, sampled: k goes up to it")
    policies: tuple[Name, ...] = Field(
        (), description="two policies by name; none: where RL starts, and the multi-task policy"
    )
    share: Fraction = Field(0.5, description="of the mixture's turns, the second policy's")

    @model_validator(mode="after")
    def _two(self) -> Self:
        if self.policies and (len(self.policies) != 2 or len(set(self.policies)) != 2):
            raise ValueError(f"policies: {list(self.policies)} are not two; name two, or none")
        return self


class EvaluationConfig(Section):
    """How the rows of the main table are measured: sampled and greedy, one policy version."""

    samples: PositiveInt = Field(200, description="of each task, from split std")
    repeats: PositiveInt = Field(1, description="sampled episodes a sample")
    concurrency: PositiveInt = Field(128, description="episodes live at once")
    temperature: PositiveFloat = Field(1.0, description="of the sampled episodes")
    threads: PositiveInt = Field(2, description="of the engine")
    pass_at_k: PassAtKConfig = PassAtKConfig()

"""What a run of a large policy needs: GPUs and their memory, and what is missing on this machine.

An estimate from shapes, not a measurement; the formulas are in `learner_bytes` and `engine_bytes`. All
weights are trained: with `training.lora` it takes less.
Half of the GPUs learn and half sample, as in the released code (paper §5.2, `rollout_ratio`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from agentrl.config import Config
from agentrl.config.shapes import Shape, shape_of
from agentrl.errors import ConfigError
from agentrl.tasks.overview import rows

GIB = 2**30
USABLE = 0.9
"""Of a GPU's memory: the rest is lost to fragments."""
CONTEXT = 2 * GIB
"""CUDA, its libraries and NCCL's buffers, on each GPU."""
SIZES = (2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Plan:
    shape: Shape
    gpus: int
    memory: float
    """Bytes a GPU."""
    learner: float
    """Bytes on each learning GPU."""
    engine_gpus: int
    """That one engine is spread over (tensor parallel)."""
    engines: int
    stale: int
    """Those of the engines that hold the stale copy."""
    kv_tokens: int
    """That one engine's cache holds."""
    wanted_tokens: int
    """Of the episodes that an engine has at once, all of them at full length."""

    @property
    def learners(self) -> int:
        return self.gpus // 2

    @property
    def fits(self) -> bool:
        return (
            self.learner <= USABLE * self.memory
            and self.engines > self.stale
            and self.kv_tokens > 0
        )


def learner_bytes(config: Config, shape: Shape, gpus: int) -> float:
    """Bytes on each of `gpus` GPUs that share weights, gradients and AdamW's moments (FSDP).

    Shared: 4 + 4 + 8 bytes a parameter, and 2 of the frozen reference where there is a KL term. Not
    shared, for T tokens of a micro-batch: a checkpoint of every layer (2TH), the activations of one
    layer, or of all where they are not computed again (2T(6H + 3I)), logits in bf16 and twice in fp32
    (10TV), two layers and the largest embedding as they are gathered in bf16.
    """
    tokens = config.training.max_tokens_per_microbatch
    held = 1 if config.training.gradient_checkpointing else shape.layers
    shared = (16 + 2 * (config.algorithm.kl_coefficient > 0)) * shape.parameters / gpus
    checkpoints = 2 * tokens * shape.hidden_size * shape.layers
    layer = 2 * tokens * (6 * shape.hidden_size + 3 * shape.intermediate_size)
    logits = 10 * tokens * shape.vocab_size
    gathered = 2 * (2 * shape.layer_parameters + shape.embedding_parameters)
    return float(shared + checkpoints + held * layer + logits + gathered + CONTEXT)


def engine_bytes(shape: Shape, gpus: int) -> float:
    """Bytes on each of an engine's GPUs before any KV cache: bf16 weights and 2 GiB of activations."""
    return 2 * shape.parameters / gpus + CONTEXT + 2 * GIB


def make_plan(config: Config, memory: float, gpus: int | None = None) -> Plan:
    """A plan for `gpus` GPUs of `memory` bytes; None: for the fewest that are enough.

    Raises `ConfigError` where the policy's shape is not known, or where no number is enough.
    """
    if config.policy.path is None:
        raise ConfigError(
            "config key 'policy.path': not set; a plan is made for a policy from a folder"
        )
    shape = shape_of(config.policy.path)
    for size in (gpus,) if gpus else SIZES:
        plan = _plan(config, shape, memory, size)
        if plan.fits or gpus:
            return plan
    raise ConfigError(
        f"no {SIZES[-1]} GPUs of {memory / GIB:.0f} GiB are enough; lower "
        "training.max_tokens_per_microbatch, or give larger ones by --gpu-memory"
    )


def _plan(config: Config, shape: Shape, memory: float, gpus: int) -> Plan:
    sampling = gpus // 2
    # As few GPUs an engine as leave half of them to the cache.
    spread = 1
    while spread < sampling and engine_bytes(shape, spread) > USABLE * memory / 2:
        spread *= 2
    engines = sampling // spread
    ratio = config.rollout.cross_policy.stale_ratio
    stale = max(1, round(ratio * engines)) if ratio else 0
    room = (USABLE * memory - engine_bytes(shape, spread)) * spread
    episodes = -(-config.rollout.concurrency // max(1, engines))
    return Plan(
        shape,
        gpus,
        memory,
        learner_bytes(config, shape, gpus - sampling),
        spread,
        engines,
        stale,
        max(0, int(room / shape.kv_bytes())),
        episodes * config.rollout.max_total_tokens,
    )


def describe(plan: Plan, config: Config) -> Iterator[str]:
    """The plan for people, a line each."""
    shape = plan.shape
    step = (
        sum(config.training.groups_of(task) for task in config.tasks) * config.training.group_size
    )
    yield f"policy    {shape.parameters / 1e9:.2f} billion parameters ({config.policy.path})"
    yield (
        f"GPUs      {plan.gpus} of {plan.memory / GIB:.0f} GiB: {plan.learners} learn, "
        f"{plan.engines * plan.engine_gpus} sample" + ("" if plan.fits else " - NOT ENOUGH")
    )
    yield (
        f"learner   {plan.learner / GIB:.1f} of {USABLE * plan.memory / GIB:.1f} usable GiB on each, "
        f"micro-batches of {config.training.max_tokens_per_microbatch} tokens"
    )
    yield (
        "start     accelerate launch --config_file config/accelerate/fsdp2.yaml --num_processes "
        f"{plan.learners} --no_python agentrl train …"
    )
    yield (
        f"engines   {plan.engines} on {plan.engine_gpus} each, {plan.stale} of them for the stale copy; "
        f"{engine_bytes(shape, plan.engine_gpus) / GIB:.1f} GiB on each before the cache"
    )
    held = min(1.0, plan.kv_tokens / max(1, plan.wanted_tokens))
    yield (
        f"KV cache  {shape.kv_bytes() / 1024:.0f} KiB a token; an engine holds {plan.kv_tokens} tokens, "
        f"{held:.0%} of its episodes at full length"
    )
    yield (
        f"a step    {step} episodes, at most {step * config.rollout.max_total_tokens / 1e6:.1f} million "
        f"tokens; {config.training.steps} steps"
    )


def missing(plan: Plan, config: Config) -> Iterator[str]:
    """What has to be there before the run can start, a line each."""
    path = config.policy.path
    if path is not None and not (path / "config.json").is_file():
        yield f"policy.path: {path} is not there; download the model {path.name} into it"
    if not _has_gpus():
        yield "GPUs: no NVIDIA driver on this machine"
    if find_spec("vllm") is None:
        yield "engine: pip install -e '.[vllm]'"
    if config.algorithm.kl_coefficient > 0:
        yield (
            "learner: this version holds the reference of algorithm.kl_coefficient whole, in fp32, on "
            f"every GPU: {(4 - 2 / plan.learners) * plan.shape.parameters / GIB:.0f} GiB more than planned"
        )
    if plan.engines * plan.engine_gpus > 1:
        yield (
            f"engines: {plan.engines * plan.engine_gpus} GPUs are planned; this version samples in the "
            "process of the first rank"
        )
    for row in rows(config, config.data_root):
        if row.missing:
            yield f"tasks.{row.task}: {row.missing}"


def _has_gpus() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None

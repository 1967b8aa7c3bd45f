"""Which settings decide the numbers of which stage, and which policies an experiment has.

A stage of the workflow is given only these settings, so that an edit reruns exactly what it
touches: another evaluation does not train again, a new seed leaves the old ones alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from agentrl.config.models import Config
from agentrl.errors import ConfigError

MULTI_TASK = "multi-task"
SINGLE_TASK = "single-"
BASE, EXPERT = "base", "expert"
"""Rows that no training of ours made: the policy before any, and the tasks' own solvers."""
MIXTURE = "mixture"
"""Two policies that take turns in one episode; also the stage that measures them (pass@k)."""

_READ: dict[str, dict[str, Any]] = {
    "base": {"policy": True},
    "clone": {"policy": True, "warm_start": True, "training": {"autocast"}},
    "train": dict.fromkeys(("policy", "algorithm", "training", "rollout", "pipeline"), True),
    "evaluate": {
        "policy": True,
        "rollout": {"dtype", "max_new_tokens", "max_total_tokens", "engine", "vllm"},
        "pipeline": {"episode_attempts"},
        "evaluation": {"samples", "repeats", "concurrency", "temperature", "threads"},
    },
    MIXTURE: {
        "policy": True,
        "rollout": {"dtype", "max_new_tokens", "max_total_tokens"},
        "pipeline": {"episode_attempts"},
        "evaluation": {"concurrency", "temperature", "threads", "pass_at_k"},
    },
}
"""Sections that each kind of stage reads, or single keys of them."""


def training_runs(config: Config) -> dict[str, tuple[str, ...]]:
    """The RL runs by name, each with its tasks: all of them, one by one, then the matrix's variants."""
    tasks = tuple(config.tasks)
    runs = {MULTI_TASK: tasks}
    if config.single_task_runs and len(tasks) > 1:
        runs |= {SINGLE_TASK + task: (task,) for task in tasks}
    return runs | dict.fromkeys(config.trained_variants, tasks)


def variants_of(records: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Runs on all tasks beside the multi-task one, from the records of a `provenance.json`."""
    runs = (str(record["name"]) for record in records if "run" in record)
    chosen = (run for run in runs if run != MULTI_TASK and not run.startswith(SINGLE_TASK))
    return tuple(dict.fromkeys(chosen))


def evaluated_rows(config: Config) -> tuple[str, ...]:
    """Rows of the main table, in its order."""
    return (BASE, EXPERT, *config.clones, *training_runs(config))


def mixed_policies(config: Config) -> tuple[str, ...]:
    """The two policies whose pass@k is measured; none where it is not. Raises `ConfigError`."""
    wanted = config.evaluation.pass_at_k
    if not wanted.samples:
        return ()
    policies = wanted.policies or (config.training.start, MULTI_TASK)
    known = (BASE, *config.clones, *training_runs(config))
    for name in policies:
        if name not in known:
            raise ConfigError(
                f"config key 'evaluation.pass_at_k.policies': {name!r} is none of {', '.join(known)}"
            )
    return policies


def stages(config: Config) -> tuple[str, ...]:
    """Every stage: `base`, `clone-NAME`, `train-RUN`, `evaluate`, and `mixture` where it is measured."""
    clones = (f"clone-{name}" for name in config.clones)
    runs = (f"train-{run}" for run in training_runs(config))
    return ("base", *clones, *runs, "evaluate", *([MIXTURE] if mixed_policies(config) else []))


def stage_settings(config: Config, stage: str) -> dict[str, Any]:
    """The settings of one of `stages`, all defaults spelled out, as plain data.

    Left out: what the stage does not read (seeds, the sizes of splits it never opens, tasks of
    other runs), `data_root` where no task of the stage reads official records, and `hosting` where
    episodes live in the stage's own process.
    """
    kind, _, name = stage.partition("-")
    names = training_runs(config)[name] if kind == "train" else tuple(config.tasks)
    if kind == "train" and name in config.trained_variants:
        config = config.variant(name)
    plays_std = kind in ("evaluate", MIXTURE)
    unused = {"train_samples", "dev_samples", "train_split"} if plays_std else {"std_samples"}
    tasks = {task: config.tasks[task] for task in names}
    settings = config.model_dump(mode="json", include=_READ[kind])
    settings["tasks"] = {
        task: entry.model_dump(mode="json", exclude=unused) for task, entry in tasks.items()
    }
    if kind == "train" and isinstance(config.training.groups_per_task, Mapping):
        own = _of(tasks, config.training.groups_per_task)
        settings["training"]["groups_per_task"] = own
    if kind == "train":
        settings["training"]["pools"] = _of(tasks, settings["training"]["pools"])
    if kind == "clone":
        shared = settings["warm_start"]
        shared["episodes_per_step"] = _of(tasks, shared["episodes_per_step"])
        parts = [part.model_dump(mode="json") for part in config.clones[name].stages]
        shared["stages"] = [{**part, "noise": _of(tasks, part["noise"])} for part in parts]
    if settings.get("policy", {}).get("path") is None:
        # Not there, so that settings written before there were folders are the same settings.
        settings.get("policy", {}).pop("path", None)
    if config.rollout.engine == "embedded":
        # As above: not there, where it was always so.
        for key in ("engine", "vllm"):
            settings.get("rollout", {}).pop(key, None)
    if any(entry.source == "official" for entry in tasks.values()):
        settings["data_root"] = str(config.data_root)
    if (kind == "train" or plays_std) and config.hosting.controller is not None:
        settings["hosting"] = config.hosting.model_dump(mode="json")
    return settings


def _of(tasks: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a table by task whose task is in the run."""
    return {name: value for name, value in table.items() if name in tasks}


def to_yaml(settings: dict[str, Any]) -> str:
    """Canonical text: the same settings give the same bytes, in whatever order they came."""
    return yaml.safe_dump(settings, sort_keys=True, allow_unicode=True)

"""Two policies on the same samples, alone and mixed turn by turn (cross-policy sampling at inference).

Invariants: one version of each policy (12); all three are played by the same code, with the same seeds on
the same samples; who speaks at a turn of the mixture is drawn as in training, from (episode seed, turn)
(8); a failed episode is a row without a reward (4).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from agentrl.config import Config
from agentrl.config.stages import MIXTURE
from agentrl.errors import ConfigError, DataError
from agentrl.evaluation.rows import SAMPLED, Job, row, write_rows
from agentrl.evaluation.run import play
from agentrl.hosting.environments import open_environments
from agentrl.randomness import derive
from agentrl.rollout.agent_loop import EpisodeSettings
from agentrl.rollout.conductor import Conductor
from agentrl.rollout.cross_policy import CURRENT, STALE, PolicyPool
from agentrl.rollout.trajectory import Trajectory
from agentrl.rollout.trajectory_io import write_trajectories
from agentrl.rollout.transformers_engine import TransformersEngine
from agentrl.tasks.base import Task

EPISODES, TRAJECTORIES = "episodes.parquet", "trajectories/attempts.parquet"
KEPT_SAMPLES, KEPT_ATTEMPTS = 2, 4
"""Of each task and policy so many are kept as trajectories, for reading."""


async def mixture_to_file(
    config: Config, *, policies: Mapping[str, Path], seed: int, split: str, output: Path
) -> None:
    """Write `output`/episodes.parquet (columns of `reporting.episodes`, rows named after the policies and
    `mixture`; `repeat` is the attempt), its provenance and some trajectories.

    Args:
        policies: two folders by name, with the same tokenizer and chat format.
    """
    started = time.monotonic()
    settings = config.evaluation.pass_at_k
    if len(policies) != 2 or not settings.samples:
        raise ConfigError(
            f"two policies and evaluation.pass_at_k.samples above 0 are needed, not "
            f"{len(policies)} and {settings.samples}"
        )
    first, second = policies
    _check_alike(policies)
    torch.set_num_threads(config.evaluation.threads)
    engines = {
        role: TransformersEngine(
            policies[name],
            slots=config.evaluation.concurrency,
            max_tokens=config.rollout.max_total_tokens,
            dtype=config.rollout.dtype,
        )
        for role, name in ((CURRENT, first), (STALE, second))
    }
    shares = {first: 0.0, second: 1.0, MIXTURE: settings.share}
    pools = {name: PolicyPool(engines, stale_ratio=share) for name, share in shares.items()}
    how = EpisodeSettings(
        engines[CURRENT].renderer,
        temperature=config.evaluation.temperature,
        max_new_tokens=config.rollout.max_new_tokens,
        max_total_tokens=config.rollout.max_total_tokens,
    )
    conductor = Conductor(list(engines.values()))
    rows: list[dict[str, Any]] = []
    names: list[str] = []
    kept: list[Trajectory] = []
    splits = dict.fromkeys(config.tasks, split)
    try:
        async with open_environments(config, splits, config.evaluation.concurrency) as environments:
            todo = attempts(config, environments.tasks, split, seed)
            for name, pool in pools.items():
                episodes = [
                    partial(
                        play,
                        environments.client,
                        pool,
                        how,
                        job,
                        session=place + 1,
                        attempts=config.pipeline.episode_attempts,
                    )
                    for place, job in enumerate(todo)
                ]
                played = await conductor.run_all(episodes, config.evaluation.concurrency)
                for job, done in zip(todo, played, strict=True):
                    rows.append(row(job, done.status, done.reward, done.metrics, done.sampled))
                    names.append(name)
                    if job.sample.index in _first(todo, job) and job.repeat < KEPT_ATTEMPTS:
                        kept.append(_named(done, (first, second), job.repeat))
            await asyncio.to_thread(write_trajectories, output / TRAJECTORIES, kept)
            write_rows(
                output / EPISODES,
                rows,
                config,
                environments.tasks,
                name=names,
                seed=seed,
                started=started,
                policies={name: str(path) for name, path in policies.items()},
            )
    finally:
        await conductor.close()
        await pools[MIXTURE].close()


def attempts(config: Config, tasks: Mapping[str, Task], split: str, seed: int) -> list[Job]:
    """Every attempt of every sample, once for each of the three."""
    wanted = config.evaluation.pass_at_k
    out = []
    for name, task in tasks.items():
        samples = task.samples(split)
        if not len(samples):
            raise DataError(f"task {name!r}: split {split!r} has no samples")
        for place in range(min(len(samples), wanted.samples)):
            sample = samples[place]
            for attempt in range(wanted.attempts):
                at = derive(seed, "attempt", name, split, sample.index, attempt)
                out.append(Job(SAMPLED, sample, attempt, at))
    return out


def _first(todo: list[Job], job: Job) -> list[int]:
    found = dict.fromkeys(o.sample.index for o in todo if o.sample.task == job.sample.task)
    return list(found)[:KEPT_SAMPLES]


def _named(trajectory: Trajectory, names: tuple[str, str], attempt: int) -> Trajectory:
    """With the policies' names as roles."""
    called = dict(zip((CURRENT, STALE), names, strict=True))
    turns = [replace(turn, role=called[turn.role]) for turn in trajectory.turns]
    return replace(trajectory, roles=names, turns=turns, member=attempt)


def _check_alike(policies: Mapping[str, Path]) -> None:
    for name in ("tokenizer.json", "chat_template.jinja"):
        texts = [path / name for path in policies.values()]
        contents = {text.read_bytes() if text.is_file() else b"" for text in texts}
        if len(contents) > 1:
            raise ConfigError(
                f"config key 'evaluation.pass_at_k.policies': {' and '.join(policies)} have another "
                f"{name}, so they cannot share an episode; name two policies of one base"
            )

"""Plays the samples of a split with one policy version, or with the experts, and writes the episodes.

Invariants: one evaluation is one policy version (12); every policy is measured by the same code on
the same samples with the same seeds; a failed episode is a row without a reward (4); two
evaluations of one policy are equal (8).
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from agentrl.config import Config
from agentrl.errors import DataError, InfrastructureError
from agentrl.hosting.client import EnvironmentClient
from agentrl.hosting.controller import Controller
from agentrl.messages import Status
from agentrl.provenance import write_provenance
from agentrl.randomness import derive
from agentrl.rollout.agent_loop import EpisodeSettings, run_episode
from agentrl.rollout.cross_policy import PolicyPool
from agentrl.rollout.embedded import open_engines
from agentrl.rollout.trajectory import Trajectory
from agentrl.tasks.base import Sample, Step, Task
from agentrl.tasks.play import play_expert
from agentrl.tasks.registry import create_task

log = logging.getLogger(__name__)

EXPERT = "expert"
GREEDY, SAMPLED = "greedy", "sampled"


@dataclass(frozen=True, slots=True)
class Job:
    """One episode of an evaluation."""

    mode: str
    sample: Sample
    repeat: int
    seed: int


def jobs(config: Config, tasks: dict[str, Task], split: str, seed: int, mode: str) -> list[Job]:
    """Every episode of one mode: greedy once a sample, sampled `evaluation.repeats` times."""
    repeats = config.evaluation.repeats if mode == SAMPLED else 1
    out = []
    for name, task in tasks.items():
        samples = task.samples(split)
        if not len(samples):
            raise DataError(f"task {name!r}: split {split!r} has no samples")
        for index in range(min(len(samples), config.evaluation.samples)):
            sample = samples[index]
            for repeat in range(repeats):
                place = derive(seed, "evaluation", name, split, sample.index, repeat)
                out.append(Job(mode, sample, repeat, place))
    return out


async def evaluate_to_file(
    config: Config, *, policy: str, name: str, seed: int, split: str, output: Path
) -> None:
    """Write `output` (one row an episode, columns of `reporting.episodes`) and its provenance.

    Args:
        policy: folder of a policy, or "expert".
        name: the row of the table that these episodes belong to.
    """
    started = time.monotonic()
    tasks = {task: create_task(task, c, config.data_root) for task, c in config.tasks.items()}
    controller = Controller(tasks)
    try:
        if policy == EXPERT:
            rows = [
                await _expert_row(tasks[job.sample.task], job, config.pipeline.episode_attempts)
                for mode in (SAMPLED, GREEDY)
                for job in jobs(config, tasks, split, seed, mode)
            ]
        else:
            rows = await _policy_rows(config, controller, Path(policy), seed, split)
    finally:
        await controller.close()
    frame = pd.DataFrame(rows)
    frame.insert(0, "row", name)
    frame.insert(1, "run_seed", seed)
    frame.insert(3, "level", frame["task"].map({t: task.level for t, task in tasks.items()}))
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_name(output.name + ".part")
    frame.to_parquet(part, index=False)
    part.replace(output)
    write_provenance(
        output.with_suffix(".provenance.json"),
        config.model_dump(mode="json", exclude_unset=True),
        row=name,
        seed=seed,
        policy=policy,
        episodes=len(frame),
        tokens=int(frame["tokens"].sum()),
        seconds=round(time.monotonic() - started, 1),
    )
    means = frame.groupby(["mode", "task"], sort=False)["success"].mean().reset_index()
    shown = [f"{mode} {task} {mean:.3f}" for mode, task, mean in means.itertuples(index=False)]
    log.info("%s: %s", name, ", ".join(shown))


async def _policy_rows(
    config: Config, controller: Controller, policy: Path, seed: int, split: str
) -> list[dict[str, Any]]:
    torch.set_num_threads(config.evaluation.threads)
    slots = config.evaluation.concurrency
    rows: list[dict[str, Any]] = []
    engines = open_engines(policy, config, stale_ratio=0.0, slots=slots, lockstep=True)
    async with engines as embedded:
        for mode in (SAMPLED, GREEDY):
            temperature = config.evaluation.temperature if mode == SAMPLED else 0.0
            settings = embedded.settings(config, temperature=temperature, validation=True)
            todo = jobs(config, controller.tasks, split, seed, mode)
            episodes = [
                partial(
                    _play,
                    controller,
                    embedded.pool,
                    settings,
                    job,
                    session=place + 1,
                    attempts=config.pipeline.episode_attempts,
                )
                for place, job in enumerate(todo)
            ]
            played = await embedded.conductor.run_all(episodes, slots)
            rows += [_policy_row(job, done) for job, done in zip(todo, played, strict=True)]
    return rows


async def _play(
    client: EnvironmentClient,
    pool: PolicyPool,
    settings: EpisodeSettings,
    job: Job,
    *,
    session: int,
    attempts: int,
) -> Trajectory:
    """One episode, tried again after infrastructure failures."""
    trajectory = await run_episode(
        client, pool, settings, job.sample, seed=job.seed, session=session
    )
    if trajectory.status.is_infrastructure and attempts > 1:
        return await _play(client, pool, settings, job, session=session, attempts=attempts - 1)
    return trajectory


def _policy_row(job: Job, trajectory: Trajectory) -> dict[str, Any]:
    versions = set(trajectory.policy_version[trajectory.loss_mask].tolist())
    if versions - {0}:
        raise InfrastructureError(f"an evaluation saw policy versions {versions}, not one")
    return _row(
        job,
        trajectory.status,
        trajectory.reward,
        trajectory.metrics,
        trajectory.sampled,
    )


async def _expert_row(task: Task, job: Job, attempts: int) -> dict[str, Any]:
    """As for a policy: tried again after infrastructure failures, then a row without a reward."""
    try:
        last = (await play_expert(task, job.sample, job.seed)).last
    except InfrastructureError:
        last = Step((), status=Status.TASK_ERROR, done=True)
    if not last.status.is_infrastructure:
        return _row(job, last.status, last.reward, dict(last.metrics), 0)
    if attempts > 1:
        return await _expert_row(task, job, attempts - 1)
    return _row(job, last.status, None, dict(last.metrics), 0)


def _row(
    job: Job, status: str, reward: float | None, metrics: dict[str, float], tokens: int
) -> dict[str, Any]:
    return {
        "task": job.sample.task,
        "split": job.sample.split,
        "index": job.sample.index,
        "repeat": job.repeat,
        "mode": job.mode,
        "status": str(status),
        "reward": reward,
        "success": None if reward is None else float(reward >= 1.0),
        "turns": metrics.get("turns", 0.0),
        "invalid_calls": metrics.get("invalid_calls", 0.0),
        "tokens": tokens,
        "policy_version": 0,
    }

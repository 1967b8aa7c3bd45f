"""Plays the samples of a split with one policy version, or with the experts, and writes the episodes.

Invariants: one evaluation is one policy version (12); every policy is measured by the same code on
the same samples with the same seeds; a failed episode is a row without a reward (4); two
evaluations of one policy are equal (8).
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from agentrl.config import Config
from agentrl.errors import InfrastructureError
from agentrl.evaluation.rows import GREEDY, SAMPLED, Job, jobs, row, write_rows
from agentrl.hosting.client import EnvironmentClient
from agentrl.hosting.environments import Environments, open_environments
from agentrl.messages import Status
from agentrl.rollout.agent_loop import EpisodeSettings, run_episode
from agentrl.rollout.cross_policy import PolicyPool
from agentrl.rollout.embedded import open_engines
from agentrl.rollout.trajectory import Trajectory
from agentrl.tasks.base import Step, Task
from agentrl.tasks.play import play_expert

EXPERT = "expert"


async def evaluate_to_file(
    config: Config, *, policy: str, name: str, seed: int, split: str, output: Path
) -> None:
    """Write `output` (one row an episode, columns of `reporting.episodes`) and its provenance.

    Args:
        policy: folder of a policy, or "expert".
        name: the row of the table that these episodes belong to.
    """
    started = time.monotonic()
    live = 0 if policy == EXPERT else config.evaluation.concurrency
    splits = dict.fromkeys(config.tasks, split)
    async with open_environments(config, splits, live) as environments:
        tasks = environments.tasks
        if policy == EXPERT:
            rows = [
                await _expert_row(tasks[job.sample.task], job, config.pipeline.episode_attempts)
                for mode in (SAMPLED, GREEDY)
                for job in jobs(config, tasks, split, seed, mode)
            ]
        else:
            rows = await _policy_rows(config, environments, Path(policy), seed, split)
    write_rows(output, rows, config, tasks, name=name, seed=seed, started=started, policy=policy)


async def _policy_rows(
    config: Config, environments: Environments, policy: Path, seed: int, split: str
) -> list[dict[str, Any]]:
    torch.set_num_threads(config.evaluation.threads)
    slots = config.evaluation.concurrency
    rows: list[dict[str, Any]] = []
    engines = open_engines(policy, config, stale_ratio=0.0, slots=slots, lockstep=True)
    async with engines as embedded:
        for mode in (SAMPLED, GREEDY):
            temperature = config.evaluation.temperature if mode == SAMPLED else 0.0
            settings = embedded.settings(config, temperature=temperature, validation=True)
            todo = jobs(config, environments.tasks, split, seed, mode)
            episodes = [
                partial(
                    play,
                    environments.client,
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


async def play(
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
        return await play(client, pool, settings, job, session=session, attempts=attempts - 1)
    return trajectory


def _policy_row(job: Job, trajectory: Trajectory) -> dict[str, Any]:
    versions = set(trajectory.policy_version[trajectory.loss_mask].tolist())
    if versions - {0}:
        raise InfrastructureError(f"an evaluation saw policy versions {versions}, not one")
    return row(
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
        return row(job, last.status, last.reward, dict(last.metrics), 0)
    if attempts > 1:
        return await _expert_row(task, job, attempts - 1)
    return row(job, last.status, None, dict(last.metrics), 0)

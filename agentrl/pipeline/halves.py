"""One half of a run alone, for debugging: the learner on saved trajectories, or episodes without one.

`replay` trains in this process, where a debugger can follow, and meets the same numbers as the run
that recorded the trajectories: it is the same learner, seed and order (invariants 8, 9). `roll_out` plays
the episodes of a run's steps with its start policy, which stays as it is (version 0).
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from agentrl.config import Config
from agentrl.errors import StateError
from agentrl.hosting.environments import open_environments
from agentrl.pipeline.admission import Admission
from agentrl.pipeline.assembly import needed_slots, open_rollouts, start_tracking
from agentrl.pipeline.history import scalars, step_rows
from agentrl.pipeline.recorder import RunRecorder
from agentrl.pipeline.selection import chosen
from agentrl.provenance import write_provenance
from agentrl.rollout.policy import read_card
from agentrl.rollout.trajectory_io import read_trajectories
from agentrl.training.process import Factory, LocalLearner, create_learner

log = logging.getLogger(__name__)
_STEP = re.compile(r"step-(\d+)\.parquet")


def saved_steps(folder: Path) -> list[tuple[int, Path]]:
    """The files of a run's steps, in order. Raises `StateError` where there are none."""
    found = [
        (int(match[1]), path)
        for path in (sorted(folder.iterdir()) if folder.is_dir() else ())
        if (match := _STEP.fullmatch(path.name))
    ]
    if not found:
        raise StateError(
            f"{folder} holds no step-*.parquet; give the folder trajectories/ of a run's results"
        )
    return sorted(found)


async def replay(
    config: Config,
    *,
    policy: Path,
    trajectories: Path,
    run: str,
    seed: int,
    output: Path,
    factory: Factory = create_learner,
) -> None:
    """Train `policy` on saved steps, at most `training.steps` of them, in their order.

    Writes to `output`: `policy/`, `history.parquet`, `tensorboard/`, `provenance.json`.
    """
    read_card(policy)
    steps = saved_steps(trajectories)[: config.training.steps]
    learner = await LocalLearner.start(policy, config, seed, factory=factory)
    try:
        await start_tracking(learner, config, run)
        with _recorder(output, run, len(steps), keep_trajectories=False) as (recorder, rows):
            for number, path in steps:
                batch = read_trajectories(path)
                trained, left = chosen(batch, config)
                started = time.monotonic()
                report = await learner.train_step(trained)
                seconds = time.monotonic() - started
                report = {**report, **left}
                timings = {"seconds": seconds, "seconds_train": seconds}
                found = step_rows(number, batch, report, timings)
                recorder.step(number, batch, found, report)
                if config.trackers:
                    await learner.log(number, scalars(found, report))
        await learner.export_policy(output / "policy")
    finally:
        await learner.close()
    _finish(output, rows, config, run=run, seed=seed, trajectories=str(trajectories))


async def roll_out(config: Config, *, policy: Path, run: str, seed: int, output: Path) -> None:
    """Play the episodes of `training.steps` steps with `policy`, which is not trained.

    Writes to `output`: `trajectories/`, `history.parquet`, `tensorboard/`, `provenance.json`.
    """
    read_card(policy)
    torch.set_num_threads(config.rollout.threads)
    steps = config.training.steps
    splits = {name: task.train_split for name, task in config.tasks.items()}
    # No version ever comes, so every step may start with the one there is.
    admission = Admission(steps, config.rollout.concurrency, steps)
    async with open_environments(config, splits, needed_slots(config)) as environments:
        tasks, client = environments.tasks, environments.client
        opened = open_rollouts(config, policy, seed, tasks, client, admission)
        async with opened as (rollouts, _):
            with _recorder(output, run, steps, keep_trajectories=True) as (recorder, rows):
                for step in range(steps):
                    started = time.monotonic()
                    rollouts.refill()
                    await rollouts.conductor.until(partial(rollouts.buffer.ready, step))
                    batch = rollouts.buffer.take(step)
                    rollouts.learn(batch)
                    seconds = time.monotonic() - started
                    timings = {"seconds": seconds, "seconds_generate": seconds}
                    recorder.step(step, batch, step_rows(step, batch, {}, timings), {})
    _finish(output, rows, config, run=run, seed=seed)


@contextmanager
def _recorder(
    output: Path, run: str, steps: int, *, keep_trajectories: bool
) -> Iterator[tuple[RunRecorder, list[Mapping[str, Any]]]]:
    """A recorder into `output`, and the list that takes its history rows."""
    for name in ("trajectories", "tensorboard") if keep_trajectories else ("tensorboard",):
        shutil.rmtree(output / name, ignore_errors=True)  # of an earlier try
    rows: list[Mapping[str, Any]] = []
    kept = output / "trajectories" if keep_trajectories else None
    recorder = RunRecorder(rows, kept, output / "tensorboard", run=run, steps=steps, done=0)
    with recorder:
        yield recorder, rows


def _finish(output: Path, rows: list[Mapping[str, Any]], config: Config, **facts: object) -> None:
    pd.DataFrame(rows).to_parquet(output / "history.parquet", index=False)
    settings = config.model_dump(mode="json", exclude_unset=True)
    write_provenance(output / "provenance.json", settings, **facts)

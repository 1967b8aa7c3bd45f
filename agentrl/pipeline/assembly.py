"""Puts a training run together, starts or resumes it, and turns its end into results.

The contract of a resumable stage (Snakemake deletes the outputs of a failed job, so state lives
elsewhere): the state folder is locked and carries a fingerprint of settings, seed, code and start
policy; it is kept when the run is stopped or killed, and deleted after the results are in place, so
that a forced rerun trains afresh (invariant 13).
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import signal
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from agentrl.config import Config
from agentrl.errors import StateError
from agentrl.hosting.client import EnvironmentClient
from agentrl.hosting.environments import Environments, open_environments
from agentrl.pipeline.admission import Admission
from agentrl.pipeline.buffer import GroupBuffer
from agentrl.pipeline.pools import PooledStream
from agentrl.pipeline.recorder import RunRecorder
from agentrl.pipeline.rollouts import Rollouts
from agentrl.pipeline.run import TrainingRun
from agentrl.pipeline.stream import GroupStream
from agentrl.provenance import code_digest, write_provenance
from agentrl.rollout.cross_policy import PolicyPool
from agentrl.rollout.embedded import open_engines
from agentrl.rollout.policy import read_card
from agentrl.rollout.trajectory import Trajectory
from agentrl.rollout.trajectory_io import read_trajectories, write_trajectories
from agentrl.tasks.base import Sample, Task
from agentrl.training.files import sha256, sync_tree
from agentrl.training.process import AsyncLearner, LearnerProcess
from agentrl.training.snapshot import Snapshot, StateFolder, settings_fingerprint

log = logging.getLogger(__name__)


async def train(
    config: Config, *, policy: Path, run: str, seed: int, state_dir: Path, output: Path
) -> bool:
    """Train `policy` on `config.tasks`; False when it was asked to stop and has saved its state.

    Writes to `output`: `policy/`, `history.parquet`, `trajectories/`, `provenance.json`.
    """
    read_card(policy)  # a missing policy is one line, before anything is started
    facts = {
        # A run may go on with environments elsewhere, or be watched by others: no number changes.
        "settings": config.model_dump(mode="json", exclude={"hosting", "trackers"}),
        "run": run,
        "seed": seed,
        "code": code_digest("train", config.task_modules),
        "policy": sha256(policy / "model.safetensors"),
    }
    torch.set_num_threads(config.rollout.threads)
    keep = config.training.keep_snapshots
    with StateFolder(state_dir, settings_fingerprint(facts), keep, log.info) as state:
        splits = {name: task.train_split for name, task in config.tasks.items()}
        async with open_environments(config, splits, needed_slots(config)) as environments:
            learner = await LearnerProcess.start(policy, config, seed)
            try:
                await start_tracking(learner, config, run)
                finished = await _run(config, policy, run, seed, state, environments, learner)
                if not finished:
                    log.info("%s: stopped; the state is in %s", run, state_dir)
                    return False
                await learner.export_policy(output / "policy")
            finally:
                await learner.close()
        try:
            _write_results(state, output, config, run=run, seed=seed)
        except OSError as error:  # shutil's own has no errno
            raise StateError(
                f"cannot write the results to {output}: {error}; the state in {state_dir} is intact"
            ) from error
        state.remove()
        return True


async def _run(
    config: Config,
    policy: Path,
    run: str,
    seed: int,
    state: StateFolder,
    environments: Environments,
    learner: AsyncLearner,
) -> bool:
    training = config.training
    admission = Admission(allowed_staleness(config), config.rollout.concurrency, training.steps)
    tasks, client = environments.tasks, environments.client
    opened = open_rollouts(config, policy, seed, tasks, client, admission)
    async with opened as (rollouts, pool):
        snapshots = RunSnapshots(state, learner, pool)
        step = await snapshots.resume(rollouts) if state.resumed else 0
        recorder = RunRecorder(
            state,
            state.path / "trajectories",
            state.path / "tensorboard",
            run=run,
            steps=training.steps,
            done=step,
        )
        training_run = TrainingRun(
            config, learner=snapshots, rollouts=rollouts, snapshots=snapshots, recorder=recorder
        )
        training_run.step = step
        with recorder, _signals(training_run):
            return await training_run.run()


def needed_slots(config: Config) -> int:
    """Episodes of a task for which there must be room at once; see `open_environments`."""
    return config.rollout.concurrency if config.pipeline.schedule == "deterministic" else 0


def allowed_staleness(config: Config) -> int:
    """How many versions a group may be behind when it starts."""
    return {"sync": 0, "one-step-off": 1}.get(config.pipeline.mode, config.pipeline.max_staleness)


def create_stream(
    config: Config, samples: Mapping[str, Sequence[Sample]], seed: int
) -> GroupStream:
    """The groups that the settings ask for, of `samples` by task."""
    training = config.training
    counts = {task: training.played_groups_of(task) for task in samples}
    if training.pools:
        return PooledStream(samples, counts, seed, training.pools)
    return GroupStream(samples, counts, seed)


@asynccontextmanager
async def open_rollouts(
    config: Config,
    policy: Path,
    seed: int,
    tasks: Mapping[str, Task],
    client: EnvironmentClient,
    admission: Admission,
) -> AsyncIterator[tuple[Rollouts, PolicyPool]]:
    """The generating half of a run with its engines, which are closed on exit.

    Args:
        tasks: say which samples there are.
        client: plays their episodes.
    """
    training, pipeline, rollout = config.training, config.pipeline, config.rollout
    samples = {name: task.samples(config.tasks[name].train_split) for name, task in tasks.items()}
    stream = create_stream(config, samples, seed)
    engines = open_engines(
        policy,
        config,
        stale_ratio=rollout.cross_policy.stale_ratio,
        slots=rollout.concurrency,
        lockstep=pipeline.schedule == "deterministic",
    )
    async with engines as embedded:
        rollouts = Rollouts(
            stream=stream,
            buffer=GroupBuffer(stream.groups_per_step, training.group_size),
            admission=admission,
            conductor=embedded.conductor,
            client=client,
            pool=embedded.pool,
            settings=embedded.settings(config, temperature=rollout.temperature, validation=False),
            attempts=pipeline.episode_attempts,
            partial=pipeline.partial_rollouts,
        )
        yield rollouts, embedded.pool


async def start_tracking(learner: AsyncLearner, config: Config, run: str) -> None:
    """Open the trackers that the settings name, in the learner's process."""
    if config.trackers:
        await learner.start_tracking(config.trackers, run, config.model_dump(mode="json"))


class RunSnapshots:
    """Publishes weights into the state folder, and saves and restores the whole run there."""

    def __init__(self, state: StateFolder, learner: AsyncLearner, pool: PolicyPool) -> None:
        self._state, self._learner, self._pool = state, learner, pool
        self._weights = state.path / "weights"
        self._files: dict[int, Path] = {}

    async def train_step(self, trajectories: Any) -> Mapping[str, float]:
        return await self._learner.train_step(trajectories)

    async def publish(self, version: int) -> Path:
        reference = await self._learner.publish(self._weights, version)
        self._files[version] = reference.path
        return reference.path

    async def log(self, step: int, values: Mapping[str, float]) -> None:
        await self._learner.log(step, values)

    def prune_weights(self, versions: set[int]) -> None:
        for version in set(self._files) - versions:
            self._files.pop(version).unlink(missing_ok=True)

    async def save(
        self, step: int, rollouts: Mapping[str, Any], buffered: Iterable[Trajectory]
    ) -> None:
        with self._state.snapshot(step) as folder:
            await self._learner.save(folder)
            versions = {role: engine.version for role, engine in self._pool.engines.items()}
            for version in set(versions.values()) - {0}:
                shutil.copyfile(self._files[version], folder / f"{version}.safetensors")
            record = {"rollouts": rollouts, "versions": versions}
            (folder / "pipeline.json").write_text(json.dumps(record), encoding="utf-8")
            write_trajectories(folder / "buffer.parquet", list(buffered))

    async def resume(self, rollouts: Rollouts) -> int:
        """Become what the snapshot saw; returns the number of steps done."""
        snapshot = self._state.resumed
        assert snapshot is not None
        await self._learner.load(snapshot.path)
        record = _read_json(snapshot)
        shutil.rmtree(self._weights, ignore_errors=True)  # of the process that was killed
        self._weights.mkdir()
        for role, version in record["versions"].items():
            if version:
                # Out of the snapshot, which may be pruned while the version is still needed.
                path = self._weights / f"resumed-{version:06d}.safetensors"
                shutil.copyfile(snapshot.path / f"{version}.safetensors", path)
                self._files[version] = path
                await self._pool.load(role, version, path)
        buffered = read_trajectories(snapshot.path / "buffer.parquet")
        rollouts.restore(record["rollouts"], buffered, snapshot.step)
        log.info("resume from step %d", snapshot.step)
        return snapshot.step


def _read_json(snapshot: Snapshot) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((snapshot.path / "pipeline.json").read_text("utf-8"))
    return data


@contextmanager
def _signals(run: TrainingRun) -> Iterator[None]:
    """SIGTERM and Ctrl-C ask the run to stop after its step; a second Ctrl-C breaks it off."""
    loop = asyncio.get_running_loop()

    def stop(name: str) -> None:
        log.info("%s: finishing the step, then saving", name)
        run.stop()
        loop.remove_signal_handler(signal.SIGINT)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _write_results(
    state: StateFolder, output: Path, config: Config, *, run: str, seed: int
) -> None:
    """Results first, and on the disk, the end of the state afterwards: a kill in between repeats the
    writing."""
    output.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(state.records()).to_parquet(output / "history.parquet", index=False)
    for name in ("trajectories", "tensorboard"):
        shutil.rmtree(output / name, ignore_errors=True)
        shutil.copytree(state.path / name, output / name)
    settings = config.model_dump(mode="json", exclude_unset=True)
    write_provenance(output / "provenance.json", settings, run=run, seed=seed)
    sync_tree(output)

"""Behaviour cloning on expert episodes: a tiny policy learns the tasks' language before RL.

Invariants: episodes derive from (seed, stage, task, counter), training split only (8); budgets are
optimiser steps, never seconds (mini.md §4.3); a run that was cut off goes on from its last snapshot
and ends with the same weights as an unbroken one (9); loss is a mean over the whole step's tokens
of each task, then over tasks, so that no task drowns another (7).

As measured (mini.md §2), every step mixes the tasks, and environment tokens count a little.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agentrl.config.cloning import WarmStartConfig
from agentrl.config.models import Config
from agentrl.errors import ConfigError
from agentrl.provenance import write_provenance
from agentrl.randomness import derive
from agentrl.rollout.policy import load_policy, save_policy
from agentrl.rollout.rendering import render
from agentrl.tasks.base import Task
from agentrl.tasks.play import Played, play_expert
from agentrl.tasks.registry import create_task
from agentrl.training.batch import Row
from agentrl.training.cloning import Cloner
from agentrl.training.files import sha256, sync_tree
from agentrl.training.schedule import schedule
from agentrl.training.snapshot import StateFolder, settings_fingerprint

log = logging.getLogger(__name__)

LOG_EVERY = 50

Reporter = Callable[[Mapping[str, Any]], None]
"""Takes one record a step: `step`, `stage`, losses, rates, seconds."""


@dataclass(frozen=True, slots=True)
class WarmStartReport:
    """How a warm start went. `finished` is False when it was asked to stop and saved instead."""

    finished: bool
    steps: int
    loss: float | None
    """of the last step"""
    expert_share: float
    """Seconds spent on playing and rendering experts / all seconds of this process's steps."""


async def collect_expert_episodes(
    tasks: Mapping[str, Task],
    splits: Mapping[str, str],
    counts: Mapping[str, int],
    noise: Mapping[str, float],
    seed: int,
    stage: int,
    step: int,
    demonstrations: int | None = None,
) -> list[Played]:
    """Expert episodes for one step: `counts[task]` of each task, in a fixed order.

    Episode `step * counts[task] + i` of a stage draws its sample from the split and its own seed by
    (seed, stage, task, counter). With `demonstrations`, it draws one of that many episodes instead:
    those of the split's first samples, each played once and for all.
    """
    episodes = []
    for name, count in counts.items():
        samples = tasks[name].samples(splits[name])
        for counter in range(step * count, (step + 1) * count):
            drawn = derive(seed, "warm start sample", stage, name, counter)
            episode_seed = derive(seed, "warm start episode", stage, name, counter)
            if demonstrations is not None:
                drawn %= demonstrations
                episode_seed = derive(seed, "demonstration", name, drawn)
            sample = samples[drawn % len(samples)]
            episodes.append(
                await play_expert(tasks[name], sample, episode_seed, noise.get(name, 0.0))
            )
    return episodes


def episode_row(
    played: Played, renderer: Any, task: Task, task_id: int, observation_weight: float
) -> Row:
    """An expert episode as tokens: weight 1 on what the policy would have sampled, stop token
    included, `observation_weight` on the rest. The reply after the last action is left out: no
    policy ever reads it."""
    messages = [*played.opening, *played.messages]
    while messages and messages[-1].role != "assistant":
        messages.pop()
    rendered = render(renderer, messages, task.tools)
    weights = np.where(np.asarray(rendered.sampled_mask, bool), 1.0, observation_weight)
    weights[0] = 0.0  # nothing predicts the first token
    return Row(np.asarray(rendered.token_ids, np.int32), weights.astype(np.float32), task_id)


async def run_warm_start(
    config: Config,
    policy_path: Path,
    out_path: Path,
    seed: int,
    state_dir: Path,
    reporter: Reporter | None = None,
    *,
    threads: int | None = None,
    code: str = "",
    stop: asyncio.Event | None = None,
) -> WarmStartReport:
    """Clone the experts of all tasks into the policy at `policy_path`; write it to `out_path`.

    Args:
        reporter: called once a step with the record that also goes to the history.
        threads: of torch; `training.threads` unless given. Part of the fingerprint, because sums
            are cut by it.
        code: digest of the sources that decide the result, for the fingerprint.
        stop: when set, the step in progress is ended, saved, and the report says unfinished. SIGTERM
            and SIGINT set it where none is given; the caller then exits with status 143.

    Snapshots are taken every `training.snapshot_every` steps. On success `out_path` holds the policy,
    `warm_start.jsonl` and `provenance.json`, and `state_dir` is deleted.

    Raises `ConfigError` for settings that cannot work, `StateError` for state that cannot be used.
    """
    settings = _checked(config)
    threads = threads or config.training.threads
    fingerprint = settings_fingerprint(
        {
            "tasks": {name: task.model_dump() for name, task in config.tasks.items()},
            "warm_start": settings.model_dump(),
            "autocast": config.training.autocast,
            "policy": sha256(policy_path / "model.safetensors"),
            "seed": seed,
            "threads": threads,
            "code": code,
        }
    )
    torch.set_num_threads(threads)
    tasks = {
        name: create_task(name, config.tasks[name], config.data_root)
        for name in settings.episodes_per_step
    }
    try:
        keep = config.training.keep_snapshots
        with StateFolder(state_dir, fingerprint, keep, log.info) as state, _signals(stop) as stop:
            run = _WarmStart(config, policy_path, tasks, seed, state)
            report = await run.train(reporter or _log_step, stop)
            if report.finished:
                run.export(out_path)
                state.remove()
        return report
    finally:
        for task in tasks.values():
            await task.close()


class _WarmStart:
    def __init__(
        self,
        config: Config,
        policy_path: Path,
        tasks: Mapping[str, Task],
        seed: int,
        state: StateFolder,
    ) -> None:
        self.config, self.settings = config, config.warm_start
        self.tasks, self.seed, self.state = tasks, seed, state
        tools = [tool for task in tasks.values() for tool in task.tools]
        self.policy = load_policy(policy_path, tools)
        self.cloner = Cloner(self.policy.model, config)
        self.stage = self.step = 0
        if state.resumed is not None:
            self.stage, self.step = self.cloner.load(state.resumed.path, self.settings.stages)
        else:
            self.cloner.begin_stage(self.settings.stages[0])
        self.seconds = {"expert": 0.0, "train": 0.0}

    async def train(self, reporter: Reporter, stop: asyncio.Event) -> WarmStartReport:
        loss = None
        done = self.state.resumed.step if self.state.resumed else 0
        while self._advance():
            record = await self._one_step()
            loss = record["loss"]
            done += 1
            self.step += 1
            self.state.append(record)
            reporter(record)
            stopping = stop.is_set()
            if stopping or done % self.config.training.snapshot_every == 0:
                with self.state.snapshot(done) as folder:
                    self.cloner.save(folder, self.stage, self.step)
            if stopping:
                return self._report(False, done, loss)
        return self._report(True, done, loss)

    def export(self, out: Path) -> None:
        """Write the policy folder, with the history beside the weights."""
        card, steps = self.policy.card, sum(stage.steps for stage in self.settings.stages)
        provenance = {**card.provenance, "warm_start_steps": steps, "warm_start_seed": self.seed}
        save_policy(
            out, self.cloner.model, self.policy.tokenizer, replace(card, provenance=provenance)
        )
        if self.state.history.exists():  # not where every stage has 0 steps
            shutil.copyfile(self.state.history, out / "warm_start.jsonl")
        write_provenance(
            out / "provenance.json",
            self.config.model_dump(mode="json", exclude_unset=True),
            seed=self.seed,
        )
        sync_tree(out)  # the state is deleted after this

    def _advance(self) -> bool:
        """Whether there is a step to do; enters the next stage where one has ended."""
        stages = self.settings.stages
        while self.step >= stages[self.stage].steps:
            if self.stage + 1 == len(stages):
                return False
            self.stage, self.step = self.stage + 1, 0
            self.cloner.begin_stage(stages[self.stage])
        return True

    async def _one_step(self) -> dict[str, Any]:
        settings = self.settings
        stage = settings.stages[self.stage]
        names = list(settings.episodes_per_step)
        started = time.perf_counter()
        played = await collect_expert_episodes(
            self.tasks,
            {name: self.config.tasks[name].train_split for name in names},
            settings.episodes_per_step,
            stage.noise,
            self.seed,
            self.stage,
            self.step,
            settings.demonstrations,
        )
        rows = [
            episode_row(
                episode,
                self.policy.renderer,
                self.tasks[episode.sample.task],
                names.index(episode.sample.task),
                settings.observation_weight,
            )
            for episode in played
        ]
        budget = settings.max_tokens_per_microbatch
        fitting = [row for row in rows if 0 < row.inputs <= budget]
        if not fitting:
            raise ConfigError(
                f"config key 'warm_start.max_tokens_per_microbatch': {budget} is less than every "
                "expert episode of a step; raise it"
            )
        rendered = time.perf_counter()
        factor = schedule(
            self.step,
            steps=stage.steps,
            warmup_steps=stage.warmup_steps,
            decay_fraction=stage.decay_fraction,
        )
        # In a thread, so that a signal is heard while the step runs.
        losses = await asyncio.to_thread(self.cloner.learn, fitting, len(names), factor)
        trained = time.perf_counter()
        self.seconds["expert"] += rendered - started
        self.seconds["train"] += trained - rendered
        record: dict[str, Any] = {
            "stage": self.stage,
            "step": self.step,
            "loss": sum(losses) / len(losses),
            "learning_rate": stage.learning_rate * factor,
            "tokens": sum(row.inputs for row in fitting),
            "too_long": len(rows) - len(fitting),
            "seconds_expert": rendered - started,
            "seconds_train": trained - rendered,
        }
        for name, value in zip(names, losses, strict=True):
            own = [e.last.reward for e in played if e.sample.task == name]
            record |= {f"loss/{name}": value, f"expert_reward/{name}": sum(own) / len(own)}
        return record

    def _report(self, finished: bool, steps: int, loss: float | None) -> WarmStartReport:
        total = sum(self.seconds.values())
        return WarmStartReport(
            finished, steps, loss, self.seconds["expert"] / total if total else 0.0
        )


@contextmanager
def _signals(stop: asyncio.Event | None) -> Iterator[asyncio.Event]:
    """The caller's event, or one that SIGTERM and Ctrl-C set."""
    if stop is not None:
        yield stop
        return
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _log_step(record: Mapping[str, Any]) -> None:
    if record["step"] % LOG_EVERY == 0:
        log.info("stage %d step %d: loss %.3f", record["stage"], record["step"], record["loss"])


def _checked(config: Config) -> WarmStartConfig:
    settings = config.warm_start
    if not settings.stages:
        raise ConfigError("config key 'warm_start.stages': empty; give at least one stage")
    if not settings.episodes_per_step:
        raise ConfigError(
            "config key 'warm_start.episodes_per_step': empty; give a number of episodes a task"
        )
    named: Iterable[str] = [
        *settings.episodes_per_step,
        *(name for stage in settings.stages for name in stage.noise),
    ]
    for name in named:
        if name not in config.tasks:
            raise ConfigError(
                f"config key 'warm_start': task {name!r} is not in tasks ({', '.join(config.tasks)})"
            )
    return settings

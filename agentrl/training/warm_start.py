"""Behaviour cloning on expert episodes: a tiny policy learns the tasks' language before RL.

Invariants: episodes derive from (seed, stage, task, counter), training split only (8); budgets are
optimiser steps, never seconds (mini.md §4.3); a run that was cut off goes on from its last snapshot
and ends with the same weights as an unbroken one (9); loss is a mean over the whole step's tokens
of each task, then over tasks, so that no task drowns another (7).

The recipe is measured (mini.md §2): Muon on the hidden matrices and AdamW on embeddings and norms,
every step mixes the tasks, environment tokens count a little.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim import AdamW, Muon, Optimizer

from agentrl.config.models import Config, WarmStartConfig, WarmStartStage
from agentrl.errors import ConfigError, StateError
from agentrl.randomness import derive
from agentrl.rollout.policy import load_policy, save_policy
from agentrl.rollout.rendering import render
from agentrl.tasks.base import Task
from agentrl.tasks.play import Played, play_expert
from agentrl.tasks.registry import create_task
from agentrl.training.batch import Row, micro_batches
from agentrl.training.files import replace_file, sha256
from agentrl.training.scorer import TokenScorer
from agentrl.training.snapshot import StateFolder, settings_fingerprint
from agentrl.training.weights import load_state, save_state

log = logging.getLogger(__name__)

SNAPSHOT_EVERY = 50
MUON_MOMENTUM = 0.95
ADAM_BETAS = (0.9, 0.95)

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
) -> list[Played]:
    """Fresh expert episodes for one step: `counts[task]` of each task, in a fixed order.

    Episode `step * counts[task] + i` of a stage draws its sample from the split and its own seed by
    (seed, stage, task, counter).
    """
    episodes = []
    for name, count in counts.items():
        samples = tasks[name].samples(splits[name])
        for counter in range(step * count, (step + 1) * count):
            drawn = derive(seed, "warm start sample", stage, name, counter)
            episode_seed = derive(seed, "warm start episode", stage, name, counter)
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


def schedule(step: int, stage: WarmStartStage) -> float:
    """Factor on the learning rate at `step` of a stage: linear warm-up, flat, linear to 0."""
    rise = min(1.0, (step + 1) / stage.warmup_steps) if stage.warmup_steps else 1.0
    falling = stage.steps * stage.decay_fraction
    fall = min(1.0, (stage.steps - step) / falling) if falling else 1.0
    return rise * fall


class Cloner:
    """The policy in behaviour cloning: one optimiser step at a time."""

    def __init__(self, model: Any, config: Config) -> None:
        self.settings = config.warm_start
        self.autocast = config.training.autocast == "bf16"
        self.model = model.float()
        self.scorer = TokenScorer(self.model)
        self.optimizers: list[Optimizer] = []
        self._base_rates: list[float] = []

    def begin_stage(self, stage: WarmStartStage) -> None:
        """Fresh optimizers: a stage has a warm-up of its own."""
        settings = self.settings
        embeddings = {
            id(layer.weight)
            for layer in (self.model.get_input_embeddings(), self.model.get_output_embeddings())
        }
        parameters = list(self.model.parameters())
        matrices = [p for p in parameters if p.ndim == 2 and id(p) not in embeddings]
        others = [p for p in parameters if p.ndim != 2 or id(p) in embeddings]
        hidden: Optimizer
        if settings.optimizer == "muon":
            hidden = Muon(
                matrices,
                lr=stage.learning_rate,
                weight_decay=settings.weight_decay,
                momentum=MUON_MOMENTUM,
            )
        else:
            hidden = AdamW(
                matrices,
                lr=stage.learning_rate,
                weight_decay=settings.weight_decay,
                betas=ADAM_BETAS,
            )
        rate = settings.embedding_learning_rate
        self.optimizers = [
            hidden,
            AdamW(others, lr=rate, weight_decay=0.0, betas=ADAM_BETAS),
        ]
        self._base_rates = [stage.learning_rate, rate]

    def learn(self, rows: Sequence[Row], tasks: int, factor: float) -> list[float]:
        """One optimiser step; returns the loss of each task (weighted mean over its tokens)."""
        totals = np.zeros(tasks)
        for row in rows:
            totals[row.task] += row.weights.sum(dtype=np.float64)
        present = int((totals > 0).sum())
        share = torch.from_numpy(1.0 / np.maximum(totals, 1e-9)).float()
        losses = torch.zeros(tasks)
        for micro in micro_batches(rows, self.settings.max_tokens_per_microbatch):
            with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
                scores, _ = self.scorer(micro.input_ids, micro.select, micro.targets)
            per_token = -scores[: micro.count] * micro.weights * share[micro.task_ids]
            (per_token.sum() / present).backward()
            losses.index_add_(0, micro.task_ids, per_token.detach())
        for optimizer, base in zip(self.optimizers, self._base_rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = base * factor
            optimizer.step()
            optimizer.zero_grad()
        out: list[float] = losses.tolist()
        return out

    def save(self, folder: Path, stage: int, step: int) -> None:
        save_state(folder / "cloner.safetensors", self.model, self.optimizers)
        text = json.dumps({"stage": stage, "step": step})
        replace_file(folder / "cloner.json", lambda aside: _write(aside, text))

    def load(self, folder: Path, stages: Sequence[WarmStartStage]) -> tuple[int, int]:
        """Stage and step to go on with. Raises `StateError`."""
        try:
            record = json.loads((folder / "cloner.json").read_text(encoding="utf-8"))
            stage, step = int(record["stage"]), int(record["step"])
            self.begin_stage(stages[stage])
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise StateError(f"cannot read {folder / 'cloner.json'}: {error!r}") from error
        load_state(folder / "cloner.safetensors", self.model, self.optimizers)
        return stage, step


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

    On success `out_path` holds the policy and `warm_start.jsonl`, and `state_dir` is deleted.
    Raises `ConfigError` for settings that cannot work, `StateError` for state that cannot be used.
    """
    settings = _checked(config)
    threads = threads or config.training.threads
    fingerprint = settings_fingerprint(
        {
            "tasks": {name: task.model_dump() for name, task in config.tasks.items()},
            "warm_start": settings.model_dump(),
            "autocast": config.training.autocast,
            "policy": _folder_digest(policy_path),
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
            if stopping or done % SNAPSHOT_EVERY == 0:
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
        factor = schedule(self.step, stage)
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
    if record["step"] % SNAPSHOT_EVERY == 0:
        log.info("stage %d step %d: loss %.3f", record["stage"], record["step"], record["loss"])


def _folder_digest(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    listing = {str(path.relative_to(folder)): sha256(path) for path in files}
    return settings_fingerprint(listing)


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


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")

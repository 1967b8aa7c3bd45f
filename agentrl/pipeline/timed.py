"""Throughput of the real pipeline against sleeps, on a virtual clock (paper, Fig. 4).

Loop, buffer, admission, dispatch and agent loop are those of a training; an engine, an environment and a
learner that last as long as real ones stand at its outer edges. The clock jumps from one event to the next,
so a result depends on durations alone, not on this machine. It shows what the order of events costs or
saves; computing of the loop itself is free, and engine and learner share no processor.

Invariant: lengths and durations are drawn by (seed, episode, turn), so every mode plays the same episodes (8).
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import Any, Literal

import looptime
import numpy as np
from safetensors.numpy import save_file

from agentrl.config import Config, resolve
from agentrl.hosting.client import Opening
from agentrl.messages import Message, Status, ToolSpec
from agentrl.pipeline.admission import Admission
from agentrl.pipeline.assembly import allowed_staleness, create_stream
from agentrl.pipeline.buffer import GroupBuffer
from agentrl.pipeline.history import WHOLE_STEP
from agentrl.pipeline.rollouts import Rollouts
from agentrl.pipeline.run import TrainingRun
from agentrl.randomness import stream
from agentrl.rollout.agent_loop import EpisodeSettings
from agentrl.rollout.conductor import Conductor
from agentrl.rollout.cross_policy import CURRENT, PolicyPool
from agentrl.rollout.engine import Completion, Sampling
from agentrl.rollout.rendering import create_renderer, render
from agentrl.rollout.tokenizer import train_tokenizer
from agentrl.rollout.trajectory import Trajectory
from agentrl.rollout.weights import file_digest
from agentrl.tasks.base import Sample, SampleRange, Step, call_message

Mode = Literal["sync", "one-step-off", "async"]
MODES: tuple[Mode, ...] = ("sync", "one-step-off", "async")
WORK = ToolSpec(
    "work",
    "Do some work.",
    {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]},
)


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds; the defaults are near those of scale `mini`, a core each for engine and learner."""

    decode_step: float = 0.002
    """Of one decode step, whatever its batch,"""
    decode_row: float = 0.00025
    """and for every episode in it."""
    train_token: float = 1 / 6000
    """Of the learner, for every token of a trajectory, the environment's included."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is played. Turns and words are log-normal with these means; so is every wait."""

    mode: Mode
    latency: float
    """Mean seconds that the environment takes to start, and to answer a turn."""
    concurrency: int
    steps: int = 10
    """That are measured, behind `WARM_UP`."""
    groups: int = 4
    size: int = 4
    turns: float = 4.0
    words: float = 20.0
    """Tokens of a turn, nearly."""
    sigma: float = 0.6
    """Of the logarithm of all of these."""
    max_staleness: int = 2
    durations: Durations = Durations()


WARM_UP = 4
"""Steps before the first that is measured: queues are empty at the start."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Of the measured steps, in virtual seconds."""

    tokens: int
    """Sampled ones, of trained trajectories."""
    seconds: float
    learner_idle: float
    """Share of the time."""
    staleness_max: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


def measure(load: Load, seed: int = 0) -> Measured:
    """Play `load` on a clock of its own. Not to be called from a running event loop."""
    with tempfile.TemporaryDirectory() as folder, closing(looptime.new_event_loop(start=0)) as loop:
        run = _TimedRun(load, seed, Path(folder))
        loop.run_until_complete(run.run())
    trained = run.trained[WARM_UP - 1 : WARM_UP + load.steps]
    began, ended = trained[0].ended, trained[-1].ended
    busy = sum(step.ended - step.started for step in trained[1:])
    stalest = [row["staleness_max"] for row in run.rows if row["task"] == WHOLE_STEP]
    return Measured(
        sum(step.tokens for step in trained[1:]),
        ended - began,
        1 - busy / (ended - began),
        max(stalest[WARM_UP : WARM_UP + load.steps]),
    )


@dataclass(frozen=True, slots=True)
class _Trained:
    started: float
    ended: float
    tokens: int


class _TimedRun:
    """One run, and what its loop wants of a learner, of snapshots and of a recorder."""

    def __init__(self, load: Load, seed: int, folder: Path) -> None:
        self.load, self.folder = load, folder
        self.trained: list[_Trained] = []
        self.rows: list[Mapping[str, Any]] = []
        texts = ["Do some work. w w w w 0 1 2 3 4 5 6 7 8 9"] * 2
        renderer = create_renderer("compact", train_tokenizer(texts, [WORK], 400), [WORK])
        # The run ends with room to spare: near its end there are too few episodes to keep it busy.
        steps = WARM_UP + load.steps + load.max_staleness + 1
        config = _config(load, steps)
        groups = create_stream(config, {"timed": SampleRange("timed", "train", 100_000)}, seed)

        def drawn(what: str, session: int, turn: int, mean: float) -> float:
            """Log-normal with this mean."""
            draw = stream(seed, what, session, turn).gauss(0, load.sigma)
            return mean * exp(draw - load.sigma**2 / 2)

        self.rollouts = Rollouts(
            stream=groups,
            buffer=GroupBuffer(groups.groups_per_step, load.size),
            admission=Admission(allowed_staleness(config), load.concurrency, steps),
            conductor=Conductor([], lockstep=False),
            client=TimedEnvironment(load, drawn),
            pool=PolicyPool({CURRENT: TimedEngine(load, drawn, renderer)}),
            settings=EpisodeSettings(renderer, max_new_tokens=1000, max_total_tokens=100_000),
            attempts=1,
        )
        self._run = TrainingRun(
            config, learner=self, rollouts=self.rollouts, snapshots=self, recorder=self
        )

    async def run(self) -> None:
        try:
            await self._run.run()
        finally:
            await self.rollouts.conductor.close()

    async def train_step(self, trajectories: Sequence[Trajectory]) -> Mapping[str, float]:
        clock = asyncio.get_running_loop().time
        started = clock()
        tokens = sum(len(t.token_ids) for t in trajectories)
        await asyncio.sleep(tokens * self.load.durations.train_token)
        self.trained.append(_Trained(started, clock(), sum(t.sampled for t in trajectories)))
        return {}

    async def publish(self, version: int) -> Path:
        path = self.folder / "weights.safetensors"
        save_file({"version": np.array([version])}, path)
        return path

    async def log(self, step: int, values: Mapping[str, float]) -> None:
        return None

    async def save(
        self, step: int, rollouts: Mapping[str, Any], buffered: Iterable[Trajectory]
    ) -> None:
        return None

    def prune_weights(self, versions: set[int]) -> None:
        return None

    def step(
        self,
        step: int,
        trajectories: Sequence[Trajectory],
        rows: Sequence[Mapping[str, Any]],
        report: Mapping[str, float],
    ) -> None:
        self.rows += rows


Drawn = Callable[[str, int, int, float], float]


class TimedEnvironment:
    """Sessions that answer after a while and end after some turns; everybody wins."""

    def __init__(self, load: Load, drawn: Drawn) -> None:
        self._load, self._drawn = load, drawn
        self._turns: dict[int, int] = {}
        self._sessions = 0

    async def start(self, sample: Sample, seed: int) -> Opening:
        self._sessions += 1
        session = self._sessions
        await asyncio.sleep(self._drawn("start", session, 0, self._load.latency))
        self._turns[session] = 0
        return Opening(session, (Message("user", "Do some work."),), (WORK,))

    async def interact(self, session: int, message: Message) -> Step:
        turn = self._turns[session] = self._turns[session] + 1
        await asyncio.sleep(self._drawn("answer", session, turn, self._load.latency))
        if turn < round(self._drawn("turns", session, 0, self._load.turns)):
            return Step((Message("tool", "0 1 2 3 4", tool_call_id="call_0"),))
        metrics = {"turns": float(turn), "success": 1.0}
        return Step((), reward=1.0, done=True, status=Status.COMPLETED, metrics=metrics)

    async def cancel(self, session: int) -> None:
        self._turns.pop(session, None)


class TimedEngine:
    """Writes calls of some words; a token takes as long as a decode step of the present batch."""

    version = 0
    digest = ""

    def __init__(self, load: Load, drawn: Drawn, renderer: Any) -> None:
        self._load, self._drawn, self._renderer = load, drawn, renderer
        self._turns: dict[int, int] = {}
        self._ids: dict[int, list[int]] = {}
        self._decoding = 0

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        *,
        session: int,
        partial: Completion | None = None,
    ) -> Completion:
        turn = self._turns[session] = self._turns.get(session, 0) + 1
        ids = self._call(max(1, round(self._drawn("words", session, turn, self._load.words))))
        lasts = self._load.durations
        self._decoding += 1
        try:
            step = lasts.decode_step + lasts.decode_row * self._decoding
            await asyncio.sleep(len(ids) * step)
        finally:
            self._decoding -= 1
        return Completion(ids, [0.0] * len(ids), [self.version] * len(ids), "stop")

    def _call(self, words: int) -> list[int]:
        if words not in self._ids:
            rendered = render(
                self._renderer, [call_message("work", {"words": " ".join("w" * words)})]
            )
            pairs = zip(rendered.token_ids, rendered.sampled_mask, strict=True)
            self._ids[words] = [token for token, sampled in pairs if sampled]
        return self._ids[words]

    async def load_weights(self, version: int, path: Path) -> None:
        self.version, self.digest = version, file_digest(path)

    def drop_caches(self) -> None:
        return None

    def partial(self, session: int) -> Completion | None:
        return None

    def release(self, session: int) -> None:
        self._turns.pop(session, None)

    async def close(self) -> None:
        return None


def _config(load: Load, steps: int) -> Config:
    return resolve(
        {
            "tasks": {"timed": {"factory": "agentrl.pipeline.timed:none"}},
            "training": {
                "start": "base",
                "steps": steps,
                "snapshot_every": steps + 1,
                "groups_per_task": load.groups,
                "group_size": load.size,
            },
            "pipeline": {
                "schedule": "eager",
                "mode": load.mode,
                "max_staleness": load.max_staleness,
            },
        }
    )

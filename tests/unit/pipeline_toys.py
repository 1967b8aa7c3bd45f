"""A training run on fakes, for tests on a virtual clock: tasks, words and durations are the test's."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file

from agentrl.config import resolve
from agentrl.pipeline.admission import Admission
from agentrl.pipeline.assembly import allowed_staleness, create_stream
from agentrl.pipeline.buffer import GroupBuffer
from agentrl.pipeline.rollouts import Rollouts
from agentrl.pipeline.run import TrainingRun
from agentrl.rollout.agent_loop import EpisodeSettings
from agentrl.rollout.conductor import Conductor
from agentrl.rollout.cross_policy import PolicyPool
from agentrl.rollout.rendering import create_renderer, render
from agentrl.rollout.tokenizer import train_tokenizer
from agentrl.tasks.base import SampleRange, call_message
from tests.fakes import SAY, EchoTask, FakeClient, FakeEngine


def echo_renderer():
    texts = ["Say 7 You said stop a"] * 3
    return create_renderer("compact", train_tokenizer(texts, [SAY], 400), [SAY])


def completion(renderer, text):
    """Ids of an assistant message that says `text`, stop token included."""
    rendered = render(renderer, [call_message("say", {"text": text})])
    pairs = zip(rendered.token_ids, rendered.sampled_mask, strict=True)
    return [token for token, sampled in pairs if sampled]


@dataclass
class ToyRun:
    """`run` it; then look at what was trained, and in which order.

    Args:
        tasks: names, with the number of samples of each; all of them are `EchoTask`s.
        seconds: of one completion, by (task, group, member); 0 for a run on the real clock.
        text: what a policy says at a turn, by (group, member, turn); "stop" wins and ends.
        before: see `FakeClient`.
        fails: called at the end of a completion with what `seconds` is called with; may raise.
        train_seconds: of a step of training, where `seconds` are set.
        pipeline, training: further settings of these sections.
    """

    folder: Path
    renderer: object
    tasks: dict[str, int]
    steps: int = 6
    groups_per_task: int = 1
    group_size: int = 2
    seconds: object = lambda task, group, member: 0.0
    text: object = lambda group, member, turn: "stop"
    before: object = None
    fails: object = lambda task, group, member: None
    max_staleness: int = 2
    concurrency: int = 8
    attempts: int = 2
    max_turns: int = 5
    train_seconds: float = 1.0
    pipeline: dict = field(default_factory=dict)
    training: dict = field(default_factory=dict)
    batches: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    reports: list = field(default_factory=list)
    arrivals: list = field(default_factory=list)
    """When weights had arrived at the engine."""

    def config(self):
        return resolve(
            {
                "tasks": {name: {"factory": "tests.fakes:EchoTask"} for name in self.tasks},
                "training": {
                    "start": "base", "steps": self.steps, "snapshot_every": 10_000,
                    "groups_per_task": self.groups_per_task, "group_size": self.group_size,
                    **self.training,
                },
                "pipeline": {
                    "schedule": "eager", "max_staleness": max(self.max_staleness, 1),
                    **({} if self.max_staleness else {"mode": "sync"}), **self.pipeline,
                },
            }
        )  # fmt: skip

    async def run(self):
        toy = self

        class Engine(FakeEngine):
            async def generate(self, prompt_ids, sampling, *, session, partial=None):
                group, member = divmod(session - 1, toy.group_size)
                task = stream.group(group).sample.task
                await asyncio.sleep(toy.seconds(task, group, member))
                toy.fails(task, group, member)
                return await super().generate(
                    prompt_ids, sampling, session=session, partial=partial
                )

        def script(prompt, turn, session):
            place = divmod(session - 1, toy.group_size)
            return completion(toy.renderer, toy.text(*place, toy.turn(prompt, turn)))

        ranges = {name: SampleRange(name, "train", size) for name, size in self.tasks.items()}
        config = self.config()
        stream = create_stream(config, ranges, 0)
        self.client = FakeClient(EchoTask(max_turns=self.max_turns), before=self.before)
        rollouts = Rollouts(
            stream=stream,
            buffer=GroupBuffer(stream.groups_per_step, self.group_size),
            admission=Admission(allowed_staleness(config), self.concurrency, self.steps),
            conductor=Conductor([], lockstep=False),
            client=self.client,
            pool=self._pool(Engine(script)),
            settings=EpisodeSettings(self.renderer),
            attempts=self.attempts,
            partial=config.pipeline.partial_rollouts,
        )
        self.rollouts = rollouts
        learner, snapshots, recorder, done = await self.surroundings(config, rollouts)
        run = TrainingRun(
            config, learner=learner, rollouts=rollouts, snapshots=snapshots, recorder=recorder
        )
        run.step = done
        finished = await run.run()
        await rollouts.conductor.close()
        return finished

    def turn(self, prompt, counted):
        """Which turn comes after `prompt`; `counted`: completions that the engine gave so far."""
        return counted

    async def surroundings(self, config, rollouts):
        """Learner, snapshots and recorder of the run, and how many steps are done."""
        return self, self, self, 0

    def _pool(self, engine):
        pool = PolicyPool({"current": engine})
        load = pool.load_weights

        async def timed(version, path):
            await load(version, path)
            self.arrivals.append(asyncio.get_running_loop().time())

        pool.load_weights = timed
        return pool

    @property
    def trained(self):
        return [trajectory for batch in self.batches for trajectory in batch]

    # What the loop wants of a learner, of snapshots and of a recorder.

    async def train_step(self, trajectories):
        self.batches.append(list(trajectories))
        await asyncio.sleep(self.train_seconds if self.seconds("", 0, 0) else 0)
        return {"loss": 0.0}

    async def publish(self, version):
        path = self.folder / "weights.safetensors"
        save_file({"w": torch.full((1,), float(version))}, path)
        return path

    def prune_weights(self, versions):
        pass

    def step(self, step, trajectories, rows, report):
        self.rows += rows
        self.reports.append(report)

"""The training loop on fakes and a virtual clock: overlap, bounds, failures, stopping."""

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from agentrl.config import resolve
from agentrl.errors import InfrastructureError
from agentrl.pipeline.admission import Admission
from agentrl.pipeline.buffer import GroupBuffer
from agentrl.pipeline.rollouts import Rollouts
from agentrl.pipeline.run import TrainingRun
from agentrl.pipeline.stream import GroupStream
from agentrl.rollout.agent_loop import EpisodeSettings
from agentrl.rollout.conductor import Conductor
from agentrl.rollout.cross_policy import PolicyPool
from agentrl.rollout.rendering import create_renderer, render
from agentrl.rollout.tokenizer import train_tokenizer
from agentrl.tasks.base import SampleRange, call_message
from tests.fakes import SAY, FakeClient, FakeEngine

GROUPS, SIZE, STEPS = 2, 2, 6


class TimedEngine(FakeEngine):
    """A completion takes as many seconds as its session says."""

    seconds = staticmethod(lambda session: 1.0)

    async def generate(self, prompt_ids, sampling, *, session, partial=None):
        await asyncio.sleep(self.seconds(session))
        return await super().generate(prompt_ids, sampling, session=session, partial=partial)


@dataclass
class TimedLearner:
    """A step takes `seconds`; remembers when it worked and what it was given."""

    folder: Path
    seconds: float = 1.0
    busy: list[tuple[float, float]] = field(default_factory=list)
    batches: list[list] = field(default_factory=list)

    async def train_step(self, trajectories):
        started = asyncio.get_running_loop().time()
        self.batches.append(list(trajectories))
        await asyncio.sleep(self.seconds)
        self.busy.append((started, asyncio.get_running_loop().time()))
        return {"loss": 0.0}

    async def publish(self, version):
        path = self.folder / f"{version}.safetensors"
        save_file({"w": torch.full((1,), float(version))}, path)
        return path


class Kept:
    """Snapshots and records, in memory."""

    def __init__(self):
        self.saved, self.rows = [], []

    async def save(self, step, rollouts, buffered):
        self.saved.append((step, rollouts, list(buffered)))

    def prune_weights(self, versions):
        self.versions = versions

    def step(self, step, trajectories, rows, report):
        self.rows += rows


@pytest.fixture(scope="module")
def renderer():
    texts = ["Say 7 You said stop"] * 3
    return create_renderer("compact", train_tokenizer(texts, [SAY], 400), [SAY])


@pytest.fixture
def make(renderer, tmp_path):
    """A run over one task whose episodes are one turn long."""
    rendered = render(renderer, [call_message("say", {"text": "stop"})])
    ids = [t for t, s in zip(rendered.token_ids, rendered.sampled_mask, strict=True) if s]

    def build(*, max_staleness=1, concurrency=4, seconds=1.0, before=None, steps=STEPS):
        config = resolve(
            {
                "tasks": {"echo": {"factory": "tests.fakes:EchoTask"}},
                "training": {
                    "start": "base", "steps": steps, "snapshot_every": 100,
                    "groups_per_task": GROUPS, "group_size": SIZE,
                },
                "pipeline": {"schedule": "eager", "max_staleness": max_staleness or 1},
            }
        )  # fmt: skip
        engine = TimedEngine(lambda prompt, turn, session: ids)
        client = FakeClient(before=before)
        rollouts = Rollouts(
            stream=GroupStream({"echo": SampleRange("echo", "train", 50)}, {"echo": GROUPS}, 0),
            buffer=GroupBuffer(GROUPS, SIZE),
            admission=Admission(max_staleness, concurrency, steps),
            conductor=Conductor([], lockstep=False),
            client=client,
            pool=PolicyPool({"current": engine}),
            settings=EpisodeSettings(renderer),
            attempts=2,
        )
        kept = Kept()
        learner = TimedLearner(tmp_path, seconds)
        run = TrainingRun(config, learner=learner, rollouts=rollouts, snapshots=kept, recorder=kept)
        return run, learner, kept, client, engine

    return build


def elapsed() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.looptime
async def test_generation_and_training_overlap(make):
    """A step's 4 episodes take 1 s on 4 places, its training 1 s: 6 steps need 7 s, not 12."""
    run, learner, *_ = make()
    began = elapsed()
    assert await run.run()
    assert elapsed() - began == pytest.approx(STEPS * 1.0 + 1.0, abs=0.01)
    assert [end - start for start, end in learner.busy] == pytest.approx([1.0] * STEPS)


@pytest.mark.looptime
async def test_a_synchronous_run_does_not(make):
    run, *_ = make(max_staleness=0)
    began = elapsed()
    assert await run.run()
    assert elapsed() - began == pytest.approx(STEPS * 2.0, abs=0.01)


@pytest.mark.looptime
@pytest.mark.parametrize("max_staleness", [0, 1, 3])
async def test_staleness_is_bounded_and_the_bound_is_used(make, max_staleness):
    run, _, kept, *_ = make(max_staleness=max_staleness, concurrency=100, seconds=5.0)
    assert await run.run()
    stalest = max(row["staleness_max"] for row in kept.rows)
    assert stalest == max_staleness


@pytest.mark.looptime
async def test_what_is_trained_does_not_depend_on_how_long_episodes_take(make):
    """Pitfalls 29 and 42: slow episodes keep their place, at most one step is held up."""
    orders = []
    for slow in ((), (1, 6, 11)):
        run, learner, *_, engine = make()
        engine.seconds = lambda session, slow=slow: 3.0 if session in slow else 1.0
        assert await run.run()
        orders.append([[t.key for t in batch] for batch in learner.batches])
    groups = [list(range(step * GROUPS, (step + 1) * GROUPS)) for step in range(STEPS)]
    expected = [[(g, m) for g in step for m in range(SIZE)] for step in groups]
    assert orders == [expected, expected]


@pytest.mark.looptime
async def test_weights_arrive_while_an_environment_is_slow(make):
    """Pitfall 33: publishing waits for no environment."""
    run, _, _, client, _ = make(max_staleness=3, concurrency=100)
    arrivals = []
    load = run.rollouts.pool.load_weights

    async def timed(version, path):
        arrivals.append(elapsed())
        await load(version, path)

    run.rollouts.pool.load_weights = timed
    enter = client.interact

    async def slow(session, message):
        if session > GROUPS * SIZE:  # every episode but those of the first step
            await asyncio.sleep(100)
        return await enter(session, message)

    client.interact = slow
    began = elapsed()
    assert await run.run()
    assert arrivals[0] - began == pytest.approx(2.0, abs=0.01)  # 1 s of tokens, 1 s of training


async def test_failures_are_retried_and_then_recorded_without_reward(make):
    """Invariants 3 and 4: three failing starts; one is mended by its retry, one episode is lost."""
    count = itertools.count(1)

    def before(verb, session):
        if verb == "start" and next(count) in (1, 5, 6):
            raise InfrastructureError("start broke")

    run, learner, kept, client, _ = make(before=before)
    assert await run.run()
    every = [t for batch in learner.batches for t in batch]
    assert len(every) == STEPS * GROUPS * SIZE == len({t.key for t in every})
    statuses = Counter(t.status.value for t in every)
    assert statuses == {"completed": len(every) - 1, "task error": 1}
    (lost,) = [t for t in every if t.status.is_infrastructure]
    assert lost.reward is None and lost.error == "start broke"
    assert sum(row["failures"] for row in kept.rows if row["task"] == "*") == 1
    assert not client.live


async def test_a_stop_ends_after_the_step_with_a_snapshot(make):
    run, learner, kept, *_ = make()
    run.stop()
    assert not await run.run()
    assert len(learner.batches) == run.step == 1
    ((step, state, buffered),) = kept.saved
    assert step == 1
    # Whatever was dispatched is trained, buffered or live: nothing is lost.
    known = [t.key for t in learner.batches[0]] + [t.key for t in buffered]
    known += [(item["group_id"], item["member"]) for item in state["live"]]
    assert sorted(known) == [divmod(i, SIZE) for i in range(state["dispatched"])]
    await run.conductor.close()


@pytest.mark.looptime
async def test_a_snapshot_is_of_one_moment(make):
    """Episodes that end while it is written are in it once: as live ones."""
    run, learner, kept, *_ = make(max_staleness=3, concurrency=100)
    save = kept.save

    async def slow(step, state, buffered):
        await asyncio.sleep(10)  # more than any episode takes
        await save(step, state, buffered)

    kept.save = slow
    run.stop()
    assert not await run.run()
    ((_, state, buffered),) = kept.saved
    known = [t.key for t in learner.batches[0]] + [t.key for t in buffered]
    known += [(item["group_id"], item["member"]) for item in state["live"]]
    assert sorted(known) == [divmod(i, SIZE) for i in range(state["dispatched"])]
    await run.conductor.close()


async def test_a_learner_that_breaks_ends_the_run(make):
    run, learner, *_ = make()

    async def broken(trajectories):
        raise InfrastructureError("the learner died")

    learner.train_step = broken
    with pytest.raises(InfrastructureError, match="the learner died"):
        await run.run()
    await run.conductor.close()

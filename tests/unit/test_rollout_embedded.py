"""Engines of a run that drive themselves: episodes end, and an engine's bug ends the run."""

import asyncio

import pytest

from agentrl.config.models import Config, PolicyConfig
from agentrl.config.playing import RolloutConfig
from agentrl.rollout.agent_loop import run_episode
from agentrl.rollout.embedded import open_engines
from agentrl.rollout.policy import create_tiny_policy
from agentrl.tasks.base import Sample
from tests.fakes import SAY, FakeClient

SMALL = PolicyConfig(vocab_size=400, hidden_size=32, layers=1, intermediate_size=48)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "base"
    create_tiny_policy(SMALL, ["Say 7 You said stop"] * 2, [SAY], 0, path)
    return path


@pytest.fixture
def config():
    rollout = RolloutConfig(max_new_tokens=6, max_total_tokens=200)
    return Config(tasks={"echo": {}}, policy=SMALL, rollout=rollout)


def episodes(opened, config, count):
    settings = opened.settings(config, temperature=1.0, validation=False)

    def one(number):
        return lambda: run_episode(
            FakeClient(), opened.pool, settings, Sample("echo", "train", number), seed=number,
            session=number + 1,
        )  # fmt: skip

    return [one(number) for number in range(count)]


async def play(policy, config, lockstep):
    async with open_engines(policy, config, stale_ratio=0.3, slots=8, lockstep=lockstep) as opened:
        return await asyncio.wait_for(
            opened.conductor.run_all(episodes(opened, config, 12), concurrency=8), timeout=60
        )


async def test_self_driven_engines_give_what_lockstep_gives(policy, config):
    stepped, driven = [await play(policy, config, lockstep) for lockstep in (True, False)]
    assert [t.token_ids.tolist() for t in stepped] == [t.token_ids.tolist() for t in driven]


async def test_a_bug_in_an_engine_ends_the_run(policy, config):
    with pytest.raises(ZeroDivisionError):
        async with open_engines(policy, config, stale_ratio=0.0, slots=8, lockstep=False) as opened:
            opened.pool.engines["current"]._decoder.logits = lambda *_: 1 / 0
            await opened.conductor.run_all(episodes(opened, config, 3), concurrency=3)

"""A run that is killed where weights arrive and resumed is the unbroken run, bit by bit (9)."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from agentrl.config.models import PolicyConfig
from agentrl.rollout.agent_loop import AgentEpisode, EpisodeSettings, EpisodeState
from agentrl.rollout.conductor import Conductor
from agentrl.rollout.cross_policy import PolicyPool
from agentrl.rollout.policy import create_tiny_policy
from agentrl.rollout.trajectory import TOKEN_COLUMNS
from agentrl.rollout.transformers_engine import TransformersEngine
from agentrl.tasks.base import Sample
from tests.fakes import SAY, EchoTask, FakeClient

SMALL = PolicyConfig(vocab_size=400, hidden_size=32, layers=2, intermediate_size=48)
COUNT = 10


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "base"
    create_tiny_policy(SMALL, ["Say 7 You said stop a b c"] * 2, [SAY], 0, path)
    weights = load_file(path / "model.safetensors")
    for version in (1, 2):
        generator = torch.Generator().manual_seed(version)
        moved = {
            n: t + 0.05 * torch.randn(t.shape, generator=generator) for n, t in weights.items()
        }
        save_file(moved, path.parent / f"weights-{version}.safetensors")
    return path


def pool(policy, slots):
    engines = {
        role: TransformersEngine(policy, slots=slots, max_tokens=300)
        for role in ("current", "stale")
    }
    return PolicyPool(engines, stale_ratio=0.4, refresh_every=2)


def episode(pool, pauses, number, state=None):
    client = FakeClient(EchoTask(max_turns=6), pauses=pauses)
    settings = EpisodeSettings(
        pool.engines["current"].renderer, max_new_tokens=9, max_total_tokens=300
    )
    return AgentEpisode(
        client, pool, settings, Sample("echo", "train", number), seed=100 + number, member=number,
        session=number + 1, state=state,
    )  # fmt: skip


async def steps(pool, conductor, count):
    """Until `count` more decode steps are done, or all episodes are."""
    target = pool.engines["current"].statistics.steps + count
    await conductor.until(
        lambda: pool.engines["current"].statistics.steps >= target or not conductor.live
    )


@pytest.mark.parametrize("slots, before", [(16, 5), (16, 17), (4, 12)])
async def test_killed_and_resumed_is_unbroken(policy, slots, before):
    made, done = pool(policy, slots), {}
    conductor = Conductor(list(made.engines.values()))
    episodes = {n: episode(made, n % 3, n) for n in range(COUNT)}
    for one in episodes.values():
        conductor.spawn(one.run(), lambda t: done.update({t.member: t}))
    await steps(made, conductor, before)
    await made.load_weights(1, policy.parent / "weights-1.safetensors")
    live = [n for n in episodes if n not in done]
    saved = json.dumps([episodes[n].state().to_dict() for n in live])
    assert any(state["partial"] for state in json.loads(saved))
    await steps(made, conductor, 7)
    await made.load_weights(2, policy.parent / "weights-2.safetensors")
    await conductor.until(lambda: not conductor.live)

    fresh, again = pool(policy, slots), {}
    await fresh.load("current", 1, policy.parent / "weights-1.safetensors")
    second = Conductor(list(fresh.engines.values()))
    for data in reversed(json.loads(saved)):
        state = EpisodeState.from_dict(data)
        one = episode(fresh, 2 - state.member % 3, state.member, state)
        second.spawn(one.run(), lambda t: again.update({t.member: t}))
    await steps(fresh, second, 7)
    await fresh.load_weights(2, policy.parent / "weights-2.safetensors")
    await second.until(lambda: not second.live)

    assert sorted(again) == live and len(live) >= 5
    for n in live:
        a, b = done[n], again[n]
        for name in TOKEN_COLUMNS:
            assert getattr(a, name).tobytes() == getattr(b, name).tobytes(), (n, name)
        assert [t.assistant for t in a.turns] == [t.assistant for t in b.turns]
        assert (a.status, a.reward, a.metrics) == (b.status, b.reward, b.metrics)
    versions = {v for n in live for v in again[n].policy_version.tolist()} - {-1}
    assert versions == {0, 1, 2}
    assert {role for n in live for role in again[n].policy_role.tolist()} == {-1, 0, 1}

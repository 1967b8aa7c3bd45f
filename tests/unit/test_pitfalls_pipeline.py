"""Pitfalls of asynchronous training (tests/PITFALLS.md) on the real loop, fakes and a virtual clock."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_toys import ToyRun, echo_renderer

from agentrl.errors import InfrastructureError

RENDERER = echo_renderer()


@pytest.mark.looptime
async def test_slow_tasks_keep_their_share(tmp_path):
    """29 and 30: 500 steps, episodes of 1, 3 and 10 s: every task has its quota in each step."""
    durations = {"quick": 1, "usual": 3, "slow": 10}
    toy = ToyRun(
        tmp_path,
        RENDERER,
        dict.fromkeys(durations, 40),
        steps=500,
        seconds=lambda task, group, member: durations.get(task, 1),
        concurrency=9,
    )
    assert await toy.run()
    for batch in toy.batches:
        assert Counter(t.task for t in batch) == dict.fromkeys(durations, 2)
    # Nothing was finished and thrown away on the way: as many episodes began as were trained.
    assert len(toy.client.task.started) == len(toy.trained) == 500 * 2 * 3


@pytest.mark.looptime
async def test_short_episodes_are_not_over_represented(tmp_path):
    """42: success takes 2 turns, failure 10; whatever the window, what is trained is what was
    dispatched, so the success rate has no bias towards what ends early."""
    chance = 0.3
    draws = random.Random(4)
    wins = {(g, m): draws.random() < chance for g in range(48) for m in range(4)}
    toy = ToyRun(
        tmp_path,
        RENDERER,
        {"echo": 1000},
        steps=12,
        groups_per_task=4,
        group_size=4,
        seconds=lambda task, group, member: 1,
        text=lambda g, m, turn: "stop" if turn == 1 and wins[g, m] else "a",
        concurrency=24,
        max_turns=10,
    )
    assert await toy.run()
    for step, batch in enumerate(toy.batches):
        dispatched = [(g, m) for g in range(4 * step, 4 * step + 4) for m in range(4)]
        assert [t.key for t in batch] == dispatched
        assert [t.reward for t in batch] == [float(wins[key]) for key in dispatched]
    assert {t.metrics["turns"] for t in toy.trained} == {2.0, 10.0}


@pytest.mark.parametrize("samples", [1, 3, 10])
async def test_a_run_ends_when_its_steps_do_however_few_samples_there_are(tmp_path, samples):
    """34: the stream goes round, so the data never run out; every step is full, the last one too."""
    toy = ToyRun(tmp_path, RENDERER, {"echo": samples}, steps=7, groups_per_task=4)
    assert await toy.run()
    assert [len(batch) for batch in toy.batches] == [4 * 2] * 7
    used = Counter(t.index for t in toy.trained if t.member == 0)
    assert max(used.values()) - min(used.values()) <= 1
    assert toy.client.live == {}


async def test_steps_that_teach_nothing_use_up_their_samples(tmp_path):
    """37: every group of the first two steps is dead; the third has samples of its own."""
    toy = ToyRun(
        tmp_path,
        RENDERER,
        {"echo": 100},
        steps=3,
        groups_per_task=2,
        text=lambda g, m, turn: "a" if g < 4 else ("stop" if m else "a"),
    )
    assert await toy.run()
    assert [row["dead_groups"] for row in toy.rows if row["task"] == "*"] == [2, 2, 0]
    seen = [{t.index for t in batch} for batch in toy.batches]
    assert [len(indices) for indices in seen] == [2, 2, 2] and len(set.union(*seen)) == 6


@settings(max_examples=30)
@given(
    st.dictionaries(
        st.integers(1, 40), st.sampled_from([InfrastructureError, KeyError]), max_size=16
    ),
    st.integers(1, 3),
)
async def test_no_failure_of_the_environment_becomes_a_reward(tmp_path_factory, broken, attempts):
    """20 and 3: whichever calls fail, each episode is trained on or recorded once; a failed one
    has neither reward nor a place in another episode's statistics, and no session stays open."""
    calls = 0

    def before(verb, session):
        nonlocal calls
        calls += verb != "cancel"
        if verb != "cancel" and (kind := broken.get(calls)) is not None:
            raise InfrastructureError("broke") if verb == "start" else kind("broke")

    toy = ToyRun(
        tmp_path_factory.mktemp("run"),
        RENDERER,
        {"echo": 50},
        steps=2,
        groups_per_task=2,
        attempts=attempts,
        before=before,
        text=lambda g, m, turn: "stop" if turn else "a",
    )
    assert await toy.run()
    assert [t.key for t in toy.trained] == [(g, m) for g in range(4) for m in range(2)]
    failed = [t for t in toy.trained if t.status.is_infrastructure]
    assert all(t.reward is None and t.error for t in failed)
    assert all(t.reward == 1.0 for t in toy.trained if t not in failed)
    assert len(failed) <= len(broken) // attempts
    assert sum(r["failures"] for r in toy.rows if r["task"] == "*") == len(failed)
    assert toy.client.live == {}

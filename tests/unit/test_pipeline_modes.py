"""Synchronous, one-step-off and asynchronous, partial rollouts on and off, on the virtual clock."""

import asyncio
import random
from collections import Counter

import numpy as np
import pytest
from pipeline_toys import ToyRun, echo_renderer
from test_pipeline_buffer import trajectory

from agentrl.errors import InfrastructureError
from agentrl.messages import Status
from agentrl.pipeline.rollouts import _refuse_mixture

RENDERER = echo_renderer()
MODES = ("sync", "one-step-off", "async")


def toy_of(folder, mode, **changes):
    """Four episodes a step on four places, one turn of 1 s each; a step of training takes 1 s."""
    fields = {
        "steps": 6, "groups_per_task": 2, "concurrency": 4,
        "seconds": lambda task, group, member: 1.0, "pipeline": {"mode": mode},
    }  # fmt: skip
    fields |= changes
    fields["pipeline"] = {"mode": mode, **changes.get("pipeline", {})}
    return ToyRun(folder, RENDERER, fields.pop("tasks", {"echo": 200}), **fields)


async def seconds_of(toy):
    began = asyncio.get_running_loop().time()
    assert await toy.run()
    return asyncio.get_running_loop().time() - began


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        # All episodes take 1 s: sync 6 x (1 + 1), the others 1 + 6 x 1.
        ((), {"sync": 12, "one-step-off": 7, "async": 7}),
        # The last of each step takes 4 s. sync: 6 x (4 + 1). One step off: the first two steps start
        # on the same weights and share places until 6 s; then each waits for its slow one, 4 x 4, and
        # the last one's training. async: places of quick ones go to later steps.
        ((3,), {"sync": 30, "one-step-off": 23, "async": None}),
    ],
)
async def test_how_long_each_mode_takes(tmp_path, slow, expected):
    took = {}
    for mode in MODES:
        toy = toy_of(
            tmp_path,
            mode,
            seconds=lambda task, g, m: 4.0 if (2 * g + m) % 4 in slow else 1.0,
        )
        took[mode] = await seconds_of(toy)
        assert [t.key for t in toy.trained] == [(g, m) for g in range(12) for m in range(2)]
    for mode, value in expected.items():
        if value is not None:
            assert took[mode] == pytest.approx(value, abs=0.01), mode
    if slow:  # 6 x (3 x 1 + 4) s of episodes on 4 places, before the last training
        assert 42 / 4 + 1 <= took["async"] < took["one-step-off"] / 1.4


@pytest.mark.looptime
async def test_one_step_off_is_one_step_off(tmp_path):
    """Whatever episodes take: those of a step are all of one version, the one before its own."""
    draws = random.Random(1)
    toy = toy_of(
        tmp_path,
        "one-step-off",
        seconds=lambda task, g, m: draws.uniform(0.2, 6),
        text=lambda g, m, turn: "stop" if turn == 2 else "a",
        concurrency=3,
    )
    assert await toy.run()
    versions = [
        {int(v) for t in batch for v in t.policy_version[t.loss_mask]} for batch in toy.batches
    ]
    assert versions == [{0}, {0}, {1}, {2}, {3}, {4}]


@pytest.mark.looptime
@pytest.mark.parametrize("mode", MODES)
async def test_without_partial_rollouts_an_episode_has_one_version(tmp_path, mode):
    """Three turns of 1 to 4 s: with partial rollouts some are mixed, without none is."""
    mixed = {}
    for partial in (True, False):
        draws = random.Random(2)
        toy = toy_of(
            tmp_path,
            mode,
            seconds=lambda task, g, m, draws=draws: draws.uniform(1, 4),
            text=lambda g, m, turn: "stop" if turn == 2 else "a",
            concurrency=8,
            steps=10,
            pipeline={"partial_rollouts": partial},
        )
        assert await toy.run()
        assert len(toy.trained) == 40
        mixed[partial] = sum(
            len(set(t.policy_version[t.loss_mask].tolist())) > 1 for t in toy.trained
        )
        assert max(r["staleness_max"] for r in toy.rows) <= 2  # 6
    assert mixed[False] == 0
    assert (mixed[True] > 0) == (mode == "async")


@pytest.mark.looptime
async def test_weights_wait_for_the_episodes_under_way_and_no_other_starts(tmp_path):
    """Episodes of 10 s, and a first step of 1 s: its weights wait until the others have ended."""

    def seconds(task, group, member):
        return 1.0 if group < 2 else 10.0

    arrived = {}
    for partial in (True, False):
        toy = toy_of(
            tmp_path,
            "async",
            seconds=seconds,
            steps=3,
            max_staleness=2,
            concurrency=8,
            pipeline={"partial_rollouts": partial},
        )
        began = asyncio.get_running_loop().time()
        assert await toy.run()
        arrived[partial] = toy.arrivals[0] - began
    # Step 0 is played until 1 s and trained until 2 s. Of the others four started at 0 s and four
    # at 1 s.
    assert arrived[True] == pytest.approx(2.0, abs=0.01)
    assert arrived[False] == pytest.approx(11.0, abs=0.01)


def test_an_episode_of_two_versions_by_accident_ends_the_run():
    columns = {
        "token_ids": np.arange(3, dtype=np.int32),
        "loss_mask": np.array([0, 1, 1], bool),
        "behaviour_logprobs": np.zeros(3, np.float32),
        "turn": np.zeros(3, np.int16),
    }
    versions = np.array([-1, 3, 4], np.int32)
    stale = trajectory(
        1, 0, policy_version=versions, policy_role=np.array([-1, 0, 1], np.int8), **columns
    )
    _refuse_mixture(stale)  # one of them is the stale copy's
    both = trajectory(
        1, 0, policy_version=versions, policy_role=np.array([-1, 0, 0], np.int8), **columns
    )
    with pytest.raises(RuntimeError, match=r"group 1 member 0 was played by versions \[3, 4\]"):
        _refuse_mixture(both)
    _refuse_mixture(trajectory(1, 1, roles=(), status=Status.TASK_ERROR, reward=None))


@pytest.mark.looptime
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("partial", [True, False])
async def test_slow_tasks_keep_their_quota_in_every_mode(tmp_path, mode, partial):
    """29, 30: episodes of 1 s and of log-normal 10 s; every step has both tasks' groups in full."""
    draws = random.Random(3)
    toy = toy_of(
        tmp_path,
        mode,
        tasks={"quick": 40, "slow": 40},
        groups_per_task=2,
        steps=40,
        concurrency=6,
        seconds=lambda task, g, m: 1.0 if task == "quick" else 10 * draws.lognormvariate(0, 1),
        pipeline={"partial_rollouts": partial},
    )
    assert await toy.run()
    for batch in toy.batches:
        assert Counter(t.task for t in batch) == {"quick": 4, "slow": 4}
    assert len(toy.client.task.started) == len(toy.trained) == 40 * 8  # nothing thrown away


@pytest.mark.looptime
@pytest.mark.parametrize("mode", MODES)
async def test_groups_are_completed_when_members_fail(tmp_path, mode):
    """Every fifth start fails; what fails twice is a record that completes its group."""
    starts = 0

    def before(verb, session):
        nonlocal starts
        starts += verb == "start"
        if verb == "start" and starts % 5 in (0, 1):
            raise InfrastructureError("no place")

    toy = toy_of(tmp_path, mode, before=before, steps=8)
    assert await toy.run()
    assert [t.key for t in toy.trained] == [(g, m) for g in range(16) for m in range(2)]
    lost = [t for t in toy.trained if t.status.is_infrastructure]
    assert lost and all(t.reward is None for t in lost)
    assert toy.client.live == {} and toy.rollouts.conductor.live == 0

"""The buffer hands out steps in dispatch order, whatever the order of arrival."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.messages import Status
from agentrl.pipeline.admission import Admission
from agentrl.pipeline.buffer import GroupBuffer
from agentrl.pipeline.history import scalars, step_rows
from agentrl.rollout.trajectory import Trajectory, empty_columns


def trajectory(group: int, member: int, **changes) -> Trajectory:
    fields = {
        "task": "a", "split": "train", "index": group, "group_id": group, "member": member,
        "seed": 0, "status": Status.COMPLETED, "reward": 1.0, "metrics": {}, "opening": [],
        "turns": [], "timings": {}, "roles": ("current", "stale"), **empty_columns(),
    }  # fmt: skip
    return Trajectory(**(fields | changes))


@given(st.permutations([(g, m) for g in range(6) for m in range(2)]))
def test_steps_leave_whole_and_in_order_of_dispatch(arrivals):
    """Pitfalls 17, 31 and 42: neither order nor content depends on which episode ended first."""
    buffer, step, taken = GroupBuffer(groups_per_step=2, group_size=2), 0, []
    for group, member in arrivals:
        buffer.add(trajectory(group, member))
        while step < 3 and buffer.ready(step):
            taken.append([t.key for t in buffer.take(step)])
            step += 1
    assert taken == [[(2 * s, 0), (2 * s, 1), (2 * s + 1, 0), (2 * s + 1, 1)] for s in range(3)]
    assert len(buffer) == 0


def test_nothing_enters_twice_or_late():
    buffer = GroupBuffer(1, 1)
    buffer.add(trajectory(0, 0))
    with pytest.raises(ValueError, match="came twice"):
        buffer.add(trajectory(0, 0))
    with pytest.raises(ValueError, match="step 1 is not ready"):
        buffer.take(1)
    buffer.take(0)
    with pytest.raises(ValueError, match="no step that is still open"):
        buffer.add(trajectory(0, 0))


def test_a_restored_buffer_goes_on_where_the_snapshot_was():
    buffer = GroupBuffer(2, 1)
    for group in (0, 1, 3):
        buffer.add(trajectory(group, 0))
    buffer.take(0)
    other = GroupBuffer(2, 1)
    other.restore(1, list(buffer))
    assert not other.ready(1)
    other.add(trajectory(2, 0))
    assert [t.key for t in other.take(1)] == [(2, 0), (3, 0)]


@pytest.mark.parametrize(
    ("step", "version", "live", "allowed"),
    [
        (0, 0, 0, True),
        (2, 0, 0, True),  # two steps ahead of version 0: the bound itself
        (3, 0, 0, False),  # one too many
        (3, 1, 0, True),
        (0, 0, 4, False),  # every place taken
        (10, 10, 0, False),  # the run is over
    ],
)
def test_admission(step, version, live, allowed):
    rule = Admission(max_staleness=2, concurrency=4, steps=10)
    assert rule.allows(step, version, live) is allowed


def test_history_rows_by_hand():
    """Three tokens sampled by versions 3 and 2 (current) and 0 (stale), trained at step 4."""
    first = trajectory(
        0, 0,
        metrics={"success": 1.0, "turns": 2.0, "invalid_calls": 1.0},
        timings={"engine": 2.0, "environment": 0.5},
        token_ids=np.array([9, 1, 2, 9, 3], np.int32),
        loss_mask=np.array([0, 1, 1, 0, 1], bool),
        behaviour_logprobs=np.zeros(5, np.float32),
        policy_version=np.array([-1, 3, 2, -1, 0], np.int32),
        policy_role=np.array([-1, 0, 0, -1, 1], np.int8),
        turn=np.zeros(5, np.int16),
    )  # fmt: skip
    second = trajectory(0, 1, reward=0.0, status=Status.LIMIT_REACHED,
                        metrics={"success": 0.0, "turns": 4.0, "invalid_calls": 0.0})  # fmt: skip
    failed = trajectory(1, 0, task="b", reward=None, status=Status.TASK_ERROR)
    report = {
        "loss": 0.5, "entropy": 1.0, "entropy/a": 2.0, "kl_behaviour/age/0": 1e-6,
        "buffered_episodes": 3.0,
    }  # fmt: skip
    found = step_rows(4, [first, second, failed], report, {"seconds": 2.0, "seconds_wait": 0.5})
    rows = {r["task"]: r for r in found}
    assert rows["a"]["reward_mean"] == 0.5
    assert rows["a"]["turns_mean"] == 3.0
    assert rows["a"]["truncated"] == 1
    assert rows["a"]["sampled_tokens"] == 3
    assert rows["a"]["staleness_mean"] == 1.5  # (4-3 + 4-2) / 2; the stale role does not count
    assert rows["a"]["staleness_max"] == 2.0
    assert rows["a"]["stale_share"] == pytest.approx(1 / 3)
    assert rows["b"]["failures"] == 1
    assert rows["b"]["reward_mean"] is None  # absent, not zero
    assert rows["*"]["episodes"] == 3
    assert rows["*"]["loss"] == 0.5
    assert "loss" not in rows["a"]
    assert rows["a"]["tokens_mean"] == 2.5  # 5 and none
    assert (rows["a"]["entropy"], rows["b"]["entropy"], rows["*"]["entropy"]) == (2.0, None, 1.0)
    assert rows["*"]["kl_engine"] == 1e-6
    assert rows["*"]["buffered_episodes"] == 3.0
    assert (rows["*"]["seconds_wait"], rows["*"]["tokens_per_second"]) == (0.5, 1.5)
    assert rows["a"]["seconds_engine_mean"] == 2.0  # of the one that has it
    assert rows["b"]["seconds_engine_mean"] is None
    causes = {k: v for k, v in rows["*"].items() if k.startswith("status_") and v}
    assert causes == {
        "status_completed": 1, "status_task_limit_reached": 1, "status_task_error": 1,
    }  # fmt: skip
    assert scalars(found, report)["train/entropy/a"] == 2.0
    assert scalars(found, report)["train/status_task_error/b"] == 1.0

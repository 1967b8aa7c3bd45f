"""The stream of groups: fair to tasks, complete over samples, and without state."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.errors import DataError
from agentrl.pipeline.stream import GroupStream
from agentrl.tasks.base import SampleRange


def stream(sizes: dict[str, int], groups_per_task: int = 2, seed: int = 0) -> GroupStream:
    samples = {task: SampleRange(task, "train", size) for task, size in sizes.items()}
    return GroupStream(samples, dict.fromkeys(sizes, groups_per_task), seed)


@given(
    st.dictionaries(st.sampled_from("abcde"), st.integers(1, 20), min_size=1),
    st.integers(1, 4),
    st.integers(0, 2**40),
)
def test_every_step_holds_the_same_number_of_groups_of_each_task(sizes, groups_per_task, seed):
    source = stream(sizes, groups_per_task, seed)
    for step in range(5):
        first = step * source.groups_per_step
        groups = [source.group(first + i) for i in range(source.groups_per_step)]
        assert {g.step for g in groups} == {step}
        counts = Counter(g.sample.task for g in groups)
        assert counts == dict.fromkeys(sizes, groups_per_task)


def test_tasks_with_numbers_of_their_own_are_spread_over_the_step():
    samples = {task: SampleRange(task, "train", 50) for task in "ab"}
    source = GroupStream(samples, {"a": 2, "b": 4}, seed=0)
    tasks = "".join(source.group(number).sample.task for number in range(12))
    # a at 1/4 and 3/4 of a step, b at 1/8, 3/8, 5/8, 7/8
    assert tasks == "babbab" * 2
    assert [source.group(number).step for number in range(12)] == [0] * 6 + [1] * 6
    seen = [source.group(number).sample for number in range(150)]
    assert len({s.index for s in seen if s.task == "a"}) == 50
    assert len(set(seen)) == 100  # every sample of b once before any comes again


@given(st.integers(1, 30), st.integers(0, 2**40))
def test_each_epoch_uses_every_sample_once(size, seed):
    source = stream({"a": size}, 1, seed)
    for epoch in range(3):
        seen = [source.group(epoch * size + i).sample.index for i in range(size)]
        assert sorted(seen) == list(range(size))


def test_a_group_depends_on_seed_and_number_only():
    one, two = stream({"a": 9, "b": 5}, seed=3), stream({"a": 9, "b": 5}, seed=3)
    backwards = [one.group(n) for n in reversed(range(40))]
    assert backwards[::-1] == [two.group(n) for n in range(40)]
    other = [stream({"a": 9, "b": 5}, seed=4).group(n) for n in range(40)]
    assert other != backwards[::-1]


def test_episode_seeds_differ_within_and_across_groups():
    source = stream({"a": 9})
    seeds = {source.episode_seed(group, member) for group in range(50) for member in range(8)}
    assert len(seeds) == 400


def test_a_task_without_samples_is_refused_by_name():
    with pytest.raises(DataError, match="task 'b' has no samples"):
        GroupStream({"a": SampleRange("a", "train", 1), "b": []}, {"a": 1, "b": 1}, 0)

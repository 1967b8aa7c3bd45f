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
    return GroupStream(samples, groups_per_task, seed)


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
        GroupStream({"a": SampleRange("a", "train", 1), "b": []}, 1, 0)

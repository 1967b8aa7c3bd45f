"""Over-sampling past dead groups, and difficulty pools."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipeline_toys import ToyRun, echo_renderer
from training_toys import config_of, failure, trajectory

from agentrl.config import resolve
from agentrl.config.learning import PoolConfig
from agentrl.errors import ConfigError
from agentrl.pipeline.pools import PooledStream
from agentrl.pipeline.selection import chosen
from agentrl.tasks.base import SampleRange

RENDERER = echo_renderer()
SPANS = [(3, 2)]


def group(number, rewards, task="alpha"):
    return [
        failure(task=task, group=number, member=m)
        if reward is None
        else trajectory(SPANS, reward, task=task, group=number, member=m)
        for m, reward in enumerate(rewards)
    ]


def settings(oversampling=1.5, groups=2, **algorithm):
    training = {"oversampling": oversampling, "groups_per_task": groups, "group_size": 3}
    return config_of(training=training, algorithm=algorithm)


def test_the_first_live_groups_are_trained_and_dead_ones_fill_up():
    """Two of three groups a task. alpha: 1 is dead, so 0 and 2; beta: all dead, so the first two."""
    played = [
        *group(0, [1.0, 0.0, 0.0]),
        *group(1, [1.0, 1.0, 1.0]),
        *group(2, [0.0, 1.0, None]),
        *group(3, [0.0, 0.0, 0.0], "beta"),
        *group(4, [None, None, 1.0], "beta"),  # one reward left: nothing to compare with
        *group(5, [0.5, 0.5, 0.5], "beta"),
    ]
    trained, counts = chosen(played, settings())
    assert [t.group_id for t in trained] == [0] * 3 + [2] * 3 + [3] * 3 + [4] * 3
    assert counts == {
        "left_out_dead_groups": 2.0, "left_out_live_groups": 0.0, "dead_groups_kept": 2.0,
    }  # fmt: skip


def test_more_live_groups_than_needed_are_counted_too():
    played = [t for n in range(3) for t in group(n, [1.0, 0.0, 0.0])]
    trained, counts = chosen(played, settings())
    assert {t.group_id for t in trained} == {0, 1}
    assert counts["left_out_live_groups"] == 1.0


def test_what_makes_a_group_dead_is_what_is_trained_on():
    """Rewards that differ only before an overlong penalty's or an incomplete ending's say."""
    played = [*group(0, [1.0, 1.0, 1.0]), *group(1, [1.0, 1.0, 1.0]), *group(2, [1.0, 0.0, 1.0])]
    assert {t.group_id for t in chosen(played, settings(groups=1, oversampling=3.0))[0]} == {2}
    needed = settings(groups=1, oversampling=3.0, min_group_size=3)
    short = [*group(0, [1.0, 0.0, None]), *group(1, [1.0, 0.0, 1.0])]
    assert {t.group_id for t in chosen(short, needed)[0]} == {1}


def test_without_oversampling_everything_is_trained():
    played = group(0, [1.0, 1.0, 1.0])
    assert chosen(played, settings(oversampling=1.0)) == (played, {})


@given(
    st.lists(
        st.lists(st.sampled_from([0.0, 1.0, None]), min_size=3, max_size=3), min_size=3, max_size=3
    )
)
def test_every_step_is_full_and_nothing_is_lost(rewards):
    played = [t for n, values in enumerate(rewards) for t in group(n, values)]
    trained, counts = chosen(played, settings())
    assert len(trained) == 6
    assert counts["left_out_dead_groups"] + counts["left_out_live_groups"] == 1
    live = sum(len({r for r in values if r is not None}) == 2 for values in rewards)
    assert counts["dead_groups_kept"] == max(0, 2 - live)


@pytest.mark.looptime
async def test_a_run_that_oversamples(tmp_path):
    """Four groups of each step are played, the odd ones dead: 1 and 3 are left out, and recorded."""
    toy = ToyRun(
        tmp_path,
        RENDERER,
        {"echo": 100},
        steps=3,
        groups_per_task=2,
        seconds=lambda task, g, m: 1.0,
        text=lambda g, m, turn: "stop" if g % 2 or m else "a",
        training={"oversampling": 2.0},
    )
    assert await toy.run()
    trained = [sorted({t.group_id for t in batch}) for batch in toy.batches]
    assert trained == [[0, 2], [4, 6], [8, 10]]
    whole = [row for row in toy.rows if row["task"] == "*"]
    assert [row["episodes"] for row in whole] == [8, 8, 8]  # all that were played
    assert [row["success_mean"] for row in whole] == [0.75] * 3  # not only of those trained
    assert [row["left_out_dead_groups"] for row in whole] == [2.0] * 3
    assert [row["dead_groups_kept"] for row in whole] == [0.0] * 3


def test_groups_played_are_rounded_up():
    training = resolve(
        {"tasks": {"a": {}}, "training": {"oversampling": 1.1, "groups_per_task": {"a": 10}}}
    ).training
    assert (training.played_groups_of("a"), training.played_groups_of("b")) == (11, 9)


# -- pools ----------------------------------------------------------------------------------


def stream(size=6, easy=0.0, hard=0.5, seed=0, groups=2):
    ranges = {"alpha": SampleRange("alpha", "train", size), "beta": SampleRange("beta", "train", 9)}
    pools = {"alpha": PoolConfig(easy=easy, hard=hard)}
    return PooledStream(ranges, dict.fromkeys(ranges, groups), seed, pools)


def play(pooled, step, reward_of):
    """A step's groups of three, with `reward_of` (sample index) wins; what was drawn, by task."""
    size = pooled.groups_per_step
    drawn = [pooled.group(n) for n in range(step * size, (step + 1) * size)]
    for found in drawn:
        wins = reward_of(found.sample.index)
        rewards = [1.0] * wins + [0.0] * (3 - wins)
        members = group(found.id, rewards, found.sample.task)
        for member in members:
            member.metrics["success"] = member.reward
        pooled.learn(members)
    return [g.sample.index for g in drawn if g.sample.task == "alpha"]


def test_hard_samples_come_again_easy_ones_do_not():
    """Samples 0 and 1 of six are never solved, the rest always; half of the draws are for hard ones."""
    pooled = stream(easy=0.0, hard=0.5)
    seen = [play(pooled, step, lambda index: 0 if index < 2 else 3) for step in range(60)]
    first = [index for step in seen for index in step][:6]
    later = Counter(index for step in seen[10:] for index in step)
    assert len(set(first)) >= 4  # new ones come first
    assert min(later[0], later[1]) > 15
    # No usual ones are left, so the other draws take hard ones too, and then easy ones.
    assert pooled.counts()["pool_easy/alpha"] == 4.0


def test_shares_are_kept_where_there_is_enough():
    pooled = stream(size=3000, easy=0.2, hard=0.3, groups=40)
    for step in range(10):  # a stock of each
        play(pooled, step, lambda index: (0, 3, 1)[index % 3])
    drawn = [i for step in range(10, 30) for i in play(pooled, step, lambda i: (0, 3, 1)[i % 3])]
    known = Counter()
    for index in drawn:
        known[index % 3] += 1
    # Of 800 groups 0.3 are hard ones (0), 0.2 easy ones (1), the rest new: a third of each.
    assert known[0] / 800 == pytest.approx(0.3 + 0.5 / 3, abs=0.05)
    assert known[1] / 800 == pytest.approx(0.2 + 0.5 / 3, abs=0.05)
    assert known[2] / 800 == pytest.approx(0.5 / 3, abs=0.05)


def test_other_tasks_and_the_number_of_groups_are_as_without_pools():
    pooled = stream()
    plain = super(PooledStream, pooled)
    for number in range(12):
        assert pooled.group(number).step == plain.group(number).step
        assert pooled.group(number).sample.task == plain.group(number).sample.task
        if pooled.group(number).sample.task == "beta":
            assert pooled.group(number) == plain.group(number)


def test_a_sample_in_play_is_not_drawn_again_until_all_are():
    pooled = stream(size=4, groups=4)
    alpha = [
        pooled.group(n).sample.index for n in range(8) if pooled.group(n).sample.task == "alpha"
    ]
    assert sorted(alpha) == [0, 1, 2, 3]
    more = [pooled.group(n).sample.index for n in range(8, 16)]
    assert len(more) == 8  # and then they simply come twice


def test_a_restored_stream_draws_what_the_unbroken_one_does():
    def win(index):
        return index % 4

    unbroken, other = stream(size=9), stream(size=9)
    for step in range(5):
        play(unbroken, step, win)
    ahead = unbroken.group(5 * 4)  # drawn, not yet played
    saved = unbroken.state()
    other.restore(saved)
    expected = [play(unbroken, step, win) for step in range(5, 20)]
    assert other.group(5 * 4) == ahead
    assert [play(other, step, win) for step in range(5, 20)] == expected


def test_pools_that_make_no_sense_are_refused():
    with pytest.raises(ConfigError, match=r"training\.pools\.a.*0\.7.*0\.5.*more than 1"):
        resolve({"tasks": {"a": {}}, "training": {"pools": {"a": {"easy": 0.7, "hard": 0.5}}}})
    with pytest.raises(ConfigError, match=r"training\.pools: 'b' is none of the tasks a"):
        resolve({"tasks": {"a": {}}, "training": {"pools": {"b": {}}}})


@pytest.mark.looptime
async def test_a_run_with_pools(tmp_path):
    """A task of four samples, of which one is never won: it comes more often than the others."""
    toy = ToyRun(
        tmp_path,
        RENDERER,
        {"echo": 4},
        steps=40,
        seconds=lambda task, g, m: 1.0,
        text=lambda g, m, turn: "a",
        max_turns=2,
        training={"pools": {"echo": {"easy": 0.0, "hard": 1.0}}},
    )
    assert await toy.run()
    assert len(toy.trained) == 80
    assert any("pool_hard/echo" in report for report in toy.reports)

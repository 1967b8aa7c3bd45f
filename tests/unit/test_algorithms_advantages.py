"""Advantages against numbers worked out by hand."""

import math
import random
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrl.algorithms.advantages import (
    Advantages,
    compute_advantages,
    group_advantages,
    token_normalize,
)
from agentrl.config.algorithm import AlgorithmConfig
from agentrl.config.load import resolve
from agentrl.errors import ConfigError

NAN = math.nan
ESTIMATORS = ("grpo", "dr-grpo", "rloo", "reinforce++")
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)


def floats(*values):
    return torch.tensor(values, dtype=torch.float64)


def ids(*values):
    return torch.tensor(values, dtype=torch.int64)


def test_mean_is_taken_over_the_group():
    out = group_advantages(floats(1, 0, 0, 0, 0.5, 1), ids(7, 7, 7, 7, 3, 3), estimator="dr-grpo")
    assert out.values.tolist() == [0.75, -0.25, -0.25, -0.25, -0.25, 0.25]
    assert not out.dead.any()


def test_std_is_unbiased():
    out = group_advantages(floats(1, 0, 0, 0), ids(0, 0, 0, 0), estimator="grpo")
    # variance (0.75² + 3 · 0.25²) / 3 = 0.25, std 0.5
    assert out.values.tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-12)


def test_groups_are_made_by_id_whatever_the_order():
    rewards = [1.0, 0.0, 0.25, 1.0, 1.0, 0.0, 0.5, 0.5]
    groups = [4, 9, 4, 9, 4, 9, 4, 9]  # interleaved, as in pitfall 17
    straight = group_advantages(floats(*rewards), ids(*groups), estimator="grpo").values.tolist()
    order = list(range(8))
    random.Random(0).shuffle(order)
    shuffled = group_advantages(
        floats(*(rewards[i] for i in order)), ids(*(groups[i] for i in order)), estimator="grpo"
    ).values.tolist()
    assert shuffled == pytest.approx([straight[i] for i in order], abs=1e-12)


@pytest.mark.parametrize(
    "rewards", [[1.0] * 4, [0.0] * 4, [0.1 + 0.2, 0.3, 0.3, 0.3], [0.95] * 7 + [0.95 + 1e-7]]
)
@every_estimator
def test_group_without_spread_is_dead_and_exactly_zero(rewards, estimator):
    out = group_advantages(
        floats(*rewards), torch.zeros(len(rewards), dtype=torch.int64), estimator=estimator
    )
    assert out.values.tolist() == [0.0] * len(rewards)
    assert out.dead.all()


@pytest.mark.parametrize("rewards", [[1, 0, 0, 0], [0.95] * 7 + [0], [1, 1 - 2e-4, 1]])
@pytest.mark.parametrize("epsilon", [None, 1e-6])
@every_estimator
def test_normalized_advantages_do_not_explode(rewards, epsilon, estimator):
    """Pitfall 15."""
    out = group_advantages(
        torch.tensor(rewards, dtype=torch.float32),
        torch.zeros(len(rewards), dtype=torch.int64),
        estimator=estimator,
        epsilon=epsilon,
    )
    assert out.values.abs().max() <= 10
    assert out.values.sum().abs() < 1e-9


def test_missing_rewards_are_absent_and_enter_no_baseline():
    rewards = floats(NAN, 1, 0, 0, math.inf, 0, 0, 1)
    out = group_advantages(rewards, torch.zeros(8, dtype=torch.int64), estimator="dr-grpo")
    assert out.present.tolist() == [False, True, True, True, False, True, True, True]
    third = 1 / 3  # two of the six that are left succeed
    assert out.values[out.present].tolist() == pytest.approx(
        [1 - third, -third, -third, -third, -third, 1 - third]
    )
    assert not out.dead.any()


@every_estimator
def test_group_that_shrank_to_one_is_zero_not_its_reward(estimator):
    """Pitfall 16."""
    out = group_advantages(floats(1, NAN, NAN, 0.5), ids(0, 0, 0, 1), estimator=estimator)
    assert out.values[[0, 3]].tolist() == [0.0, 0.0]
    assert out.dead.tolist() == [True, False, False, True]  # absent is not dead
    assert out.present.tolist() == [True, False, False, True]


def test_groups_of_one_are_refused_before_anything_starts():
    with pytest.raises(ConfigError, match=r"training\.group_size.*greater than or equal to 2"):
        resolve({"tasks": {"alpha": {}}, "training": {"group_size": 1}})


def test_baseline_of_a_group_with_failures_is_that_of_its_survivors():
    """Pitfall 35: 8 episodes, 3 without a reward; the mean is over the other 5."""
    rewards = floats(1, NAN, 0, 1, NAN, 0, 0, NAN)
    out = group_advantages(rewards, torch.zeros(8, dtype=torch.int64), estimator="dr-grpo")
    assert out.values[out.present].tolist() == pytest.approx([0.6, -0.4, 0.6, -0.4, -0.4])


@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_a_large_offset_of_all_rewards_changes_nothing(offset):
    """Pitfall 15: E[x²] - mean² in float32 would cancel to noise, or below 0."""
    group = torch.zeros(8, dtype=torch.int64)
    plain = torch.tensor([1, 0, 0, 0.5, 0, 0.25, 0, 1])
    out = [group_advantages(r, group, estimator="grpo") for r in (plain, plain + offset)]
    assert out[1].values.tolist() == pytest.approx(out[0].values.tolist(), abs=1e-6)


def test_leave_one_out_is_the_mean_of_the_others():
    rewards = [1.0, 0.0, 0.25, 0.5, 0.0]
    others = [rewards[:i] + rewards[i + 1 :] for i in range(5)]
    wanted = [r - statistics.mean(rest) for r, rest in zip(rewards, others, strict=True)]
    out = group_advantages(floats(*rewards, NAN), ids(0, 0, 0, 0, 0, 0), estimator="rloo")
    assert out.values[:5].tolist() == pytest.approx(wanted, abs=1e-12)


def test_reinforce_plus_plus_is_normalised_over_the_whole_step():
    """Group means 0.5 and 0.25 in two tasks, then one mean and std over all 20 tokens."""
    tokens = [1, 4, 2, 3, 5, 5]
    centred = [0.5, -0.5, 0.75, -0.25, -0.25, -0.25]
    config = AlgorithmConfig(estimator="reinforce++", task_normalization=False)
    out = compute_advantages(
        floats(1, 0, 1, 0, 0, 0), ids(0, 0, 1, 1, 1, 1), ids(0, 0, 1, 1, 1, 1), ids(*tokens), config
    )
    every = expand(centred, tokens)
    mean, std = statistics.mean(every), statistics.stdev(every)
    assert out.values.tolist() == pytest.approx([(a - mean) / std for a in centred], abs=1e-12)


def test_a_group_with_too_few_survivors_is_dead():
    """Pitfall 35: the least size is explicit."""
    step = (
        floats(1, 0, NAN, NAN, 1, 0, 0, NAN),
        ids(0, 0, 0, 0, 1, 1, 1, 1),
        ids(*[0] * 8),
        ids(*[3] * 8),
    )
    config = AlgorithmConfig(min_group_size=3, task_normalization=False)
    out = compute_advantages(*step, config)
    assert out.dead.tolist() == [True, True, *[False] * 6]
    third = 1 / 3
    assert out.values[out.present].tolist() == pytest.approx([0, 0, 2 * third, -third, -third])
    with pytest.raises(ConfigError, match=r"min_group_size: 9 is more than training\.group_size"):
        resolve({"tasks": {"alpha": {}}, "algorithm": {"min_group_size": 9}})


def expand(values, tokens):
    return [v for v, n in zip(values, tokens, strict=True) for _ in range(n)]


def test_task_statistics_are_over_tokens():
    values, tokens = [0.75, -0.25, -0.25, -0.25, 0.5, -0.5], [2, 5, 1, 3, 4, 7]
    tasks = [0, 0, 0, 0, 1, 1]
    out = token_normalize(
        Advantages(floats(*values), torch.zeros(6, dtype=torch.bool)),
        ids(*tokens),
        ids(*tasks),
        dead_in_statistics=False,
    )
    for task in (0, 1):
        members = [i for i in range(6) if tasks[i] == task]
        every = expand([values[i] for i in members], [tokens[i] for i in members])
        mean, std = statistics.mean(every), statistics.stdev(every)
        for i in members:
            assert out.values[i].item() == pytest.approx((values[i] - mean) / std, abs=1e-12)


def dead_group_step():
    """Two live groups and one that failed as a whole; failures are long."""
    rewards = floats(1, 0, 1, 0, 0, 0)
    return rewards, ids(0, 0, 1, 1, 2, 2), ids(0, 0, 0, 0, 0, 0), ids(10, 30, 10, 30, 30, 30)


def test_dead_group_stays_at_zero_after_task_normalization():
    out = compute_advantages(*dead_group_step(), AlgorithmConfig())
    assert out.values[4:].tolist() == [0.0, 0.0]
    # 20 tokens at +0.5 and 60 at -0.5: mean -0.25, unbiased variance 80 · 0.1875 / 79
    std = math.sqrt(80 * 0.1875 / 79)
    assert out.values[:2].tolist() == pytest.approx([0.75 / std, -0.25 / std])


def test_faithful_gives_dead_groups_what_the_released_code_does():
    config = AlgorithmConfig(preset="faithful", estimator="dr-grpo", ablate=("estimator",))
    out = compute_advantages(*dead_group_step(), config)
    # with the 60 dead tokens at 0: mean (10 - 30) / 140 = -1/7, so failures come out positive
    every = expand([0.5, -0.5, 0.5, -0.5, 0.0, 0.0], [10, 30, 10, 30, 30, 30])
    expected = (0 - statistics.mean(every)) / (statistics.stdev(every) + 1e-6)
    assert out.values[4].item() == pytest.approx(expected) and expected > 0.3


def test_most_groups_dead_as_in_the_simulation_of_the_paper():
    generator = random.Random(1)
    rewards, groups, tokens = [], [], []
    for group in range(64):
        chance = 0.0 if group < 40 else 0.4
        for _ in range(8):
            success = generator.random() < chance
            rewards.append(float(success))
            groups.append(group)
            tokens.append(100 if success else 300)
    step = (floats(*rewards), ids(*groups), torch.zeros(512, dtype=torch.int64), ids(*tokens))
    corrected = compute_advantages(*step, AlgorithmConfig())
    assert (corrected.values[:320] == 0.0).all()
    faithful = compute_advantages(*step, AlgorithmConfig(preset="faithful"))
    assert 0.15 < faithful.values[0].item() < 0.4


@pytest.mark.parametrize("preset", ["corrected", "faithful"])
@pytest.mark.parametrize("tokens", [[0, 0], [1, 0], [1, 1]])
def test_task_with_hardly_a_token_has_no_nan(preset, tokens):
    config = AlgorithmConfig(preset=preset)
    out = compute_advantages(
        floats(1, 0, 1, 0), ids(0, 0, 1, 1), ids(0, 0, 1, 1), ids(5, 5, *tokens), config
    )
    assert out.present.tolist() == [True, True, *(n > 0 for n in tokens)]
    assert out.values[out.present].isfinite().all()


def test_trajectory_without_tokens_shifts_no_baseline():
    without = compute_advantages(
        floats(1, 0, 0), ids(0, 0, 0), ids(0, 0, 0), ids(3, 4, 5), AlgorithmConfig()
    )
    with_it = compute_advantages(
        floats(1, 0, 0, 0), ids(0, 0, 0, 0), ids(0, 0, 0, 0), ids(3, 4, 5, 0), AlgorithmConfig()
    )
    assert with_it.values[:3].tolist() == without.values.tolist()
    assert not with_it.present[3]


def test_empty_step():
    empty = torch.zeros(0, dtype=torch.int64)
    assert (
        len(compute_advantages(empty.double(), empty, empty, empty, AlgorithmConfig()).values) == 0
    )


def test_what_is_masked_is_in_the_baseline_but_not_in_the_statistics():
    rewards, groups, tokens = floats(1, 0, 1, 0, 0, 1), ids(0, 0, 0, 1, 1, 1), ids(2, 3, 9, 4, 9, 1)
    masked = torch.tensor([False, False, True, False, True, False])
    out = compute_advantages(
        rewards, groups, ids(*[0] * 6), tokens, AlgorithmConfig(), masked=masked
    )
    third = 1 / 3  # the masked ones are in the group means, 2/3 and 1/3
    left, sizes = [third, -2 * third, -third, 2 * third], [2, 3, 4, 1]
    every = expand(left, sizes)
    mean, std = statistics.mean(every), statistics.stdev(every)
    wanted = [(a - mean) / std for a in left]
    assert out.values[~masked].tolist() == pytest.approx(wanted, abs=1e-12)


steps = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from([0.0, 1.0, 0.5, -0.2, 1e-6, NAN]),
        st.integers(0, 50),
    ),
    min_size=1,
    max_size=30,
)
configs = st.builds(
    AlgorithmConfig,
    estimator=st.sampled_from(ESTIMATORS[:3]),
    dead_groups=st.sampled_from(["zero", "drop", "keep"]),
    task_normalization=st.booleans(),
) | st.sampled_from(
    [
        AlgorithmConfig(preset="faithful"),
        AlgorithmConfig(estimator="reinforce++", task_normalization=False),
    ]
)


def advantages_of(members, config, shift=0.0):
    groups = ids(*(g for g, _, _ in members))
    rewards = floats(*(r + shift for _, r, _ in members))
    return compute_advantages(rewards, groups, groups % 2, ids(*(n for _, _, n in members)), config)


@given(steps, configs)
def test_any_step_is_finite_bounded_and_of_unit_scale(members, config):
    groups, tokens = ids(*(g for g, _, _ in members)), ids(*(n for _, _, n in members))
    out = advantages_of(members, config)
    present = out.present
    assert present.tolist() == [n > 0 and not math.isnan(r) for _, r, n in members]
    assert out.values[present].isfinite().all()
    assert out.values[present].abs().max().item() < 60 if present.any() else True
    if config.dead_groups != "keep":
        assert (out.values[out.dead] == 0.0).all()
    whole_step = config.estimator == "reinforce++"
    if not config.task_normalization and not whole_step:
        for group in set(groups.tolist()):
            assert abs(out.values[present & (groups == group)].sum().item()) < 1e-9
        return
    for task in (0,) if whole_step else (0, 1):
        of_task = present & (whole_step | (groups % 2 == task))
        if config.dead_groups != "keep":
            of_task &= ~out.dead
        every = expand(out.values[of_task].tolist(), tokens[of_task].tolist())
        if len(every) > 1 and statistics.stdev(every) > 0:
            assert statistics.mean(every) == pytest.approx(0, abs=1e-9)
            assert statistics.stdev(every) == pytest.approx(1, abs=1e-3)


@given(steps, configs, st.floats(-5, 5))
def test_a_shift_of_all_rewards_changes_no_advantage(members, config, shift):
    plain, shifted = advantages_of(members, config), advantages_of(members, config, shift)
    torch.testing.assert_close(shifted.values, plain.values, rtol=1e-7, atol=1e-7, equal_nan=True)
    assert shifted.dead.tolist() == plain.dead.tolist()


@given(steps, configs, st.randoms(use_true_random=False))
def test_advantages_belong_to_trajectories_not_to_places(members, config, numbers):
    """Pitfall 17: in any order, interleaved or not."""
    order = list(range(len(members)))
    numbers.shuffle(order)
    plain = advantages_of(members, config)
    mixed = advantages_of([members[i] for i in order], config)
    torch.testing.assert_close(
        mixed.values, plain.values[order], rtol=1e-9, atol=1e-9, equal_nan=True
    )
    assert mixed.dead.tolist() == plain.dead[order].tolist()


@given(steps, st.sampled_from(ESTIMATORS[:3]), st.floats(-3, 3))
def test_a_group_knows_of_no_other(members, estimator, other):
    """Before normalisation over tokens, what happens in group 0 is nobody else's business."""
    config = AlgorithmConfig(estimator=estimator, task_normalization=False)
    changed = [(g, other * n if g == 0 else r, n) for g, r, n in members]
    plain, moved = advantages_of(members, config), advantages_of(changed, config)
    elsewhere = torch.tensor([g != 0 for g, _, _ in members])
    torch.testing.assert_close(
        moved.values[elsewhere], plain.values[elsewhere], rtol=0, atol=0, equal_nan=True
    )


@given(
    st.lists(st.floats(0, 1, width=16), min_size=2, max_size=9),
    st.sampled_from([0.25, 3.0, 40.0]),
)
def test_how_estimators_scale_with_rewards(rewards, factor):
    """GRPO does not, the others do; leave-one-out is the mean-centred one times n / (n - 1)."""
    if max(rewards) - min(rewards) < 1e-2:
        return
    one_group = torch.zeros(len(rewards), dtype=torch.int64)

    def of(estimator, scale=1.0):
        scaled = floats(*rewards) * scale
        return group_advantages(scaled, one_group, estimator=estimator).values

    torch.testing.assert_close(of("grpo", factor), of("grpo"))
    torch.testing.assert_close(of("dr-grpo", factor), of("dr-grpo") * factor)
    n = len(rewards)
    torch.testing.assert_close(of("rloo"), of("dr-grpo") * n / (n - 1))
    torch.testing.assert_close(of("reinforce++"), of("dr-grpo"))

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
    task_normalize,
    training_reward,
)
from agentrl.config.load import resolve
from agentrl.config.models import AlgorithmConfig
from agentrl.errors import ConfigError
from agentrl.messages import Status

NAN = math.nan


def floats(*values):
    return torch.tensor(values, dtype=torch.float64)


def ids(*values):
    return torch.tensor(values, dtype=torch.int64)


def test_mean_is_taken_over_the_group():
    out = group_advantages(floats(1, 0, 0, 0, 0.5, 1), ids(7, 7, 7, 7, 3, 3), normalize_std=False)
    assert out.values.tolist() == [0.75, -0.25, -0.25, -0.25, -0.25, 0.25]
    assert not out.dead.any()


def test_std_is_unbiased():
    out = group_advantages(floats(1, 0, 0, 0), ids(0, 0, 0, 0), normalize_std=True)
    # variance (0.75² + 3 · 0.25²) / 3 = 0.25, std 0.5
    assert out.values.tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-12)


def test_groups_are_made_by_id_whatever_the_order():
    rewards = [1.0, 0.0, 0.25, 1.0, 1.0, 0.0, 0.5, 0.5]
    groups = [4, 9, 4, 9, 4, 9, 4, 9]  # interleaved, as in pitfall 17
    straight = group_advantages(floats(*rewards), ids(*groups), normalize_std=True).values.tolist()
    order = list(range(8))
    random.Random(0).shuffle(order)
    shuffled = group_advantages(
        floats(*(rewards[i] for i in order)), ids(*(groups[i] for i in order)), normalize_std=True
    ).values.tolist()
    assert shuffled == pytest.approx([straight[i] for i in order], abs=1e-12)


@pytest.mark.parametrize(
    "rewards", [[1.0] * 4, [0.0] * 4, [0.1 + 0.2, 0.3, 0.3, 0.3], [0.95] * 7 + [0.95 + 1e-7]]
)
@pytest.mark.parametrize("normalize_std", [False, True])
def test_group_without_spread_is_dead_and_exactly_zero(rewards, normalize_std):
    out = group_advantages(
        floats(*rewards), torch.zeros(len(rewards), dtype=torch.int64), normalize_std=normalize_std
    )
    assert out.values.tolist() == [0.0] * len(rewards)
    assert out.dead.all()


@pytest.mark.parametrize("rewards", [[1, 0, 0, 0], [0.95] * 7 + [0]])
@pytest.mark.parametrize("epsilon", [None, 1e-6])
def test_normalized_advantages_do_not_explode(rewards, epsilon):
    out = group_advantages(
        torch.tensor(rewards, dtype=torch.float32),
        torch.zeros(len(rewards), dtype=torch.int64),
        normalize_std=True,
        epsilon=epsilon,
    )
    assert out.values.abs().max() <= 10
    assert out.values.sum().abs() < 1e-12


def test_missing_rewards_are_absent_and_enter_no_baseline():
    rewards = floats(NAN, 1, 0, 0, math.inf, 0, 0, 1)
    out = group_advantages(rewards, torch.zeros(8, dtype=torch.int64), normalize_std=False)
    assert out.present.tolist() == [False, True, True, True, False, True, True, True]
    third = 1 / 3  # two of the six that are left succeed
    assert out.values[out.present].tolist() == pytest.approx(
        [1 - third, -third, -third, -third, -third, 1 - third]
    )
    assert not out.dead.any()


def test_group_that_shrank_to_one_is_zero_not_its_reward():
    out = group_advantages(floats(1, NAN, NAN, 0.5), ids(0, 0, 0, 1), normalize_std=True)
    assert out.values[[0, 3]].tolist() == [0.0, 0.0]
    assert out.dead.tolist() == [True, False, False, True]  # absent is not dead
    assert out.present.tolist() == [True, False, False, True]


def test_groups_of_one_are_refused_before_anything_starts():
    with pytest.raises(ConfigError, match=r"training\.group_size.*greater than or equal to 2"):
        resolve({"tasks": {"alpha": {}}, "training": {"group_size": 1}})


def test_baseline_of_a_group_with_failures_is_that_of_its_survivors():
    """Pitfall 35: 8 episodes, 3 without a reward; the mean is over the other 5."""
    rewards = floats(1, NAN, 0, 1, NAN, 0, 0, NAN)
    out = group_advantages(rewards, torch.zeros(8, dtype=torch.int64), normalize_std=False)
    assert out.values[out.present].tolist() == pytest.approx([0.6, -0.4, 0.6, -0.4, -0.4])


@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_a_large_offset_of_all_rewards_changes_nothing(offset):
    """Pitfall 15: E[x²] - mean² in float32 would cancel to noise, or below 0."""
    group = torch.zeros(8, dtype=torch.int64)
    plain = torch.tensor([1, 0, 0, 0.5, 0, 0.25, 0, 1])
    out = [group_advantages(r, group, normalize_std=True) for r in (plain, plain + offset)]
    assert out[1].values.tolist() == pytest.approx(out[0].values.tolist(), abs=1e-6)


def test_mean_centred_is_leave_one_out_but_for_a_factor():
    rewards = [1.0, 0.0, 0.25, 0.5, 0.0]
    leave_one_out = [
        r - statistics.mean(rewards[:i] + rewards[i + 1 :]) for i, r in enumerate(rewards)
    ]
    out = group_advantages(floats(*rewards), ids(0, 0, 0, 0, 0), normalize_std=False)
    assert (out.values * 5 / 4).tolist() == pytest.approx(leave_one_out)


def expand(values, tokens):
    return [v for v, n in zip(values, tokens, strict=True) for _ in range(n)]


def test_task_statistics_are_over_tokens():
    values, tokens = [0.75, -0.25, -0.25, -0.25, 0.5, -0.5], [2, 5, 1, 3, 4, 7]
    tasks = [0, 0, 0, 0, 1, 1]
    out = task_normalize(
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
    out = compute_advantages(*dead_group_step(), AlgorithmConfig(normalize_std=False))
    assert out.values[4:].tolist() == [0.0, 0.0]
    # 20 tokens at +0.5 and 60 at -0.5: mean -0.25, unbiased variance 80 · 0.1875 / 79
    std = math.sqrt(80 * 0.1875 / 79)
    assert out.values[:2].tolist() == pytest.approx([0.75 / std, -0.25 / std])


def test_faithful_gives_dead_groups_what_the_released_code_does():
    config = AlgorithmConfig(preset="faithful", normalize_std=False)
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


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4),
            st.sampled_from([0.0, 1.0, 0.5, -0.2, 1e-6, NAN]),
            st.integers(0, 50),
        ),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from(["corrected", "faithful"]),
)
def test_any_step_is_finite_bounded_and_of_unit_scale(members, preset):
    config = AlgorithmConfig(preset=preset)
    groups = ids(*(g for g, _, _ in members))
    tasks = groups % 2
    tokens = ids(*(n for _, _, n in members))
    out = compute_advantages(floats(*(r for _, r, _ in members)), groups, tasks, tokens, config)
    present = out.present
    assert present.tolist() == [n > 0 and not math.isnan(r) for _, r, n in members]
    assert out.values[present].isfinite().all()
    assert out.values[present].abs().max().item() < 60 if present.any() else True
    if preset == "corrected":
        assert (out.values[out.dead] == 0.0).all()
    for task in (0, 1):
        of_task = present & (tasks == task)
        if not config.dead_groups_in_statistics:
            of_task &= ~out.dead
        every = expand(out.values[of_task].tolist(), tokens[of_task].tolist())
        if len(every) > 1 and statistics.stdev(every) > 0:
            assert statistics.mean(every) == pytest.approx(0, abs=1e-9)
            assert statistics.stdev(every) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("status", "reward", "replacement", "expected"),
    [
        (Status.COMPLETED, 0.0, -0.2, 0.0),
        (Status.COMPLETED, 1.0, -0.2, 1.0),
        (Status.LIMIT_REACHED, 0.0, -0.2, -0.2),
        (Status.CONTEXT_LIMIT, 0.5, -0.2, -0.2),
        (Status.INVALID_ACTION, 0.0, -0.2, -0.2),
        (Status.VALIDATION_FAILED, 0.0, -0.2, -0.2),
        (Status.LIMIT_REACHED, 0.3, None, 0.3),
        (Status.TASK_ERROR, None, -0.2, None),
        (Status.LIMIT_REACHED, None, -0.2, None),
    ],
)
def test_training_reward(status, reward, replacement, expected):
    assert training_reward(status, reward, replacement) == expected


def test_preset_fills_only_what_was_not_set():
    config = AlgorithmConfig(preset="faithful", clip_high=0.3)
    assert (config.clip_high, config.clip_low, config.kl_coefficient) == (0.3, 0.2, 1e-4)
    assert config.dead_groups_in_statistics and config.incomplete_reward == -0.2
    assert AlgorithmConfig.model_validate(config.model_dump(mode="json")) == config
    assert AlgorithmConfig().clip_high == 0.28

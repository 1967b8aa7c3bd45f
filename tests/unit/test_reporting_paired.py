"""Paired differences against values worked out by hand, and the coverage of their intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_results import evaluation

from agentrl.reporting import paired
from agentrl.reporting.paired import best_of, difference, pairs


def test_only_pairs_of_the_same_seed_and_sample_are_counted() -> None:
    episodes = pd.concat(
        [
            evaluation("a", {"alfworld": [1, 1, 0, None]}, seed=0),
            evaluation("a", {"alfworld": [1, 1, 1, 1]}, seed=1),
            evaluation("b", {"alfworld": [1, 0, 1, 1]}, seed=0),
            evaluation("b", {"alfworld": [0, 0, 0, 0]}, seed=2),
        ]
    )
    cells = pairs(episodes, "a", "b", "sampled")
    np.testing.assert_array_equal(cells["alfworld"], [[0.0, 1.0, -1.0, np.nan]])
    assert difference(cells).value == 0
    assert pairs(episodes, "a", "nothing", "sampled") == {}
    assert pairs(episodes, "a", "b", "greedy") == {}


def test_repeats_are_averaged_before_they_are_compared() -> None:
    episodes = pd.concat(
        [
            evaluation("a", {"alfworld": [1, 1]}),
            evaluation("a", {"alfworld": [0, 1]}, repeat=1),
            evaluation("b", {"alfworld": [0, 0]}),
        ]
    )
    np.testing.assert_array_equal(pairs(episodes, "a", "b", "sampled")["alfworld"], [[0.5, 1.0]])


def test_tasks_weigh_the_same_however_many_samples_they_have() -> None:
    cells = {"a": np.ones((1, 2)), "b": np.zeros((1, 8))}
    assert difference(cells).value == 0.5


def test_one_seed_gives_the_interval_over_samples() -> None:
    # 30 pairs +1, 10 pairs -1, 60 pairs 0: mean 0.2, sd sqrt(0.4 - 0.04) = 0.6, 1.96 * 0.6 / 10 = 0.118.
    cells = np.array([[1.0] * 30 + [-1.0] * 10 + [0.0] * 60])
    value, low, high, method = difference({"a": cells})
    assert value == pytest.approx(0.2) and method == "paired bootstrap"
    assert low == pytest.approx(0.2 - 0.118, abs=0.015)
    assert high == pytest.approx(0.2 + 0.118, abs=0.015)


def test_seeds_that_disagree_widen_the_interval_as_students_t_does() -> None:
    # Five seeds, each alike over its samples: 0, .1, .2, .3, .4; t(4) * sd / sqrt(5) = 0.1963.
    cells = np.repeat(np.arange(5)[:, None] / 10, 40, axis=1)
    value, low, high, _ = difference({"a": cells})
    half = 2.7764 * np.std([0, 0.1, 0.2, 0.3, 0.4], ddof=1) / np.sqrt(5)
    assert value == pytest.approx(0.2) and half == pytest.approx(0.1963, abs=1e-4)
    assert high - low == pytest.approx(2 * half, rel=0.15)


def test_pairs_that_all_agree_have_a_width_still() -> None:
    # Bonett and Price: (0 + 1) / (n + 2) each way, sqrt(2 / 12 / 12) = 0.118, times 1.96.
    value, low, high, _ = difference({"a": np.zeros((1, 10))})
    assert value == 0
    assert high == pytest.approx(0.231, abs=0.02) and low == pytest.approx(-0.231, abs=0.02)


def test_one_pair_has_no_interval_and_nothing_has_no_value() -> None:
    value, low, high, _ = difference({"a": np.array([[0.3]])})
    assert value == 0.3 and np.isnan(low) and np.isnan(high)
    assert np.isnan(difference({}).value)
    assert np.isnan(difference({"a": np.ones((1, 3)), "b": np.full((1, 3), np.nan)}).value)


def test_best_of_takes_the_highest_mean_over_tasks() -> None:
    episodes = pd.concat(
        [
            evaluation("a", {"alfworld": [1, 1, 1, 1], "dbbench": [0, 0]}),
            evaluation("b", {"alfworld": [1, 0, 1, 0], "dbbench": [1, 1]}),
        ]
    )
    assert best_of(episodes, ["a", "b"], "sampled") == "b"  # 0.5 against 0.75
    assert best_of(episodes, ["c"], "sampled") is None


@pytest.mark.parametrize(("seeds", "between"), [(1, 0.0), (3, 0.0), (3, 0.1), (5, 0.1)])
def test_intervals_cover_the_truth(
    seeds: int, between: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least 93 of 100 simulated experiments; `between`: sd of the truth between trainings."""
    monkeypatch.setattr(paired, "DRAWS", 400)
    draws = np.random.default_rng(3)
    truth, samples, hits, rounds = 0.05, 60, 0, 200
    for _ in range(rounds):
        cells = {}
        for task in ("a", "b"):
            ease = draws.uniform(0.3, 0.6, samples)
            own = ease + truth + draws.normal(0, between, (seeds, 1))
            won = draws.random((seeds, samples)) < own
            cells[task] = won.astype(float) - (draws.random((seeds, samples)) < ease)
        _, low, high, _ = difference(cells)
        hits += low <= truth <= high
    assert hits / rounds >= 0.93


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 8)).flatmap(
        lambda shape: st.lists(
            st.lists(
                st.sampled_from([-1.0, 0.0, 1.0, np.nan]), min_size=shape[1], max_size=shape[1]
            ),
            min_size=shape[0],
            max_size=shape[0],
        )
    )
)
def test_an_interval_holds_its_value_repeats_itself_and_turns_with_the_sides(
    rows: list[list[float]],
) -> None:
    cells = np.array(rows)
    found = difference({"a": cells})
    if np.isnan(found.value):
        assert np.isnan(cells).all()
        return
    assert found == difference({"a": cells.copy()}) or np.isnan(found.low)
    turned = difference({"a": -cells})
    assert turned.value == pytest.approx(-found.value)
    if not np.isnan(found.low):
        assert found.low <= found.value <= found.high
        assert turned.high - turned.low == pytest.approx(found.high - found.low, abs=0.15)

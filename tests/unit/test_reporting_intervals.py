"""Intervals against values worked out by hand and against simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.reporting.intervals import average, rate, wilson


def test_wilson_is_the_textbook_interval() -> None:
    # 8 of 10 at 95%: 0.4902 to 0.9433 (Newcombe 1998, method 3, recomputed by hand:
    # centre (0.8 + 3.8415/20) / 1.38415 = 0.71675, half width 0.22658).
    value, low, high, method = wilson(8, 10)
    assert (value, method) == (0.8, "wilson")
    assert low == pytest.approx(0.49016, abs=1e-5)
    assert high == pytest.approx(0.94332, abs=1e-5)


def test_wilson_of_nothing_and_of_all_still_has_width() -> None:
    assert wilson(0, 20)[:2] == (0.0, 0.0)
    assert wilson(0, 20).high == pytest.approx(3.8415 / 23.8415, abs=1e-5)
    assert wilson(20, 20).low == pytest.approx(20 / 23.8415, abs=1e-5)


def test_failed_episodes_are_left_out_of_a_rate() -> None:
    cells = np.array([[1.0, np.nan, 0.0, np.nan, 1.0, 1.0]])
    assert rate(cells) == wilson(3, 4)


def test_average_of_one_task_is_that_task() -> None:
    cells = np.array([[1.0] * 8 + [0.0] * 2])
    assert average({"a": cells}) == wilson(8, 10)


def test_average_of_two_equal_tasks_is_narrower_by_the_square_root_of_two() -> None:
    cells = np.array([[1.0] * 8 + [0.0] * 2])
    one = wilson(8, 10)
    both = average({"a": cells, "b": cells})
    assert both.value == 0.8
    assert both.value - both.low == pytest.approx((one.value - one.low) / np.sqrt(2))
    assert both.high - both.value == pytest.approx((one.high - one.value) / np.sqrt(2))


def test_average_needs_every_task() -> None:
    assert np.isnan(average({"a": np.array([[1.0]]), "b": np.array([[np.nan]])}).value)


def test_bootstrap_covers_the_variance_between_seeds() -> None:
    samples = 400
    alike = np.tile(np.arange(samples) % 2, (4, 1)).astype(float)
    apart = alike.copy()
    apart[0], apart[1] = 0.0, 1.0
    assert rate(alike).value == rate(apart).value == 0.5
    narrow, wide = rate(alike), rate(apart)
    assert narrow.method == wide.method == "bootstrap"
    # Between seeds the rates are 0, 1, .5, .5: sd of the mean of 4 draws = 0.354 / 2 = 0.177.
    assert wide.high - wide.low > 0.5
    # Only samples vary: 1.96 * 2 * sqrt(.25 / 400) = 0.098.
    assert narrow.high - narrow.low == pytest.approx(0.098, abs=0.012)


def test_bootstrap_repeats_itself() -> None:
    cells = (np.random.default_rng(1).random((3, 50)) < 0.4).astype(float)
    assert rate(cells) == rate(cells.copy())


def test_seeds_that_all_fail_get_a_width_from_wilson() -> None:
    assert rate(np.zeros((3, 30))) == wilson(0, 30)


def test_tasks_that_all_fail_get_a_width_too() -> None:
    value, low, high, _ = average({"a": np.zeros((3, 30)), "b": np.zeros((3, 30))})
    assert (value, low) == (0.0, 0.0)
    assert high == pytest.approx(wilson(0, 30).high / np.sqrt(2))
    half = average({"a": np.zeros((3, 30)), "b": np.tile([0.0, 1.0], (3, 15))})
    assert half.method == "bootstrap" and half.value == 0.25


@pytest.mark.parametrize("truth", [0.1, 0.5])
def test_coverage_over_samples_is_near_the_nominal_95_percent(truth: float) -> None:
    draws = np.random.default_rng(2)
    hits = 0
    for _ in range(400):
        outcome = (draws.random((1, 60)) < truth).astype(float)
        _, low, high, _ = rate(outcome)
        hits += low <= truth <= high
    assert 0.92 <= hits / 400 <= 0.98


@given(
    st.integers(1, 3).flatmap(
        lambda seeds: st.lists(
            st.lists(st.sampled_from([0.0, 1.0]), min_size=seeds, max_size=seeds),
            min_size=1,
            max_size=20,
        )
    )
)
def test_bounds_hold_the_value_and_stay_inside_one(columns: list[list[float]]) -> None:
    value, low, high, _ = rate(np.array(columns).T)
    assert 0 <= low <= value + 1e-12 and value - 1e-12 <= high <= 1

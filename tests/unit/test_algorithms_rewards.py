"""From the environment's reward to the one that training uses."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.algorithms.rewards import overlong_penalty, training_reward
from agentrl.config.algorithm import AlgorithmConfig
from agentrl.config.load import resolve
from agentrl.errors import ConfigError
from agentrl.messages import Status


@pytest.mark.parametrize(
    ("status", "reward", "replacement", "expected"),
    [
        (Status.COMPLETED, 0.0, -0.2, 0.0),
        (Status.COMPLETED, 1.0, -0.2, 1.0),
        (Status.LIMIT_REACHED, 0.0, -0.2, -0.2),
        (Status.CONTEXT_LIMIT, 0.5, -0.2, -0.2),
        (Status.INVALID_ACTION, 0.0, -0.2, -0.2),
        (Status.VALIDATION_FAILED, 1.0, -0.2, -0.2),  # a recovered win of the reference environment
        (Status.VALIDATION_FAILED, 1.0, None, 1.0),
        (Status.LIMIT_REACHED, 0.3, None, 0.3),
        (Status.TASK_ERROR, None, -0.2, None),
        (Status.LIMIT_REACHED, None, -0.2, None),
        (Status.UNKNOWN, 0.0, None, None),  # no ending at all is no failure of the policy
        (Status.RUNNING, 0.0, -0.2, None),
    ],
)
def test_training_reward(status, reward, replacement, expected):
    config = AlgorithmConfig(incomplete_reward=replacement)
    assert training_reward(status, reward, config) == expected


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("truncated", ["train", "mask", "drop"])
def test_only_dropped_truncations_lose_their_reward(status, truncated):
    config = AlgorithmConfig(truncated=truncated)
    missing = status in (Status.RUNNING, Status.UNKNOWN)
    missing |= truncated == "drop" and status in (Status.LIMIT_REACHED, Status.CONTEXT_LIMIT)
    assert (training_reward(status, 0.5, config) is None) == missing


@pytest.mark.parametrize(
    ("length", "penalty"),
    [(0, 0), (600, 0), (700, 0.25), (800, 0.5), (1000, 1.0), (1001, 1.0)],
)
def test_the_penalty_for_a_long_episode_by_hand(length, penalty):
    """Room 1000, of which the last 400 cost up to 1."""
    assert overlong_penalty(length, 1000, 400, 1.0) == pytest.approx(penalty)
    config = AlgorithmConfig(overlong_buffer=400, overlong_penalty=0.5)
    got = training_reward(Status.COMPLETED, 1.0, config, length=length, room=1000)
    assert got == pytest.approx(1 - 0.5 * penalty)


@given(st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 1000), st.floats(0, 2))
def test_the_penalty_grows_with_the_length_and_is_bounded(length, more, buffer, penalty):
    short, long = (overlong_penalty(n, 1000, buffer, penalty) for n in (length, length + more))
    assert 0 <= short <= long <= penalty
    if length <= 1000 - buffer or not buffer:
        assert short == 0


def test_a_penalty_is_on_top_of_the_reward_of_an_incomplete_ending():
    config = AlgorithmConfig(incomplete_reward=-0.2, overlong_buffer=100)
    got = training_reward(Status.CONTEXT_LIMIT, 0.0, config, length=1000, room=1000)
    assert got == pytest.approx(-1.2)
    assert math.isnan(training_reward(Status.COMPLETED, math.nan, config))


def test_a_buffer_beyond_the_room_is_refused():
    with pytest.raises(ConfigError, match=r"overlong_buffer: 2000 is more than rollout\."):
        resolve({"tasks": {"alpha": {}}, "algorithm": {"overlong_buffer": 2000}})

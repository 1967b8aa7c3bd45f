"""Throughput of the real loop on a virtual clock, against times worked out by hand."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from agentrl.errors import ConfigError
from agentrl.pipeline.sweep import COLUMNS, sweep, write_csv
from agentrl.pipeline.timed import Durations, Load, Measured, Mode, measure

STILL = {"sigma": 0.0, "turns": 1.0, "words": 10.0, "groups": 2, "size": 2, "steps": 3}
"""Every episode is alike: one turn, nothing drawn."""


def timed(mode: Mode, train: float, latency: float = 0.0, concurrency: int = 4) -> Measured:
    """4 episodes a step; a token takes 0.01 s whatever the batch, a trained one `train` s."""
    durations = Durations(decode_step=0.01, decode_row=0.0, train_token=train)
    return measure(Load(mode, latency, concurrency, durations=durations, **STILL))


def test_a_synchronous_step_is_generation_and_then_training() -> None:
    free = timed("sync", 0.0)
    episode = 0.01 * free.tokens / (3 * 4)  # seconds of its tokens, 4 at once
    assert free.seconds == pytest.approx(3 * episode)
    assert free.learner_idle == pytest.approx(1.0) and free.staleness_max == 0
    # Half as many places: two rounds a step. An answer and a start of 0.5 s each are waited for.
    assert timed("sync", 0.0, concurrency=2).seconds == pytest.approx(3 * 2 * episode)
    assert timed("sync", 0.0, latency=0.5).seconds == pytest.approx(3 * (episode + 1.0))


def test_an_asynchronous_step_is_the_longer_of_the_two() -> None:
    free = timed("sync", 0.0)
    episode = free.seconds / 3
    # Training that takes as long as generation: hidden behind it, where the synchronous loop adds it.
    alone = timed("sync", 0.001)
    train = (alone.seconds - free.seconds) / 3
    both = 0.001 * episode / train  # seconds a token, so that a step trains as long as it generates
    assert timed("sync", both).seconds == pytest.approx(3 * 2 * episode)
    for mode in ("one-step-off", "async"):
        overlapped = timed(mode, both)
        assert overlapped.seconds == pytest.approx(3 * episode, rel=1e-6)
        assert overlapped.learner_idle == pytest.approx(0.0, abs=1e-6)
        assert overlapped.tokens == free.tokens
    assert timed("async", both).tokens_per_second == pytest.approx(free.tokens_per_second)


def test_every_mode_plays_the_same_episodes_and_twice_the_same() -> None:
    loads = [Load(mode, 0.1, 8, steps=2, groups=2, size=2) for mode in ("sync", "async")]
    first, second = (measure(load, seed=5) for load in loads)
    assert first.tokens == second.tokens
    assert measure(loads[1], seed=5) == second
    assert measure(loads[1], seed=6) != second
    assert second.staleness_max <= 2


def test_a_sweep_is_a_row_a_place(tmp_path: Path) -> None:
    write_csv(tmp_path / "scaling.csv", sweep([0.0], [4], [0], 1))
    table = pd.read_csv(tmp_path / "scaling.csv")
    assert tuple(table.columns) == COLUMNS
    assert list(zip(table["concurrency"], table["mode"], strict=True)) == list(
        product((4,), ("sync", "one-step-off", "async"))
    )
    assert (table["tokens"] > 0).all()
    with pytest.raises(ConfigError, match=r"not \[-1\], \[4\], 1"):
        write_csv(tmp_path / "x.csv", sweep([-1], [4], [0], 1))
    assert not (tmp_path / "x.csv").exists()

"""Claims on made-up results whose answers are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_results import evaluation, training_history

from agentrl.reporting import claims
from agentrl.reporting.claims import CLAIMS, claims_table, to_markdown, verdict, write_claims
from agentrl.reporting.intervals import Interval
from agentrl.reporting.speed import efficiency, falls, largest_fall

SEEDS = (0, 1, 2)
STARTS = {"multi-task": "cloned", "cloned": "base"}


def _row(row: str, solved: int, seeds: tuple[int, ...] = SEEDS) -> pd.DataFrame:
    """The first `solved` of 100 samples of both tasks, in every seed."""
    outcome = [1.0] * solved + [0.0] * (100 - solved)
    tasks = {"alfworld": outcome, "dbbench": outcome}
    return pd.concat([evaluation(row, tasks, seed=seed) for seed in seeds])


def _history(run: str, seconds: float = 3.2, seeds: tuple[int, ...] = SEEDS) -> pd.DataFrame:
    frames = []
    for seed in seeds:
        made = training_history(("alfworld", "dbbench"), seed)
        frames.append(made.assign(run=run, seed=seed, seconds=seconds))
    return pd.concat(frames)


def _found(episodes: pd.DataFrame, history: pd.DataFrame) -> pd.DataFrame:
    return claims_table(episodes, history, STARTS).set_index("claim")


@pytest.fixture(scope="module")
def decided() -> pd.DataFrame:
    episodes = pd.concat(
        [
            _row("cloned", 30),
            _row("cloned-plus", 60),
            _row("multi-task", 60),
            _row("single-alfworld", 62),
            _row("single-dbbench", 62),
            _row("without-cross-policy", 40),
            _row("without-task-normalization", 75),
        ]
    )
    runs = ("multi-task", "without-task-normalization", "synchronous")
    history = pd.concat(_history(run, 6.4 if run == "synchronous" else 3.2) for run in runs)
    return _found(episodes, history)


def test_a_gain_a_tie_and_a_loss_are_told_apart(decided: pd.DataFrame) -> None:
    assert decided.loc["rl-improves", "value"] == pytest.approx(0.3)
    assert decided.loc["rl-improves", "other"] == "cloned"
    assert decided.loc["rl-improves", "verdict"] == "shown"
    assert decided.loc["cross-policy-helps", "verdict"] == "shown"
    # An ablation that is better by 15 points: whatever the claim says, it is ruled out.
    assert decided.loc["normalization-helps", "value"] == pytest.approx(-0.15)
    assert decided.loc["normalization-helps", "verdict"] == "not shown"
    # As good as cloning further, on every sample: less than the least gain that counts.
    assert decided.loc["rl-beats-cloning", "value"] == 0
    assert decided.loc["rl-beats-cloning", "high"] < claims.SMALLEST
    assert decided.loc["rl-beats-cloning", "verdict"] == "not shown"


def test_as_good_as_the_specialists_means_within_the_margin(decided: pd.DataFrame) -> None:
    line = decided.loc["matches-specialists"]
    assert line["value"] == pytest.approx(-0.02) and line["low"] > -claims.MARGIN
    assert line["verdict"] == "shown"
    assert decided.loc["beats-each-specialist", "other"] == "single-alfworld"


def test_speed_is_a_ratio_of_tokens_to_seconds(decided: pd.DataFrame) -> None:
    line = decided.loc["asynchrony-is-faster"]
    assert (line["value"], line["low"]) == (pytest.approx(1.0), pytest.approx(1.0))
    assert (line["verdict"], line["pairs"], line["seeds"]) == ("shown", 3, 3)


def test_what_was_not_run_says_what_it_needs(decided: pd.DataFrame) -> None:
    assert decided.loc["both-help", "verdict"] == "not run"
    assert "--config matrix=full" in decided.loc["both-help", "note"]
    assert decided.loc["beats-api-models", "verdict"] == "not run"
    nothing = _found(_row("multi-task", 5), _history("multi-task"))
    assert set(nothing["verdict"]) == {"not run"} and len(nothing) == len(CLAIMS)


def test_fewer_than_three_seeds_decide_nothing() -> None:
    episodes = pd.concat([_row("cloned", 0, (0, 1)), _row("multi-task", 100, (0, 1))])
    line = _found(episodes, _history("multi-task")).loc["rl-improves"]
    assert line["low"] > 0.5 and line["verdict"] == "inconclusive"
    assert line["note"] == "2 of 3 seeds that a verdict needs"


def test_a_policy_of_one_task_does_not_speak_for_all() -> None:
    alone = evaluation("cloned", {"alfworld": [0.0] * 100})
    found = _found(pd.concat([_row("multi-task", 50), alone]), _history("multi-task"))
    assert found.loc["rl-improves", "verdict"] == "not run"


def test_the_largest_fall_is_that_of_the_running_mean() -> None:
    # Means over up to five steps: .5 .5 .5 .5 .5 | .4 .3 .2 .1 0 | .2: the fall is .5.
    curve = pd.Series([0.5] * 5 + [0.0] * 5 + [1.0])
    assert largest_fall(curve) == pytest.approx(0.5)
    assert largest_fall(pd.Series([0.1, 0.2, 0.3])) == 0


def test_histories_are_compared_seed_by_seed() -> None:
    history = pd.concat([_history("a", 2.0), _history("b", 4.0, (1, 2, 3))])
    gap = efficiency(history, "a", "b")["whole step"]
    np.testing.assert_allclose(gap, np.full((2, 1), np.log(2)))
    assert efficiency(history, "a", "c") == {}
    apart = falls(history, "a", "b")
    assert set(apart) == {"alfworld", "dbbench"}
    np.testing.assert_array_equal(apart["alfworld"], [[0.0], [0.0]])


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1), st.integers(0, 9))
def test_a_verdict_follows_from_the_interval(
    value: float, down: float, up: float, seeds: int
) -> None:
    interval = Interval(value, value - down, value + up, "")
    said = verdict(interval, seeds, 0.0, 0.02)
    if seeds < 3:
        assert said == "inconclusive"
    else:
        assert (said == "shown") == (interval.low > 0)
        assert said != "not shown" or interval.high < 0.02
    better = verdict(Interval(value, interval.low + 1, interval.high + 1, ""), seeds, 0.0, 0.02)
    order = ["not shown", "inconclusive", "shown"]
    assert order.index(better) >= order.index(said), "a better interval never gets a worse verdict"


def test_files_are_for_people_and_for_programs(decided: pd.DataFrame, tmp_path: Path) -> None:
    table = decided.reset_index()
    write_claims(table, tmp_path / "results" / "claims.csv", tmp_path / "figures" / "claims")
    again = pd.read_csv(tmp_path / "results" / "claims.csv")
    assert list(again["verdict"]) == list(table["verdict"])
    text = to_markdown(table)
    assert "| +30.0 [" in text and "not run (train it: `--config matrix=full`)" in text
    assert text == (tmp_path / "figures" / "claims.md").read_text()
    assert (tmp_path / "figures" / "claims.tex").read_text().count(r"\\") == len(CLAIMS) + 2

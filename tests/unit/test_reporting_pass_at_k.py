"""pass@k: the unbiased estimator, exactly, and curves from made-up attempts."""

from __future__ import annotations

import hashlib
import json
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_results import evaluation

from agentrl.reporting import pass_at_k
from agentrl.reporting.pass_at_k import curves, draw, estimate, wide


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_the_estimate_is_the_share_of_draws_that_hold_a_solved_attempt(n: int) -> None:
    for c in range(n + 1):
        for k in range(1, n + 1):
            drawn = list(combinations(range(n), k))
            share = sum(min(draw) < c for draw in drawn) / len(drawn)
            assert estimate(n, c, k) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("p", [0.0, 0.03, 0.5, 1.0])
@pytest.mark.parametrize("k", [1, 7, 64])
def test_the_estimate_is_unbiased(p: float, k: int) -> None:
    """Over the binomial distribution of c its mean is 1 - (1 - p)^k."""
    n = 64
    mass = [comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    mean = sum(weight * estimate(n, c, k) for c, weight in enumerate(mass))
    assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


def test_fewer_attempts_than_k_say_nothing() -> None:
    assert np.isnan(estimate(3, 3, 4)) and estimate(4, 0, 4) == 0.0 and estimate(4, 1, 4) == 1.0


def attempts(row: str, task: str, solved: list[int], n: int, seed: int = 0) -> pd.DataFrame:
    """`solved[i]` of the n attempts at sample i are solved."""
    return pd.concat(
        evaluation(row, {task: [float(a < c) for c in solved]}, seed=seed, repeat=a)
        for a in range(n)
    )


@pytest.fixture
def episodes() -> pd.DataFrame:
    parts = [
        attempts("cloned", "alfworld", [0, 1, 4], 4),
        attempts("cloned", "dbbench", [2, 2, 2], 4),
        attempts("mixture", "alfworld", [1, 1, 1], 4),
        attempts("mixture", "dbbench", [0, 0, 4], 4),
    ]
    return pd.concat(parts, ignore_index=True)


def value(table: pd.DataFrame, row: str, task: str, k: int) -> float:
    found = table[(table["row"] == row) & (table["task"] == task) & (table["k"] == k)]
    assert len(found) == 1
    return float(found["value"].iloc[0])


def test_curves_by_hand(episodes: pd.DataFrame) -> None:
    table = curves(episodes)
    assert sorted(set(table["k"])) == [1, 2, 4]
    # pass@2 of 1 in 4 is 1 - C(3,2)/C(4,2) = 1/2; of 2 in 4 is 1 - 1/6 = 5/6.
    assert value(table, "cloned", "alfworld", 1) == pytest.approx((0 + 0.25 + 1) / 3)
    assert value(table, "cloned", "alfworld", 2) == pytest.approx((0 + 0.5 + 1) / 3)
    assert value(table, "cloned", "alfworld", 4) == pytest.approx(2 / 3)
    assert value(table, "cloned", "dbbench", 2) == pytest.approx(5 / 6)
    assert value(table, "cloned", "average", 2) == pytest.approx((0.5 + 5 / 6) / 2)
    assert value(table, "mixture", "alfworld", 4) == 1.0
    line = table[(table["row"] == "cloned") & (table["task"] == "average")].iloc[0]
    assert (line["samples"], line["attempts"], line["seeds"]) == (6, 4, 1)
    assert (table["low"] <= table["value"] + 1e-12).all()
    assert (table["high"] >= table["value"] - 1e-12).all()


def test_the_interval_is_over_samples() -> None:
    """Half of 100 samples always solved, half never: sd of the mean 0.05, whatever the attempts."""
    table = curves(attempts("cloned", "alfworld", [8] * 50 + [0] * 50, 8), ks=[4])
    line = table.iloc[0]
    assert line["value"] == 0.5 and line["method"] == "bootstrap"
    assert line["high"] - line["low"] == pytest.approx(2 * 1.96 * 0.05, abs=0.02)


def test_failed_episodes_are_no_attempts() -> None:
    played = attempts("cloned", "alfworld", [1, 1], 4)
    lost = (played["index"] == 0) & (played["repeat"] == 3)
    played.loc[lost, ["success", "reward"]] = np.nan
    table = curves(played, ks=[2, 4])
    # Sample 0: 1 in 3, so 1 - 1/3; sample 1: 1 in 4, so 1/2. k = 4 is left to sample 1.
    assert value(table, "cloned", "alfworld", 2) == pytest.approx((2 / 3 + 0.5) / 2)
    assert value(table, "cloned", "alfworld", 4) == 1.0


def test_the_figure_has_a_panel_a_task_and_is_the_same_every_time(
    episodes: pd.DataFrame, tmp_path: Path
) -> None:
    table = curves(episodes)
    figure = draw(table)
    assert [axis.get_title() for axis in figure.axes] == ["alfworld", "dbbench", "average"]
    drawn = np.asarray(figure.axes[0].lines[0].get_ydata(), dtype=float)
    assert drawn == pytest.approx([100 * 1.25 / 3, 50.0, 200 / 3])
    assert [len(axis.collections) for axis in figure.axes] == [2, 2, 2]
    digests = [
        [hashlib.md5(path.read_bytes()).hexdigest() for path in pass_at_k.write(table, place / "f")]
        for place in (tmp_path / "a", tmp_path / "b")
    ]
    assert digests[0] == digests[1]
    assert wide(table).loc[("alfworld", "Cloned"), 4].startswith("66.7 [")


def test_files_of_seeds_are_put_together(episodes: pd.DataFrame, tmp_path: Path) -> None:
    for seed in (0, 1):
        episodes.assign(run_seed=seed).to_parquet(tmp_path / f"{seed}.parquet")
        (tmp_path / f"{seed}.provenance.json").write_text(f'{{"seed": {seed}}}')
    files = [str(tmp_path / f"{seed}.parquet") for seed in (0, 1)]
    pass_at_k.main([str(tmp_path / "all.parquet"), *files])
    assert set(pd.read_parquet(tmp_path / "all.parquet")["run_seed"]) == {0, 1}
    provenance = json.loads((tmp_path / "all.provenance.json").read_text())
    assert provenance == {"records": [{"seed": 0}, {"seed": 1}]}
    episodes[episodes["row"] != "mixture"].to_parquet(tmp_path / "0.parquet")
    with pytest.raises(SystemExit, match="has no row 'mixture'"):
        pass_at_k.main([str(tmp_path / "all.parquet"), files[0]])

"""A new run beside the published one, with p-values worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_results import evaluation, random_evaluation
from typer.testing import CliRunner

from agentrl import cli
from agentrl.errors import ConfigError, DataError
from agentrl.reporting.check_published import check, compare, holm, two_proportions
from agentrl.reporting.publish import SUMS, publish


def solved(count: int, n: int = 200) -> list[float]:
    return [1.0] * count + [0.0] * (n - count)


def line(table: pd.DataFrame, row: str, task: str) -> pd.Series:
    (found,) = [item for _, item in table.iterrows() if (item["row"], item["task"]) == (row, task)]
    return found


@pytest.fixture
def published() -> pd.DataFrame:
    return evaluation("multi-task", {"alfworld": solved(80), "dbbench": solved(100)})


def test_two_proportions_and_their_average_by_hand(published: pd.DataFrame) -> None:
    new = evaluation("multi-task", {"alfworld": solved(60), "dbbench": solved(100)})
    table = compare(published, new).comparisons
    # Pooled 140/400 = 0.35; variance 0.35 * 0.65 * (1/200 + 1/200) = 0.002275; z = -0.1 / 0.047697 = -2.0966.
    alfworld = line(table, "multi-task", "alfworld")
    assert (alfworld["published"], alfworld["new"]) == (0.4, 0.3)
    assert alfworld["difference"] == pytest.approx(-0.1)
    assert alfworld["p_value"] == pytest.approx(0.03603, abs=1e-5)
    assert alfworld["test"] == "two proportions"
    # (0.002275 + 0.25 * 0.01) / 2**2 = 0.00119375; z = -0.05 / 0.034551 = -1.4471.
    assert line(table, "multi-task", "average")["p_value"] == pytest.approx(0.14786, abs=1e-5)
    assert line(table, "multi-task", "dbbench")["p_value"] == 1.0
    # Three comparisons: 3 * 0.03603, then at least that.
    assert alfworld["p_corrected"] == pytest.approx(0.10810, abs=1e-5)
    assert set(table["verdict"]) == {"agrees"}
    assert compare(published, new, level=0.8).count("differs") == 1


def test_a_rate_that_chance_does_not_explain_differs(published: pd.DataFrame) -> None:
    new = evaluation("multi-task", {"alfworld": solved(20), "dbbench": solved(100)})
    found = compare(published, new)
    assert line(found.comparisons, "multi-task", "alfworld")["verdict"] == "differs"
    assert not found.passed and "1 differs" not in str(found)  # the average does too
    assert "2 differs" in str(found) and "largest difference 30.0 points" in str(found)


def test_missing_rows_fail_and_extra_ones_do_not(published: pd.DataFrame) -> None:
    other = evaluation("cloned", {"alfworld": solved(80), "dbbench": solved(100)})
    more = compare(published, pd.concat([published, other], ignore_index=True))
    assert more.passed and more.count("extra") == 3
    less = compare(pd.concat([published, other], ignore_index=True), published)
    assert not less.passed and less.count("missing") == 3
    lost = line(less.comparisons, "cloned", "dbbench")
    assert lost["published"] == 0.5 and np.isnan(lost["new"]) and np.isnan(lost["p_value"])


def test_rates_of_other_samples_are_not_compared(published: pd.DataFrame) -> None:
    fewer = evaluation("multi-task", {"alfworld": solved(80), "dbbench": solved(50, 100)})
    table = compare(published, fewer).comparisons
    assert line(table, "multi-task", "dbbench")["verdict"] == "other samples"
    assert line(table, "multi-task", "alfworld")["verdict"] == "agrees"


def test_failed_episodes_are_no_trials(published: pd.DataFrame) -> None:
    outcomes: Iterable[float | None] = [*solved(30, 100), *[None] * 100]
    new = evaluation("multi-task", {"alfworld": outcomes, "dbbench": solved(100)})
    # Pooled 110/300; variance 0.36667 * 0.63333 * (1/200 + 1/100) = 0.0034833; z = -0.1 / 0.059020.
    found = line(compare(published, new).comparisons, "multi-task", "alfworld")
    assert found["p_value"] == pytest.approx(0.09021, abs=1e-4)


def test_several_seeds_are_compared_by_their_intervals() -> None:
    def seeds(*counts: int) -> pd.DataFrame:
        parts = (evaluation("run", {"a": solved(c)}, seed=s) for s, c in enumerate(counts))
        return pd.concat(parts, ignore_index=True)

    # Between seeds the rates are 0.2 to 0.8: a difference of 0.1 says nothing, though 600 episodes
    # a side taken as independent would (z = 3.5).
    table = compare(seeds(40, 100, 160), seeds(60, 120, 180)).comparisons
    apart = line(table, "run", "a")
    assert apart["test"] == "intervals" and apart["p_value"] > 0.5
    spread = [
        (apart[f"{side}_high"] - apart[f"{side}_low"]) / 3.92 for side in ("published", "new")
    ]
    z = 0.1 / np.hypot(*spread)
    assert two_proportions(z, 1.0) == pytest.approx(apart["p_value"], rel=1e-3)


def test_holm_by_hand() -> None:
    corrected = holm(np.array([0.01, 0.04, np.nan, 0.03]))
    assert corrected[[0, 1, 3]] == pytest.approx([0.03, 0.06, 0.06])
    assert np.isnan(corrected[2])


def test_equal_rates_without_variance_agree() -> None:
    assert two_proportions(0.0, 0.0) == 1.0 and two_proportions(0.1, 0.0) == 0.0


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    results, shipped = tmp_path / "results", tmp_path / "published"
    results.mkdir()
    random_evaluation("multi-task").to_parquet(results / "episodes.parquet")
    for name in ("history.parquet", "provenance.json"):
        (results / name).write_text("{}")
    publish(results, shipped)
    return results, shipped


def test_the_command_prints_a_table_writes_a_csv_and_exits_by_the_verdict(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    results, shipped = folders
    arguments = ["check-published", str(results), str(shipped), "--csv", str(tmp_path / "out.csv")]
    same = CliRunner().invoke(cli.app, arguments)
    assert same.exit_code == 0, same.output
    assert "multi-task" in same.output and "6 agrees; largest difference 0.0 points" in same.output
    assert "[" in same.output  # the intervals, which are no markup
    written = pd.read_csv(tmp_path / "out.csv")
    assert len(written) == 6 and set(written["verdict"]) == {"agrees"}
    worse = random_evaluation("multi-task")
    worse.loc[:, ["success", "reward"]] = 0.0
    worse.to_parquet(results / "episodes.parquet")
    differs = CliRunner().invoke(cli.app, arguments)
    assert differs.exit_code == 1 and "6 differs" in differs.output


def test_published_files_are_verified_first(folders: tuple[Path, Path], tmp_path: Path) -> None:
    results, shipped = folders
    with pytest.raises(DataError, match=rf"none/{SUMS} does not exist"):
        check(results, tmp_path / "none")
    with pytest.raises(ConfigError, match=r"--level: 1\.5 is not between 0 and 1"):
        check(results, shipped, level=1.5)
    (shipped / "episodes.parquet").write_bytes(b"x")
    with pytest.raises(DataError, match="is not the file that was published"):
        check(results, shipped)

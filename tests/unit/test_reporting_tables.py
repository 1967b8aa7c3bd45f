"""The main table from made-up episodes whose rates are known."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pandas as pd
import pytest
from made_results import RATES, evaluation, random_evaluation, write_collected

from agentrl.errors import DataError
from agentrl.reporting import collect, publish
from agentrl.reporting.episodes import check_episodes, read_episodes, read_history
from agentrl.reporting.tables import (
    caption,
    main_table,
    published_rows,
    to_latex,
    to_markdown,
    write_main_table,
)
from agentrl.rollout.trajectory_io import read_trajectories


def _value(table: pd.DataFrame, row: str, task: str, mode: str = "sampled") -> pd.Series:
    found = table[(table["row"] == row) & (table["task"] == task) & (table["mode"] == mode)]
    assert len(found) == 1
    return found.iloc[0]


@pytest.fixture
def small() -> pd.DataFrame:
    return pd.concat(
        [
            evaluation("base", {"alfworld": [0, 0, 0, 0], "dbbench": [0, 0, 1, 0]}),
            evaluation("multi-task", {"alfworld": [1, 1, None, 0], "dbbench": [1, 1, 1, 1]}),
            evaluation("single-alfworld", {"alfworld": [1, 1, 1, 0], "dbbench": [0, 0, 0, 0]}),
            evaluation("single-dbbench", {"alfworld": [0, 0, 0, 0], "dbbench": [1, 1, 0, 0]}),
        ],
        ignore_index=True,
    )


def test_rates_averages_and_failures(small: pd.DataFrame) -> None:
    table = main_table(small)
    assert _value(table, "base", "dbbench")["success"] == 0.25
    assert _value(table, "base", "average")["success"] == 0.125
    trained = _value(table, "multi-task", "alfworld")
    assert trained["success"] == pytest.approx(2 / 3)
    assert (trained["episodes"], trained["failures"], trained["samples"]) == (4, 1, 4)


def test_specialists_are_each_taken_on_their_own_task(small: pd.DataFrame) -> None:
    table = main_table(small)
    assert _value(table, "single-task", "alfworld")["success"] == 0.75
    assert _value(table, "single-task", "dbbench")["success"] == 0.5
    assert _value(table, "single-task", "average")["success"] == 0.625


def test_rows_come_in_the_order_of_the_paper(small: pd.DataFrame) -> None:
    clones = evaluation("cloned", {"alfworld": [1], "dbbench": [1]})
    table = main_table(pd.concat([small, clones], ignore_index=True))
    assert list(dict.fromkeys(table["row"])) == [
        "base",
        "cloned",
        "multi-task",
        "single-task",
        "single-alfworld",
        "single-dbbench",
    ]


def test_seeds_are_averaged_and_counted() -> None:
    episodes = pd.concat(
        [
            evaluation("multi-task", {"alfworld": [1, 1, 1, 1]}, seed=0),
            evaluation("multi-task", {"alfworld": [0, 0, 1, 1]}, seed=1),
        ]
    )
    line = _value(main_table(episodes), "multi-task", "alfworld")
    assert (line["success"], line["seeds"], line["episodes"]) == (0.75, 2, 8)


def test_markdown_shows_rates_intervals_and_keeps_the_published_apart(small: pd.DataFrame) -> None:
    text = to_markdown(main_table(small), published_rows())
    assert "| Before training | 0.0 [0.0, 49.0] | 25.0 [4.6, 69.9] | 12.5 [" in text
    assert "66.7 [20.8, 93.9] (1 failed)" in text
    ours, published = text.split("### Published")
    assert "GPT-5" in published and "GPT-5" not in ours
    assert "RL, multi-task" in ours and "RL, multi-task" not in published
    assert "| AgentRL w/ Qwen2.5-14B-Instruct | 91.5 ± 0.9 | 72.2 ± 0.9 | 67.7 |" in published
    assert "Not comparable" in published


def test_greedy_stands_in_a_table_of_its_own(small: pd.DataFrame) -> None:
    greedy = evaluation("multi-task", {"alfworld": [1], "dbbench": [0]}, mode="greedy")
    text = to_markdown(main_table(pd.concat([small, greedy])))
    sampled, rest = text.split("### Greedy")
    assert "### Sampled" in sampled
    assert rest.count("RL, multi-task") == 1 and "Before training" not in rest


def test_latex_is_booktabs_with_every_row_of_the_same_width(small: pd.DataFrame) -> None:
    text = to_latex(main_table(small), published_rows())
    rows = [
        line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line
    ]
    assert {line.count(" & ") for line in rows} == {3}
    assert r"\toprule" in text and r"\bottomrule" in text
    assert "±" not in text and "%," not in text.split(r"\end{tabular}")[0].replace(r"\%", "")


def test_caption_names_level_split_samples_seeds_and_method(small: pd.DataFrame) -> None:
    text = caption(main_table(small))
    assert "alfworld (easy, split std, 4 samples)" in text
    assert "1 seed a row" in text and "wilson" in text


def test_published_rows_agree_with_their_printed_averages() -> None:
    published = published_rows()
    tasks = ["alfworld", "dbbench", "knowledgegraph", "os_interaction", "webshop"]
    assert len(published) == 23
    assert (published[tasks].mean(axis=1) - published["average"]).abs().max() <= 0.0501


def test_written_twice_the_table_is_the_same_bytes(tmp_path: Path) -> None:
    episodes = pd.concat([random_evaluation(row, seed) for row in RATES for seed in (0, 1)])
    digests = []
    for name in ("one", "two"):
        write_main_table(main_table(episodes), tmp_path / name)
        files = [(tmp_path / name).with_suffix(end) for end in (".csv", ".md", ".tex")]
        digests.append([hashlib.md5(file.read_bytes()).hexdigest() for file in files])
    assert digests[0] == digests[1]


def test_an_episode_that_stands_twice_is_refused() -> None:
    once = evaluation("base", {"alfworld": [0]})
    with pytest.raises(DataError, match="stands twice"):
        check_episodes(pd.concat([once, once]))


def test_two_policy_versions_in_one_evaluation_are_refused() -> None:
    mixed = evaluation("base", {"alfworld": [0, 1]}).assign(policy_version=[3, 4])
    with pytest.raises(DataError, match="base, seed 0: more than one policy version"):
        check_episodes(mixed)


def test_a_success_without_a_reward_is_refused() -> None:
    broken = evaluation("base", {"alfworld": [0, None]}).assign(success=0.0)
    with pytest.raises(DataError, match="reward and no success"):
        check_episodes(broken)


def test_a_file_without_a_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "seed0.parquet"
    evaluation("base", {"alfworld": [0]}).drop(columns="mode").to_parquet(path)
    with pytest.raises(DataError, match=r"seed0\.parquet: column 'mode' is missing"):
        read_episodes([path])
    with pytest.raises(DataError, match="does not exist"):
        read_history(tmp_path / "none.parquet")


def test_collected_files_hold_everything_once(tmp_path: Path) -> None:
    folder = write_collected(tmp_path, seeds=2)
    episodes = pd.read_parquet(folder / "episodes.parquet")
    assert len(episodes) == len(RATES) * 2 * 2 * 2 * 40  # rows, seeds, modes, tasks, samples
    history = read_history(folder / "history.parquet")
    assert set(history["run"]) == {"multi-task", "single-alfworld", "single-dbbench"}
    assert set(history["seed"]) == {0, 1}
    provenance = json.loads((folder / "provenance.json").read_text())
    line = collect.origin(provenance)
    assert line == "Made at commit 0123456789; torch 2.13.0; on 2 cores of Test CPU."
    costs = collect.budgets(provenance).set_index("policy")
    assert costs.loc["cloned", ["steps", "tokens", "minutes"]].tolist() == [4, 1200, 0.1]
    assert costs.loc["multi-task", ["steps", "tokens", "tokens_in_all"]].tolist() == [12, 600, 1800]


def test_budgets_add_up_along_the_chain_of_starts() -> None:
    records = [
        {"kind": "policy", "name": "cloned", "seed": 0, "steps": 5, "tokens": 100, "seconds": 60},
        {"kind": "policy", "name": "warm", "seed": 0, "steps": 5, "tokens": 10, "seconds": 60},
        {"kind": "policy", "name": "warm", "seed": 1, "steps": 5, "tokens": 30, "seconds": 60},
        {"kind": "policy", "name": "run", "seed": 0, "steps": 5, "tokens": 1000, "seconds": 120},
        {"kind": "evaluation", "name": "run", "seed": 0},
    ]
    starts = {"cloned": "base", "warm": "cloned", "run": "warm"}
    table = collect.budgets({"starts": starts, "records": records}).set_index("policy")
    assert table["tokens"].to_dict() == {"cloned": 100, "warm": 20, "run": 1000}
    assert table["tokens_in_all"].to_dict() == {"cloned": 100, "warm": 120, "run": 1120}
    assert table.loc["run", "minutes"] == 2 and table.loc["run", "start"] == "warm"


def test_published_files_are_checked_against_their_sums(tmp_path: Path) -> None:
    results = write_collected(tmp_path / "results")
    publish.publish(results, tmp_path / "published")
    publish.verify(tmp_path / "published")
    examples = tmp_path / "published" / "train" / "multi-task" / "seed0" / "trajectories"
    assert len(read_trajectories(examples)) == 3
    sums = (tmp_path / "published" / publish.SUMS).read_text()
    assert "train/multi-task/seed0/trajectories/step-000000.parquet" in sums
    with (tmp_path / "published" / "episodes.parquet").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DataError, match=r"episodes\.parquet is not the file that was published"):
        publish.verify(tmp_path / "published")


def test_an_unfinished_run_is_not_published(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="finish the workflow first"):
        publish.publish(tmp_path, tmp_path / "published")

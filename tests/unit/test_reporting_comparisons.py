"""Tables 4, 6 and 7 from made-up episodes whose rates are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_results import RATES, evaluation, random_evaluation

from agentrl.reporting import layout, limits
from agentrl.reporting.comparisons import (
    ablation_table,
    single_task_table,
    to_latex,
    to_markdown,
    write_comparison,
)
from agentrl.reporting.tables import main_table


@pytest.fixture
def episodes() -> pd.DataFrame:
    return pd.concat(
        [
            evaluation("multi-task", {"alfworld": [1, 1, 1, 0], "dbbench": [1, 1, 0, 0]}),
            evaluation("single-alfworld", {"alfworld": [1, 1, 1, 1], "dbbench": [0, 0, 0, 0]}),
            evaluation("single-dbbench", {"alfworld": [0, 0, 0, 0], "dbbench": [1, 1, 1, None]}),
            evaluation("without-both", {"alfworld": [1, 0, 0, 0], "dbbench": [1, 1, 0, 0]}),
        ],
        ignore_index=True,
    )


def _line(table: pd.DataFrame, row: str, task: str) -> pd.Series[Any]:
    found = table[(table["row"] == row) & (table["task"] == task) & (table["mode"] == "sampled")]
    assert len(found) == 1
    return found.iloc[0]


def test_every_single_task_policy_stands_on_every_task(episodes: pd.DataFrame) -> None:
    table = single_task_table(episodes).table
    assert list(dict.fromkeys(table["row"])) == [
        "multi-task",
        "single-alfworld",
        "single-dbbench",
        "single-task",
    ]
    assert _line(table, "single-dbbench", "alfworld")["success"] == 0
    assert _line(table, "single-dbbench", "alfworld")["difference"] == -0.75
    # The failed episode has no pair: 1, 1, 1 against 1, 1, 0.
    assert _line(table, "single-dbbench", "dbbench")["difference"] == pytest.approx(1 / 3)
    assert _line(table, "single-alfworld", "average")["difference"] == pytest.approx(-0.125)
    assert _line(table, "single-task", "average")["difference"] == pytest.approx((0.25 + 1 / 3) / 2)
    assert np.isnan(_line(table, "multi-task", "average")["difference"])


def test_ablations_are_the_variants_that_were_run_in_their_order(episodes: pd.DataFrame) -> None:
    found = ablation_table(episodes, ["without-cross-policy", "without-both"])
    assert list(dict.fromkeys(found.table["row"])) == ["multi-task", "without-both"]
    line = _line(found.table, "without-both", "alfworld")
    assert (line["success"], line["difference"]) == (0.25, -0.5)
    assert line["difference_low"] < -0.5 < line["difference_high"] <= 0
    text = to_markdown(found)
    ours, published = text.split("### Published (Table 6")
    assert "| Without both | -50.0 [" in ours and "since there is one seed" in ours
    assert "| without task normalization | – | – | 59.4 |" in published
    assert "full method" not in ours and "Not comparable" in published


def test_a_table_without_rows_is_one_clear_line(episodes: pd.DataFrame, tmp_path: Path) -> None:
    found = ablation_table(episodes, [])
    assert to_markdown(found).count("\n") == 1 and "--config matrix=full" in to_markdown(found)
    write_comparison(found, tmp_path / "none")
    assert len((tmp_path / "none.csv").read_text().splitlines()) == 1
    assert (tmp_path / "none.tex").read_text().startswith("% No variant")
    only = episodes[episodes["row"] == "multi-task"]
    assert "single_task_runs: true" in to_markdown(single_task_table(only))


def test_the_main_table_leaves_out_what_belongs_to_another(episodes: pd.DataFrame) -> None:
    assert "without-both" not in set(main_table(episodes, without=["without-both"])["row"])


def test_latex_rows_have_one_width_and_files_the_same_bytes(tmp_path: Path) -> None:
    made = pd.concat([random_evaluation(row, seed) for row in RATES for seed in (0, 1)])
    text = to_latex(single_task_table(made))
    rows = [line for line in text.splitlines() if line.endswith(r"\\") and "multicol" not in line]
    assert {line.count(" & ") for line in rows} == {3} and "–" not in text
    for name in ("one", "two"):
        write_comparison(single_task_table(made), tmp_path / name)
    for end in (".csv", ".md", ".tex"):
        one, two = ((tmp_path / name).with_suffix(end) for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_published_tables_say_where_they_come_from() -> None:
    best, multi = layout.published(4).iloc[-2:].itertuples(index=False)
    assert sum(best[1:6]) / 5 == pytest.approx(best.average, abs=0.05)
    assert sum(multi[1:6]) / 5 == pytest.approx(multi.average, abs=0.05)
    averages = layout.published(6)["average"]
    assert [round(averages[0] - value, 1) for value in averages[1:]] == [4.3, 5.6]
    assert len(layout.published(7)) == 2


def test_only_the_tasks_own_limit_counts_as_a_limit() -> None:
    episodes = evaluation("cloned", {"alfworld": [1, 0, 0, 0, None]})
    episodes["status"] = [
        "completed",
        "task limit reached",
        "agent context limit",
        "task limit reached",
        "task error",
    ]
    table = limits.limit_table(episodes)
    line = _line(table, "cloned", "alfworld")
    assert (line["share"], line["failures"]) == (0.5, 1)
    text = limits.to_markdown(table)
    assert "| Cloned | 50.0 [15.0, 85.0] (" not in text and "| Cloned | 50.0 [" in text
    assert "| Qwen2.5-14B-Instruct | 68.0 | – |" in text.split("### Published (Table 7")[1]
    assert "Episodes that the task's limit ended" in text
    dbbench = limits.limit_table(evaluation("cloned", {"dbbench": [1]}))
    assert "Published" not in limits.to_markdown(dbbench)

"""Recorded episodes: found, filtered, read, compared, and the few that are published."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from made_trajectories import trajectory

from agentrl.errors import DataError
from agentrl.messages import Status
from agentrl.reporting import catalogue as catalogue_module
from agentrl.reporting.catalogue import SAMPLE, catalogue, copy_examples, examples
from agentrl.reporting.explorer import Explorer
from agentrl.rollout.cross_policy import CURRENT, STALE
from agentrl.rollout.tokenizer import train_tokenizer
from agentrl.rollout.trajectory_io import write_trajectories
from tests.fakes import SAY

LOST = {"reward": None, "status": Status.TASK_ERROR}
LATE = {"reward": 0.0, "status": Status.LIMIT_REACHED}


def test_the_roles_of_a_run_are_those_of_the_pool() -> None:
    assert (catalogue_module.CURRENT, catalogue_module.STALE) == (CURRENT, STALE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two runs that met sample 7 at step 0; sample 8 is the multi-task run's alone."""
    write = write_trajectories
    many = tmp_path / "train/multi-task/seed0/trajectories"
    write(many / "step-000000.parquet", [trajectory(), trajectory(member=1, **LATE)])
    write(many / "step-000001.parquet", [trajectory(index=8, group_id=1, **LOST)])
    write(many / "step-000002.parquet", [trajectory(index=9, group_id=2, task="dbbench")])
    alone = tmp_path / "train/single-alfworld/seed0/trajectories"
    other = trajectory(reward=0.0, words=("open", "drop"), speakers=("current", "current"))
    write(alone / "step-000000.parquet", [other])
    mixed = tmp_path / "pass_at_k/seed0/trajectories"
    names = {"roles": ("cloned", "multi-task"), "index": 3}
    write(
        mixed / "attempts.parquet",
        [
            trajectory(speakers=("cloned", "cloned"), **names),
            trajectory(speakers=("multi-task", "cloned"), **names),
        ],
    )
    return tmp_path


def test_the_catalogue_says_who_played_what_and_where(root: Path) -> None:
    found = catalogue(root)
    assert list(found["policy"]) == [
        "cloned",
        "cloned + multi-task",
        *["multi-task"] * 4,
        "single-alfworld",
    ]
    line = found.iloc[3]
    assert (line["step"], line["index"], line["member"], line["row"]) == (0, 7, 1, 1)
    assert (line["turns"], line["sampled"], line["stale_turns"]) == (2, 2, 1)
    assert (
        line["status"] == "task limit reached" and Path(line["file"]).name == "step-000000.parquet"
    )
    assert found.iloc[0]["step"] == -1
    few = catalogue(root, files=2)
    assert set(few[few["policy"] == "multi-task"]["step"]) == {0, 2}


def test_a_file_of_something_else_is_named(root: Path) -> None:
    wrong = root / "train/multi-task/seed0/trajectories/step-000003.parquet"
    pd.DataFrame({"token_ids": [[1]]}).to_parquet(wrong)
    with pytest.raises(DataError, match=r"step-000003\.parquet holds no trajectories"):
        catalogue(root)


def test_filters_by_task_status_and_reward(root: Path) -> None:
    explorer = Explorer(root)
    assert str(explorer) == f"7 trajectories of 4 policies on 4 samples, from {root}"
    assert list(explorer.filter(task="dbbench").index) == [5]
    assert list(explorer.filter(status="task limit reached").index) == [3]
    assert list(explorer.filter(policy="multi-task", reward="1").index) == [2, 5]
    assert list(explorer.filter(reward="0..0.5").index) == [3, 6]
    assert list(explorer.filter(reward="none").index) == [4]
    assert explorer.overview().loc[("multi-task", "alfworld"), "task error"] == 1
    with pytest.raises(DataError, match="task 'chess': there is only alfworld, dbbench"):
        explorer.filter(task="chess")
    with pytest.raises(DataError, match="reward 'much': give a number"):
        explorer.filter(reward="much")
    with pytest.raises(DataError, match="episode 7: there are 0 to 6"):
        explorer.trajectory(7)


def test_an_episode_is_read_with_tools_tokens_logprobs_and_versions(root: Path) -> None:
    explorer = Explorer(root)
    tokens = explorer.tokens(2)
    assert "text" not in tokens and list(tokens["version"]) == [-1, -1, 4, -1, 2]
    assert tokens["logprob"][2] == pytest.approx(-0.6931, abs=1e-4)
    assert "<b>user</b> see &lt;box&gt;" in explorer.text(2) and "act(take)" in explorer.text(2)
    assert explorer.tools(2).to_dict("records") == [
        {"tool": "act", "arguments": "", "description": "", "calls": 2}
    ]
    settings = {"tasks": {"alfworld": {"factory": "tests.fakes:EchoTask"}}}
    (root / "provenance.json").write_text(json.dumps({"records": [{"settings": settings}]}))
    first = explorer.tools(2).iloc[0]
    assert (first["tool"], first["arguments"], first["calls"]) == ("say", "text", 0)


def test_tokens_have_text_where_the_policy_of_the_seed_lies(root: Path) -> None:
    tokenizer = train_tokenizer(["Say 7 You said stop a"] * 3, [SAY], 400)
    tokenizer.save_pretrained(root / "train/multi-task/seed0/policy")
    explorer = Explorer(root)
    assert "".join(explorer.tokens(6)["text"]) == tokenizer.decode([1, 2, 3, 4, 5])
    assert "stale v2, p=0.25" in explorer.text(2)
    (root / "train/multi-task/seed0/policy").rename(root / "policy")  # as it is published
    assert "text" in explorer.tokens(6)


def test_two_policies_on_one_sample_side_by_side(root: Path) -> None:
    explorer = Explorer(root)
    pairs = explorer.pairs()
    # Member 0 with member 0, whose rewards differ; member 1 had the same reward as the other run.
    assert pairs.to_dict("records") == [
        {
            **dict(zip(SAMPLE, (0, "alfworld", "train", 7), strict=True)),
            "first": 2,
            "second": 6,
            "reward_first": 1.0,
            "reward_second": 0.0,
        }
    ]
    table = explorer.compare(2, 6)
    assert list(table[("", "alike so far")]) == [True, False]
    assert list(table[("2: multi-task", "action")]) == ["act(open)", "act(take)"]
    assert list(table[("6: single-alfworld", "action")]) == ["act(open)", "act(drop)"]
    mixture = explorer.pairs(first="cloned", second="cloned + multi-task")
    assert list(mixture["first"]) == [0] and list(mixture["second"]) == [1]
    assert explorer.pairs("cloned", "multi-task").empty


def test_a_folder_without_trajectories_says_so_in_one_line(tmp_path: Path) -> None:
    explorer = Explorer(tmp_path)
    assert len(explorer) == 0
    assert str(explorer).startswith(f"{tmp_path} holds no trajectories: ") and "\n" not in str(
        explorer
    )


def test_examples_are_the_same_samples_of_all_policies(root: Path, tmp_path: Path) -> None:
    found = catalogue(root)
    chosen = examples(found, samples=1)
    # Step 0: the sample of both runs, with the best and the worst of the multi-task run; its last step;
    # one sample of the pass@k attempts, once a policy.
    assert list(chosen.index) == [0, 1, 2, 3, 5, 6]
    written = copy_examples(root, tmp_path / "published", samples=1)
    assert [path.relative_to(tmp_path / "published").as_posix() for path in written] == [
        "pass_at_k/seed0/trajectories/attempts.parquet",
        "train/multi-task/seed0/trajectories/step-000000.parquet",
        "train/multi-task/seed0/trajectories/step-000002.parquet",
        "train/single-alfworld/seed0/trajectories/step-000000.parquet",
    ]
    again = catalogue(tmp_path / "published")
    assert list(again["policy"]) == list(chosen["policy"])
    assert list(again["index"]) == list(chosen["index"])

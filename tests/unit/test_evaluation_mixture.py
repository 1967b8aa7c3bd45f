"""Two policies alone and mixed: who speaks, which seeds, and what is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from agentrl import cli
from agentrl.config import Config, resolve
from agentrl.config.models import PolicyConfig
from agentrl.errors import ConfigError, DataError
from agentrl.evaluation.mixture import attempts, mixture_to_file
from agentrl.evaluation.rows import Job
from agentrl.reporting.episodes import read_episodes
from agentrl.rollout.policy import create_tiny_policy
from agentrl.rollout.trajectory_io import read_trajectories
from tests.fakes import SAY, EchoTask

TEXTS = ["Say 7 You said stop"] * 2


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two untrained policies with one tokenizer."""
    small = PolicyConfig(vocab_size=400, hidden_size=16, layers=1, intermediate_size=32)
    found = {name: tmp_path_factory.mktemp("policy") / name for name in ("a", "b")}
    for seed, path in enumerate(found.values()):
        create_tiny_policy(small, TEXTS, [SAY], seed, path)
    return found


@pytest.fixture
def config() -> Config:
    return resolve(
        {
            "tasks": {"echo": {"factory": "tests.fakes:EchoTask"}},
            "training": {"start": "base"},
            "rollout": {"max_new_tokens": 6, "max_total_tokens": 120},
            "evaluation": {
                "concurrency": 4,
                "threads": 1,
                "pass_at_k": {"samples": 2, "attempts": 3, "share": 0.5},
            },
        }
    )


async def test_three_rows_of_the_same_attempts_and_their_trajectories(
    config: Config, policies: dict[str, Path], tmp_path: Path
) -> None:
    await mixture_to_file(config, policies=policies, seed=3, split="std", output=tmp_path)
    episodes = read_episodes([tmp_path / "episodes.parquet"])
    assert list(dict.fromkeys(episodes["row"])) == ["a", "b", "mixture"]
    key = ["index", "repeat"]
    played = {row: part[key].to_numpy().tolist() for row, part in episodes.groupby("row")}
    assert (
        played["a"]
        == played["b"]
        == played["mixture"]
        == [[i, r] for i in (0, 1) for r in (0, 1, 2)]
    )
    assert (tmp_path / "episodes.provenance.json").is_file()

    kept = read_trajectories(tmp_path / "trajectories" / "attempts.parquet")
    assert len(kept) == 3 * 6
    alone, other, mixed = kept[:6], kept[6:12], kept[12:]
    assert {turn.role for t in alone for turn in t.turns} == {"a"}
    assert {turn.role for t in other for turn in t.turns} == {"b"}
    spoken = [turn.role for t in mixed for turn in t.turns]
    assert set(spoken) == {"a", "b"}
    # One seed for all three: an episode of the mixture begins as that of its first speaker.
    first = {"a": alone, "b": other}
    for number, trajectory in enumerate(mixed):
        same = first[trajectory.turns[0].role][number]
        begun = trajectory.turn == 0
        assert np.array_equal(trajectory.token_ids[begun], same.token_ids[same.turn == 0])
    assert [t.member for t in alone] == [0, 1, 2, 0, 1, 2]


async def test_two_measurements_are_equal(
    config: Config, policies: dict[str, Path], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        await mixture_to_file(
            config, policies=policies, seed=3, split="std", output=tmp_path / name
        )
    one, two = (pd.read_parquet(tmp_path / n / "episodes.parquet") for n in ("one", "two"))
    pd.testing.assert_frame_equal(one, two)


def test_attempts_have_seeds_of_their_own(config: Config) -> None:
    todo = attempts(config, {"echo": EchoTask()}, "std", 7)
    assert len({job.seed for job in todo}) == len(todo) == 6

    class Empty(EchoTask):
        def samples(self, split: str) -> list[Job]:  # type: ignore[override]
            return []

    with pytest.raises(DataError, match="split 'std' has no samples"):
        attempts(config, {"echo": Empty()}, "std", 7)


async def test_policies_of_other_tokenizers_are_refused(
    config: Config, policies: dict[str, Path], tmp_path: Path
) -> None:
    small = PolicyConfig(vocab_size=300, hidden_size=16, layers=1, intermediate_size=32)
    create_tiny_policy(small, ["other words", *TEXTS], [SAY], 0, tmp_path / "c")
    given = {"a": policies["a"], "c": tmp_path / "c"}
    with pytest.raises(ConfigError, match=r"a and c have another tokenizer\.json, so they cannot"):
        await mixture_to_file(config, policies=given, seed=0, split="std", output=tmp_path)
    with pytest.raises(ConfigError, match=r"two policies and .* are needed, not 1 and 2"):
        await mixture_to_file(
            config, policies={"a": policies["a"]}, seed=0, split="std", output=tmp_path
        )


def test_the_command_wants_names_and_folders(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("tasks: {alfworld: {}}\ntraining: {start: base}\n")
    given = ["pass-at-k", "--config", str(tmp_path / "c.yaml"), "--seed", "0", "--output", "x"]
    ended = CliRunner().invoke(cli.app, [*given, "--policy", "somewhere"])
    assert isinstance(ended.exception, ConfigError)
    assert str(ended.exception) == "--policy 'somewhere': write NAME=FOLDER"

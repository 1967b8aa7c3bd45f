"""Half a run alone, and a run on two ranks: the commands, with real policies, in real processes."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from safetensors.torch import load_file
from test_training_ranks import launch
from test_training_resume import agentrl

from agentrl.pipeline.history import MEASURED_COLUMNS
from agentrl.rollout.trajectory import TOKEN_COLUMNS
from agentrl.rollout.trajectory_io import read_trajectories

SETTINGS = """
scale: test
tasks: {alfworld: {max_turns: 3}}
policy: {vocab_size: 512, hidden_size: 32, layers: 2, heads: 2, kv_heads: 1, intermediate_size: 64}
training: {steps: 2, groups_per_task: 2, group_size: 3, minibatches: 1, start: base}
rollout: {concurrency: 8, max_new_tokens: 24, max_total_tokens: 300}
# A policy that knows nothing solves nothing, but its episodes differ in length.
algorithm: {incomplete_reward: null, overlong_buffer: 290, overlong_penalty: 1.0}
"""
DEADLINE = 900


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, folder / "config.yaml"
        self.config.write_text(SETTINGS)

    def train(self, name, *options):
        """Arguments of `agentrl train` into `folder/name`."""
        return [
            "train", "--config", self.config, "--policy", self.folder / "base", "--run", name,
            "--seed", 5, "--output", self.folder / name, *options,
        ]  # fmt: skip

    def run(self, *arguments):
        done = subprocess.run(agentrl(*arguments), capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == 0, done.stderr[-3000:]
        return done

    def tokens(self, name, step):
        found = read_trajectories(self.folder / name / "trajectories" / f"step-{step:06d}.parquet")
        return [[getattr(t, column).tobytes() for column in TOKEN_COLUMNS] for t in found]

    def weights(self, name):
        return self.folder / name / "policy" / "model.safetensors"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("halves"))
    place.run(
        "policy", "create", "--config", place.config, "--seed", 5,
        "--output", place.folder / "base",
    )  # fmt: skip
    place.run(*place.train("whole", "--state", place.folder / "state"))
    return place


def test_replayed_rollouts_train_the_same_policy(place):
    place.run(*place.train("replayed", "--replay", place.folder / "whole" / "trajectories"))
    assert place.weights("replayed").read_bytes() == place.weights("whole").read_bytes()
    assert (
        place.weights("whole").read_bytes()
        != (place.folder / "base" / "model.safetensors").read_bytes()
    )
    one, other = (
        pd.read_parquet(place.folder / name / "history.parquet").drop(
            columns=[*MEASURED_COLUMNS, "buffered_episodes", "live_episodes"]
        )
        for name in ("whole", "replayed")
    )
    pd.testing.assert_frame_equal(one, other, check_exact=True)


def test_rollouts_alone_are_the_first_steps_and_the_policy_stays(place):
    place.run(*place.train("played", "--rollout-only"))
    assert place.tokens("played", 0) == place.tokens("whole", 0)
    assert not (place.folder / "played" / "policy").exists()
    for step in range(2):
        found = read_trajectories(
            place.folder / "played" / "trajectories" / f"step-{step:06d}.parquet"
        )
        assert {int(v) for t in found for v in t.policy_version[t.loss_mask]} == {0}


def test_two_ranks_replay_to_the_policy_of_one(place):
    """And the other rank leaves with the first, without a word."""
    replay = place.train("ranks", "--replay", place.folder / "whole" / "trajectories")
    program = str(Path(sys.executable).with_name("agentrl"))
    done = launch("--no_python", program, *replay)
    assert done.returncode == 0, done.stderr[-3000:]
    one, two = load_file(place.weights("whole")), load_file(place.weights("ranks"))
    largest = max(float((one[name] - two[name]).abs().max()) for name in one)
    assert 0 < largest < 1e-5


def test_two_ranks_train_behind_one_pipeline(place):
    train = place.train("both", "--state", place.folder / "both.state")
    done = launch("--no_python", str(Path(sys.executable).with_name("agentrl")), *train)
    assert done.returncode == 0, done.stderr[-3000:]
    assert place.tokens("both", 0) == place.tokens("whole", 0)
    history = pd.read_parquet(place.folder / "both" / "history.parquet")
    assert list(history[history["task"] == "*"]["step"]) == [0, 1]
    assert not (place.folder / "both.state").exists()

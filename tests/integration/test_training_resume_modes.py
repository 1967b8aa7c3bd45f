"""Invariant 9 for what is not the default: a killed run of each is the unbroken one, bit by bit."""

import subprocess

import pandas as pd
import pytest
from test_training_resume import DEADLINE, Place, agentrl, assert_same_run

SETTINGS = """
scale: test
tasks: {alfworld: {max_turns: 3, train_samples: 5}}
policy: {vocab_size: 512, hidden_size: 32, layers: 2, heads: 2, kv_heads: 1, intermediate_size: 64}
training:
  steps: 7
  start: base
  groups_per_task: 2
  group_size: 3
  snapshot_every: 2
  minibatches: 1
  oversampling: 1.5
  pools: {alfworld: {easy: 0.0, hard: 0.6}}
rollout: {concurrency: 5, max_new_tokens: 24, max_total_tokens: 300}
algorithm: {incomplete_reward: null, overlong_buffer: 290, overlong_penalty: 1.0}
"""


@pytest.mark.parametrize(
    ("mode", "bound"), [("{partial_rollouts: false}", 2), ("{mode: one-step-off}", 1)]
)
def test_killed_and_run_again(tmp_path, mode, bound):
    place = Place(tmp_path)
    place.config.write_text(f"{SETTINGS}pipeline: {mode}\n")
    subprocess.run(
        agentrl("policy", "create", "--config", place.config, "--seed", 5, "--output", tmp_path / "start"),
        check=True, capture_output=True, timeout=DEADLINE,
    )  # fmt: skip
    unbroken = place.train("unbroken")
    assert unbroken.returncode == 0, unbroken.stderr[-2000:]
    process = place.begin("killed")
    place.wait_for_step("killed", 4)
    process.kill()
    process.wait()
    done = place.train("killed")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "resume from step" in done.stderr
    assert_same_run(tmp_path / "unbroken", tmp_path / "killed")
    history = pd.read_parquet(tmp_path / "killed" / "history.parquet")
    whole = history[history["task"] == "*"]
    assert list(whole["episodes"]) == [9] * 7  # three groups played, two of them trained
    assert whole["staleness_max"].max() <= bound

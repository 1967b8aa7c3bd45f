"""A run that is killed and started again is the unbroken run: same samples, tokens and weights.

Invariant 9, pitfall 36. The killed runs are real processes, killed with SIGKILL at three moments
(between snapshots, in the middle of a step, by way of the learner's process) and stopped once with
SIGTERM; whatever is not a clock's reading must be equal bit by bit.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from agentrl.config import load
from agentrl.evaluation.audit import audit_run
from agentrl.pipeline.history import MEASURED_COLUMNS
from agentrl.rollout.trajectory import TOKEN_COLUMNS
from agentrl.rollout.trajectory_io import read_trajectories
from agentrl.training.snapshot import StateFolder

SETTINGS = """
scale: test
tasks: {alfworld: {max_turns: 4}}
policy: {vocab_size: 512, hidden_size: 32, layers: 2, heads: 2, kv_heads: 1, intermediate_size: 64}
warm_start: {episodes_per_step: {alfworld: 4}, stages: [{steps: 30, warmup_steps: 5}]}
training: {steps: 20, groups_per_task: 3, group_size: 3, snapshot_every: 3, minibatches: 1}
rollout:
  concurrency: 8
  max_new_tokens: 12
  max_total_tokens: 300
  cross_policy: {stale_ratio: 0.3, refresh_every: 2}
algorithm: {incomplete_reward: null}
"""
DEADLINE = 240


def agentrl(*arguments: object) -> list[str]:
    return [str(Path(sys.executable).with_name("agentrl")), *map(str, arguments)]


class Place:
    """A folder with a config, a policy and the command that trains it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, folder / "config.yaml"
        self.config.write_text(SETTINGS)

    def command(self, name: str) -> list[str]:
        return agentrl(
            "train", "--config", self.config, "--policy", self.folder / "start", "--run", "r",
            "--seed", 5, "--state", self.folder / f"{name}.state", "--output", self.folder / name,
        )  # fmt: skip

    def train(self, name: str, **environment: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.command(name),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )

    def begin(self, name: str) -> subprocess.Popen:
        log = (self.folder / f"{name}.log").open("ab")
        return subprocess.Popen(
            self.command(name), stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )

    def wait_for_step(self, name: str, step: int) -> None:
        file = self.folder / f"{name}.state" / "trajectories" / f"step-{step:06d}.parquet"
        deadline = time.monotonic() + DEADLINE
        while not file.exists():
            assert time.monotonic() < deadline, (self.folder / f"{name}.log").read_text()
            time.sleep(0.02)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    place = Place(tmp_path_factory.mktemp("resume"))
    for verb, arguments in (
        ("policy create", ["--output", place.folder / "base"]),
        (
            "warm-start",
            ["--policy", place.folder / "base", "--state", place.folder / "ws.state",
             "--output", place.folder / "start"],
        ),
    ):  # fmt: skip
        subprocess.run(
            agentrl(*verb.split(), "--config", place.config, "--seed", 5, *arguments),
            check=True, capture_output=True, timeout=DEADLINE,
        )  # fmt: skip
    done = place.train("unbroken", PYTHONHASHSEED="1")
    assert done.returncode == 0, done.stderr[-2000:]
    return place


def assert_same_run(one: Path, other: Path) -> None:
    assert (one / "policy/model.safetensors").read_bytes() == (
        other / "policy/model.safetensors"
    ).read_bytes()
    names = sorted(path.name for path in (one / "trajectories").iterdir())
    assert names == sorted(path.name for path in (other / "trajectories").iterdir())
    for name in names:
        pairs = zip(
            read_trajectories(one / "trajectories" / name),
            read_trajectories(other / "trajectories" / name),
            strict=True,
        )
        for a, b in pairs:
            assert (a.task, a.index, a.key, a.seed) == (b.task, b.index, b.key, b.seed)
            assert (a.status, a.reward, a.metrics) == (b.status, b.reward, b.metrics)
            for column in TOKEN_COLUMNS:
                assert getattr(a, column).tobytes() == getattr(b, column).tobytes(), column
    clockless = [
        pd.read_parquet(folder / "history.parquet").drop(columns=[*MEASURED_COLUMNS])
        for folder in (one, other)
    ]
    pd.testing.assert_frame_equal(*clockless, check_exact=True)


def test_two_runs_are_equal_and_asynchronous(place):
    done = place.train("again", PYTHONHASHSEED="2")
    assert done.returncode == 0, done.stderr[-2000:]
    assert_same_run(place.folder / "unbroken", place.folder / "again")
    history = pd.read_parquet(place.folder / "again" / "history.parquet")
    whole = history[history["task"] == "*"]
    assert whole["staleness_max"].max() >= 1  # some tokens were sampled before the newest weights
    assert whole["staleness_max"].max() <= 2  # pipeline.max_staleness
    assert 0 < whole["stale_share"].mean() < 0.6
    assert not list(place.folder.glob("again.state/*"))  # kept only until the results are there


def test_the_recorded_run_passes_its_audit(place):
    """Ids equal an independent rendering's; engine and learner agree at lag 0 (invariants 1, 2)."""
    found = audit_run(
        load([place.config]), place.folder / "start", place.folder / "unbroken/trajectories", 500
    )
    assert found.tokens.trajectories == 180 and not found.tokens.mismatches
    assert found.scored > 100 and found.gap < 1e-4
    low, high = found.stale_interval
    assert low < found.stale / found.spoken < high
    assert found.passed


@pytest.mark.parametrize(("name", "step"), [("early", 1), ("middle", 6), ("late", 10)])
def test_killed_and_run_again(place, name, step):
    process = place.begin(name)
    place.wait_for_step(name, step)
    process.kill()
    process.wait()
    done = place.train(name)
    assert done.returncode == 0, done.stderr[-2000:]
    assert ("resume from step" in done.stderr) == (step > 2)
    assert_same_run(place.folder / "unbroken", place.folder / name)


def test_a_dead_learner_ends_the_run_in_one_line_and_it_resumes(place):
    process = place.begin("learner")
    place.wait_for_step("learner", 4)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    victim = max(map(int, children))
    os.kill(victim, signal.SIGKILL)
    assert process.wait(DEADLINE) == 1
    lines = (place.folder / "learner.log").read_text().splitlines()
    assert [line for line in lines if line.startswith("error: the learner's process died")], lines
    assert not [line for line in lines if line.startswith("Traceback")]
    assert place.train("learner").returncode == 0
    assert_same_run(place.folder / "unbroken", place.folder / "learner")


def test_sigterm_saves_and_the_run_goes_on(place):
    process = place.begin("stopped")
    place.wait_for_step("stopped", 3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 143
    done = place.train("stopped")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "resume from step" in done.stderr
    assert_same_run(place.folder / "unbroken", place.folder / "stopped")


def test_a_missing_policy_is_one_line(place):
    command = place.command("nowhere")
    command[command.index("--policy") + 1] = str(place.folder / "missing")
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr


def test_a_second_trainer_is_refused(place):
    with StateFolder(place.folder / "locked.state", "of the first trainer"):
        second = place.train("locked")
    assert second.returncode == 1
    assert second.stderr.strip().splitlines()[-1].startswith("error: another trainer (pid ")

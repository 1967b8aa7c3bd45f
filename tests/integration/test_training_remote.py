"""Training and evaluation with the workers of a controller give what they give in one process.

The commands themselves, in processes of their own: `agentrl controller`, workers over each transport, two processes a task,
`agentrl train` and `agentrl evaluate` with `hosting.controller`.
"""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pandas as pd
import pytest

from agentrl.rollout.trajectory import TOKEN_COLUMNS
from agentrl.rollout.trajectory_io import read_trajectories

UNIT = Path(__file__).parents[1] / "unit"
TOKEN = "a-token-of-the-tests"
DEADLINE = 240
SETTINGS = """
scale: test
tasks: {toy: {factory: "toy_task:ToyTask"}, alfworld: {max_turns: 3, train_samples: 50}}
policy: {vocab_size: 512, hidden_size: 32, layers: 2, heads: 2, kv_heads: 1, intermediate_size: 64}
warm_start: {episodes_per_step: {toy: 4, alfworld: 2}, stages: [{steps: 30, warmup_steps: 5}]}
training: {steps: 4, groups_per_task: 2, group_size: 3, snapshot_every: 2, minibatches: 1}
rollout: {concurrency: 6, max_new_tokens: 12, max_total_tokens: 300, cross_policy: {refresh_every: 2}}
evaluation: {samples: 6, threads: 1, concurrency: 8}
"""
ENVIRONMENT = {
    **os.environ, "PYTHONPATH": str(UNIT), "OMP_NUM_THREADS": "1", "AGENTRL_TOKEN": TOKEN
}  # fmt: skip


def agentrl(*arguments: object) -> list[str]:
    return [str(Path(sys.executable).with_name("agentrl")), *map(str, arguments)]


def run(*arguments: object) -> None:
    done = subprocess.run(
        agentrl(*arguments), capture_output=True, text=True, timeout=DEADLINE, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr[-3000:]


@contextmanager
def server(log: Path, *arguments: object, lines: int = 1):
    """A command that serves until it is asked to stop; gives its first lines."""
    with (
        log.open("wb") as file,
        subprocess.Popen(
            agentrl(*arguments), stdout=subprocess.PIPE, stderr=file, env=ENVIRONMENT
        ) as child,
    ):
        try:
            assert child.stdout is not None
            said = [child.stdout.readline().decode() for _ in range(lines)]
            assert all(said), log.read_text()[-3000:]
            yield said
        finally:
            child.terminate()
            try:
                child.wait(60)
            except subprocess.TimeoutExpired:
                child.kill()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Settings, a warm-started policy, and what comes out in one process."""
    folder = tmp_path_factory.mktemp("remote")
    config = folder / "here.yaml"
    config.write_text(SETTINGS)
    run("policy", "create", "--config", config, "--seed", 0, "--output", folder / "base")
    run(
        "warm-start", "--config", config, "--policy", folder / "base", "--seed", 0,
        "--state", folder / "clone.state", "--output", folder / "start",
    )  # fmt: skip
    train(folder, "here")
    return folder


def train(folder: Path, name: str) -> None:
    run(
        "train", "--config", folder / f"{name}.yaml", "--policy", folder / "start", "--run", "r", "--seed", 3,
        "--state", folder / f"{name}.state", "--output", folder / name,
    )  # fmt: skip
    run(
        "evaluate", "--config", folder / f"{name}.yaml", "--policy", folder / name / "policy", "--name", "r",
        "--seed", 3, "--split", "train", "--output", folder / f"{name}.parquet",
    )  # fmt: skip


@contextmanager
def hosted(folder: Path, name: str, transport: str, settings: str = SETTINGS, slots: int = 4):
    """A controller, and workers of each task with `settings`; NAME.yaml has its address."""
    with ExitStack() as stack:
        start = stack.enter_context
        log = folder / f"{name}-controller.log"
        command = ("controller", "--port", 0, "--grpc-port", 0, "--state", "none")
        first, second = start(server(log, *command, lines=2))
        http = next(word for word in first.split() if word.startswith("http"))
        grpc = next(word for word in second.split() if word.startswith("grpc"))
        config = folder / f"{name}-worker.yaml"
        config.write_text(settings)
        for task in ("toy", "alfworld"):
            log = folder / f"{name}-{task}.log"
            to = f"{http}/api" if transport == "http" else grpc
            command = (
                "worker", task, "--split", "train", "--config", config, "--controller", to,
                "--port", 0, "--processes", 2, "--concurrency", slots,
            )  # fmt: skip
            start(server(log, *command))
            wait_for_workers(http, f"{task}-train", 2)
        (folder / f"{name}.yaml").write_text(f"{SETTINGS}hosting: {{controller: '{http}/api'}}\n")
        yield http


def get(url: str) -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
        return answer.read().decode()


def wait_for_workers(url: str, task: str, count: int) -> None:
    waiting, end = threading.Event(), time.monotonic() + DEADLINE
    while time.monotonic() < end:
        served = json.loads(get(f"{url}/api/list_workers"))
        if len(served.get(task, {"workers": ()})["workers"]) == count:
            return
        waiting.wait(0.1)
    pytest.fail(f"not {count} workers of {task} came")


def ended(url: str) -> int:
    """Sessions that the controller saw end, by its metrics."""
    lines = get(f"{url}/metrics").splitlines()
    counters = [line for line in lines if line.startswith("agentrl_sessions_ended_total")]
    return sum(float(line.split()[-1]) for line in counters)


def said(one):
    """All of an episode but its clocks, and the score that the protocol wants in its metrics."""
    metrics = {name: value for name, value in one.metrics.items() if name != "score"}
    turns = [(turn.assistant, turn.replies, turn.finish_reason, turn.role) for turn in one.turns]
    return one.group_id, one.member, one.reward, one.status, metrics, turns


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_where_episodes_live_changes_no_number(place, transport):
    with hosted(place, transport, transport) as url:
        train(place, transport)
        played = ended(url)
    here, there = (pd.read_parquet(place / f"{name}.parquet") for name in ("here", transport))
    pd.testing.assert_frame_equal(here, there)
    assert len(there) == 2 * 2 * 6
    assert played >= 4 * 2 * 2 * 3 + len(there)
    ours, theirs = (
        [
            one
            for file in sorted((place / name / "trajectories").glob("*.parquet"))
            for one in read_trajectories(file)
        ]
        for name in ("here", transport)
    )
    assert len(ours) == len(theirs) == 4 * 2 * 2 * 3
    for one, other in zip(ours, theirs, strict=True):
        for column in TOKEN_COLUMNS:
            assert (getattr(one, column) == getattr(other, column)).all(), column
        assert said(one) == said(other)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"settings": SETTINGS.replace("train_samples: 50", "train_samples: 49")},
            "error: config key 'tasks.alfworld': 50 samples of split train here, 49 at http",
        ),
        ({"slots": 2}, "hold 4 episodes, and 8 may be live at once; give them --concurrency"),
    ],
)
def test_workers_that_do_not_fit_are_refused_in_one_line(place, given, why):
    with hosted(place, "other", "grpc", **given):
        done = subprocess.run(
            agentrl(
                "evaluate", "--config", place / "other.yaml", "--policy", place / "start", "--name", "r",
                "--seed", 3, "--split", "train", "--output", place / "other.parquet",
            ),
            capture_output=True, text=True, timeout=DEADLINE, env=ENVIRONMENT,
        )  # fmt: skip
    assert done.returncode == 1
    assert why in done.stderr and "Traceback" not in done.stderr
    assert not (place / "other.parquet").exists()

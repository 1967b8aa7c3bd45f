"""The real chain at scale `smoke`: every stage, then nothing left to do; and a training that is killed.

Minutes, not seconds: everything here trains.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from workflow_project import Snakemake, snakemake_in

from agentrl.pipeline.history import MEASURED_COLUMNS
from agentrl.reporting.episodes import read_episodes, read_history

SMOKE = ("--config", "scale=smoke")
LONG = 40
"""Steps of the training that is killed: enough that the signal finds it at work."""
TRAINED = "results/smoke/train/multi-task/seed0"


@pytest.fixture(scope="module")
def finished(project: Path, snakemake: Snakemake) -> Path:
    """`project` after one full run."""
    done = snakemake("--cores", "2", *SMOKE)
    assert done.returncode == 0, done.stdout[-5000:]
    return project


def test_every_stage_leaves_its_results(finished: Path) -> None:
    episodes = read_episodes([finished / "results/smoke/episodes.parquet"])
    assert set(episodes["mode"]) == {"sampled", "greedy"}
    assert set(episodes["task"]) == {"alfworld", "dbbench"}
    counts = episodes.groupby(["row", "mode", "task"]).size()
    assert (counts == 4).all() and len(counts) == 9 * 2 * 2
    expert = episodes[episodes["row"] == "expert"]
    assert (expert["success"] == 1).all()
    history = read_history(finished / "results/smoke/history.parquet")
    assert history.groupby("run")["step"].nunique().to_dict() == {
        "multi-task": 3,
        "single-alfworld": 3,
        "single-dbbench": 3,
        "without-both": 3,
    }
    for name in ("main_table.md", "ablation_table.tex", "limit_table.csv", "staleness.svg"):
        assert (finished / "paper_figures/smoke" / name).stat().st_size > 0
    assert (finished / "results/smoke/notebooks/tour.ipynb").is_file()
    claims = pd.read_csv(finished / "results/smoke/claims.csv").set_index("claim")["verdict"]
    assert claims["both-help"] == "inconclusive" and claims["cross-policy-helps"] == "not run"


def test_nothing_is_left_to_do_and_no_state_is_left_behind(
    finished: Path, snakemake: Snakemake
) -> None:
    assert "Nothing to be done" in snakemake("-n", *SMOKE).stdout
    left = [path for path in (finished / "state").rglob("*") if path.is_file()]
    assert left == []


def test_a_killed_training_goes_on_and_ends_as_the_unbroken_one(
    finished: Path, tmp_path: Path
) -> None:
    """SIGTERM to the whole process group, as a scheduler does it; then the same command again."""
    target = f"{TRAINED}/history.parquet"
    for name in ("whole", "broken"):
        shutil.copytree(finished, tmp_path / name)
        (tmp_path / name / "long.yaml").write_text(f"training: {{steps: {LONG}}}\n")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    arguments = ("--cores", "2", target, "--configfile", "long.yaml", *SMOKE)
    done = snakemake_in(whole, Path(sys.executable))(*arguments)
    assert done.returncode == 0, done.stdout[-5000:]

    log = broken / "logs/smoke/train_policy/multi-task/seed0.log"
    state = broken / "state/smoke/train/multi-task/seed0"
    process = subprocess.Popen(
        [sys.executable, "-m", "snakemake", *arguments],
        cwd=broken,
        env={**os.environ, "PYTHONPATH": str(broken)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _wait(lambda: any(state.glob("snapshot*")), process, log)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(timeout=120) != 0
    assert any(state.glob("snapshot*"))
    assert not (broken / target).exists()

    again = snakemake_in(broken, Path(sys.executable))(*arguments)
    assert again.returncode == 0, again.stdout[-5000:]
    resumed = re.search(r"resume from step (\d+)", log.read_text())
    assert resumed is not None and 0 < int(resumed[1]) < LONG
    one, two = (pd.read_parquet(place / target) for place in (whole, broken))
    measured = [*MEASURED_COLUMNS]
    pd.testing.assert_frame_equal(one.drop(columns=measured), two.drop(columns=measured))
    weights = (place / TRAINED / "policy" / "model.safetensors" for place in (whole, broken))
    assert next(weights).read_bytes() == next(weights).read_bytes()


def _wait(condition, process: subprocess.Popen[bytes], log: Path) -> None:  # type: ignore[no-untyped-def]
    """Until `condition` holds; fails when the process ends first or after ten minutes."""
    deadline = time.monotonic() + 600
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text()[-3000:] if log.exists() else "no log"
            pytest.fail(f"ended too early ({process.returncode}): {said}")
        time.sleep(0.05)  # another process: there is nothing to be woken by


def test_a_forced_rerun_trains_afresh(finished: Path, snakemake: Snakemake) -> None:
    before = (finished / TRAINED / "provenance.json").read_text()
    done = snakemake("--cores", "2", "-R", "train_policy", "--until", "train_policy", *SMOKE)
    assert done.returncode == 0, done.stdout[-5000:]
    log = (finished / "logs/smoke/train_policy/multi-task/seed0.log").read_text()
    assert "resume" not in log
    assert (finished / TRAINED / "provenance.json").read_text() != before

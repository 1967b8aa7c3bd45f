"""The learner on two processes is the learner on one: gradients, metrics, weights, files.

Invariant 7: float32 to 1e-6, with gradient accumulation, uneven ranks, and every kind of loss that
needs more than its own token.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ranks_script import CASES, results
from safetensors.torch import load_file

HERE = Path(__file__).parent
DEADLINE = 900


def launch(*command, processes=2):
    """`accelerate launch` on processors, as docs/training.md says."""
    launcher = Path(sys.executable).with_name("accelerate")
    options = ["--multi_gpu", "--num_processes", processes, "--num_machines", 1]
    options += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", 0]
    return subprocess.run(
        [str(launcher), "launch", *map(str, options), *map(str, command)],
        env={**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    pytest.importorskip("peft")
    folder = tmp_path_factory.mktemp("ranks")
    done = launch(HERE / "ranks_script.py", folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder, [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]


def close(left, right):
    """To 1e-6, or 1e-6 of the largest entry."""
    assert left.keys() == right.keys()
    largest = max(float(value.abs().max()) for value in right.values())
    for name in left:
        gap = float((left[name] - right[name]).abs().max())
        assert gap <= 1e-6 * max(1.0, largest), name


@pytest.mark.parametrize("case", list(CASES))
def test_two_ranks_are_one(ranks, case, tmp_path):
    folder, (first, second) = ranks
    alone = results(case, tmp_path)
    assert (alone["ranks"], first[case]["ranks"], second[case]["ranks"]) == (1, 2, 2)
    close(first[case]["gradient"], alone["gradient"])
    for step in range(2):
        assert first[case]["metrics"][step] == second[case]["metrics"][step]
        assert first[case]["metrics"][step] == pytest.approx(
            alone["metrics"][step], rel=1e-5, abs=1e-6
        )
    assert first[case]["weights"].keys() == second[case]["weights"].keys()
    for name, value in first[case]["weights"].items():
        assert torch.equal(value, second[case]["weights"][name]), name  # not a bit apart
    close(first[case]["weights"], alone["weights"])
    for name in ("learner.safetensors", "weights-000002.safetensors"):
        close(load_file(folder / case / name), load_file(tmp_path / name))

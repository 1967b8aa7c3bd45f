"""`make gpu-check` in its CPU mode: with the packages it wants, and with stand-ins for those of a bare machine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.mark.parametrize("bare", [False, True], ids=["all packages", "stand-ins"])
def test_the_script_measures_every_part_and_writes_json(tmp_path, bare):
    out = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, SCRIPTS / "gpu_check.py", "--cpu", "--out", out],
        env={**os.environ, "OMP_NUM_THREADS": "1", "GPU_CHECK_STAND_INS": "1" if bare else ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(out.read_text())
    assert report["stood_in"] == (["pydantic", "jsonschema", "renderers"] if bare else [])
    assert report["agreement"]["tokens"] == 4 * 8
    assert report["agreement"]["max"] < 1e-5  # fp32 on both sides
    for part, figure, limit in [
        ("learner", "model_flops", "limit_flops"),
        ("engine", "tokens_per_second", "limit_tokens_per_second"),
        ("pipeline", "speed_up", "limit_speed_up"),
    ]:
        assert report[part][figure] > 0 and report[part][limit] > 0
    assert report["pipeline"]["limit_speed_up"] <= 2
    printed = done.stdout.splitlines()
    assert [line.split()[0] for line in printed[1:]] == [
        "learner", "engine", "agreement", "pipeline",
    ]  # fmt: skip


def test_without_a_gpu_it_says_so_in_one_line():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = subprocess.run(
        [sys.executable, SCRIPTS / "gpu_check.py"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: no NVIDIA GPU here")


def test_flops_of_a_step(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from gpu_check import step_flops

    model = torch.nn.Module()
    model.embed_tokens, model.layer = torch.nn.Linear(8, 100, False), torch.nn.Linear(8, 8, False)
    model.config = SimpleNamespace(hidden_size=8, num_hidden_layers=1, vocab_size=100)
    # Ten tokens of which the last is sampled: nine are read, one is scored.
    episode = SimpleNamespace(loss_mask=np.arange(10) == 9)
    body, attention, head = 6 * 64 * 9, 6 * 8 * 9 * 9, 6 * 8 * 100
    assert step_flops(model, [episode]) == body + attention + head

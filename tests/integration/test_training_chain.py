"""The real learner in its real process, and the real warm start, killed and gone on with."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

UNIT = Path(__file__).parents[1] / "unit"
sys.path.insert(0, str(UNIT))

from toy_task import TOOLS, WORDS  # noqa: E402
from training_toys import SPANS, trajectory  # noqa: E402

from agentrl.config.load import resolve  # noqa: E402
from agentrl.errors import InfrastructureError  # noqa: E402
from agentrl.rollout.policy import create_tiny_policy, load_policy  # noqa: E402
from agentrl.training.process import LearnerProcess, LocalLearner  # noqa: E402
from agentrl.training.snapshot import StateFolder  # noqa: E402

SETTINGS = {
    "tasks": {"toy": {"factory": "toy_task:ToyTask"}},
    "policy": {"hidden_size": 32, "layers": 2, "intermediate_size": 64, "max_positions": 128},
    "rollout": {"max_total_tokens": 128},
    "algorithm": {"kl_coefficient": 0.01},
    "warm_start": {"stages": [{"steps": 60}], "episodes_per_step": {"toy": 6}},
}


@pytest.fixture(scope="module")
def policy_path(tmp_path_factory):
    out = tmp_path_factory.mktemp("policies") / "base"
    texts = [f"The word is {word}. Task: say the word. Right. Wrong. wall" for word in WORDS] * 3
    create_tiny_policy(resolve(SETTINGS).policy, texts, TOOLS, 0, out)
    return out


def step_of(number, model):
    rewards = np.random.default_rng(number).integers(0, 2, 8)
    return [
        trajectory(
            SPANS[member % 4],
            float(rewards[member]),
            task="toy",
            group=2 * number + member // 4,
            member=member % 4,
            seed=number,
            version=0,
            model=model,
        )
        for member in range(8)
    ]


def test_learner_killed_in_its_process_goes_on_bit_by_bit(policy_path, tmp_path):
    config = resolve(SETTINGS)
    steps = [step_of(number, load_policy(policy_path).model) for number in range(4)]

    async def unbroken():
        learner = await LocalLearner.start(policy_path, config, 0)
        metrics = [await learner.train_step(step) for step in steps]
        reference = await learner.publish(tmp_path / "unbroken", 4)
        await learner.close()
        return metrics, reference

    async def broken():
        metrics = []
        with StateFolder(tmp_path / "state", "s") as state:
            learner = await LearnerProcess.start(policy_path, config, 0)
            metrics += [await learner.train_step(step) for step in steps[:2]]
            with state.snapshot(2) as folder:
                await learner.save(folder)
            work = asyncio.create_task(learner.train_step(steps[2]))
            await asyncio.sleep(0)
            os.kill(learner.pid, signal.SIGKILL)
            with pytest.raises(InfrastructureError, match="died in train_step"):
                await work
            await learner.close()
        with StateFolder(tmp_path / "state", "s") as state:
            learner = await LearnerProcess.start(policy_path, config, 0)
            assert await learner.load(state.resumed.path) == 2
            metrics += [await learner.train_step(step) for step in steps[2:]]
            reference = await learner.publish(tmp_path / "broken", 4)
            await learner.export_policy(tmp_path / "policy")
            await learner.close()
        return metrics, reference

    expected, left = asyncio.run(unbroken())
    metrics, right = asyncio.run(asyncio.wait_for(broken(), 300))
    assert metrics == expected
    assert "engine_gap" in metrics[0]
    assert left.sha256 == right.sha256

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "policy")
    ids = torch.tensor([tokenizer("The word is cloud.")["input_ids"]])
    before, after = load_policy(policy_path), load_policy(tmp_path / "policy", TOOLS)
    assert torch.equal(model(ids).logits, after.model(ids).logits)
    assert not torch.equal(model(ids).logits, before.model(ids).logits)
    assert after.card.provenance["training_steps"] == 4


WARM_START = """
import asyncio, json, sys
from pathlib import Path
from agentrl.config.load import resolve
from agentrl.training.warm_start import run_warm_start
def report(record):
    print(record["step"], flush=True)
settings, policy, folder = json.loads(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
report = asyncio.run(
    run_warm_start(resolve(settings), policy, folder / "out", 0, folder / "state", report)
)
sys.exit(0 if report.finished else 143)
"""


def warm_start(policy_path, folder, *, signal_at=None, number=None):
    """Run the warm start in a process of its own; the steps it did and its exit status."""
    environment = {**os.environ, "PYTHONPATH": str(UNIT)}
    command = [
        sys.executable,
        "-c",
        WARM_START,
        json.dumps(SETTINGS),
        str(policy_path),
        str(folder),
    ]
    steps = []
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            steps.append(int(line))
            if steps[-1] == signal_at:
                process.send_signal(number)
    return steps, process.returncode


@pytest.mark.parametrize(
    ("number", "status", "first"), [(signal.SIGKILL, -9, 50), (signal.SIGTERM, 143, None)]
)
def test_warm_start_killed_and_gone_on_with(policy_path, tmp_path, number, status, first):
    steps, code = warm_start(policy_path, tmp_path / "whole")
    assert (steps, code) == (list(range(60)), 0)
    steps, code = warm_start(policy_path, tmp_path / "cut", signal_at=53, number=number)
    assert code == status and steps[-1] < 59
    again, code = warm_start(policy_path, tmp_path / "cut")
    assert code == 0
    assert again[0] == (steps[-1] + 1 if first is None else first) and again[-1] == 59
    whole, cut = (
        (tmp_path / name / "out" / "model.safetensors").read_bytes() for name in ("whole", "cut")
    )
    assert whole == cut
    assert not (tmp_path / "cut" / "state").exists()

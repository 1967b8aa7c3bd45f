"""`docs/adding-a-task.md` as a newcomer follows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from agentrl.config import load, resolve
from agentrl.config.load import merge
from agentrl.config.stages import evaluated_rows
from agentrl.messages import Status
from agentrl.tasks.base import Task, call_message
from agentrl.tasks.play import play_expert
from agentrl.tasks.registry import create_task

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding-a-task.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    (tmp_path / "my_tasks").mkdir()
    (tmp_path / "my_tasks" / "numbers.py").write_text(block("python"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    base = load([ROOT / "config" / "config.yaml", ROOT / "config" / "scales" / "mini.yaml"])
    config = resolve(merge(base.model_dump(mode="json"), yaml.safe_load(block("yaml"))))
    assert "single-numbers" in evaluated_rows(config)
    assert config.warm_start.episodes_per_step["numbers"] == 8
    return create_task("numbers", config.tasks["numbers"])


async def test_the_expert_solves_what_the_page_describes(numbers: Task) -> None:
    for index in range(20):
        played = await play_expert(numbers, numbers.samples("train")[index], seed=index)
        assert (played.last.status, played.last.reward) == (Status.COMPLETED, 1.0)
        assert played.last.metrics["turns"] <= 4  # halving nine numbers


async def test_noise_makes_it_slower(numbers: Task) -> None:
    turns = {}
    for noise in (0.0, 1.0):
        played = [
            await play_expert(numbers, numbers.samples("train")[index], index, noise)
            for index in range(40)
        ]
        turns[noise] = sum(one.last.metrics["turns"] for one in played)
    assert turns[1.0] > turns[0.0]


async def test_a_call_that_does_not_fit_the_schema_never_reaches_the_task(numbers: Task) -> None:
    episode = await numbers.start(numbers.samples("std")[0], 0)
    step = await episode.step(call_message("guess", {"number": "seven"}))
    assert not step.done and "number" in step.messages[0].content
    assert step.metrics["invalid_calls"] == 1

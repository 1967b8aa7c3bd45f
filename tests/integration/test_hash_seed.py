"""What experts say does not depend on `PYTHONHASHSEED` (invariant 8): sets have no order of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PLAY = """
import asyncio, hashlib, sys
from agentrl.config.models import TaskConfig
from agentrl.tasks.play import play_expert
from agentrl.tasks.registry import create_task

async def main():
    task = create_task(sys.argv[1], TaskConfig(max_turns=12))
    told = hashlib.sha256()
    for index in range(12):
        for noise in (0.0, 0.5):
            played = await play_expert(task, task.samples("train")[index], index, noise)
            messages = (*played.opening, *played.messages)
            told.update(repr([message.to_openai() for message in messages]).encode())
    await task.close()
    print(told.hexdigest())

asyncio.run(main())
"""


@pytest.mark.parametrize("task", ["alfworld", "dbbench", "knowledgegraph", "webshop"])
def test_experts_say_the_same_under_every_hash_seed(task: str) -> None:
    told = set()
    for seed in ("0", "1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PLAY, task]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        told.add(done.stdout)
    assert len(told) == 1

"""The policy that every run starts from, before any training."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from agentrl.config import Config
from agentrl.messages import Message, ToolSpec
from agentrl.randomness import derive
from agentrl.rollout.policy import convert_pretrained, create_tiny_policy
from agentrl.tasks.base import Task
from agentrl.tasks.play import play_expert
from agentrl.tasks.registry import create_task

VOCABULARY_EPISODES = 400
"""Expert episodes per task whose texts the tokenizer is trained on."""


def create_base_policy(config: Config, seed: int, output: Path) -> None:
    """Write the folder of an untrained tiny policy, or of a converted pre-trained one."""
    if config.policy.kind == "pretrained":
        convert_pretrained(config.policy, output)
        return
    tasks = {name: create_task(name, c, config.data_root) for name, c in config.tasks.items()}
    texts, tools = asyncio.run(_vocabulary(tasks, seed))
    create_tiny_policy(config.policy, texts, tools, seed, output)


async def _vocabulary(tasks: dict[str, Task], seed: int) -> tuple[list[str], list[ToolSpec]]:
    """What is said in expert episodes of the train split, and every tool of the tasks."""
    texts: list[str] = []
    try:
        for name, task in tasks.items():
            samples = task.samples("train")
            for index in range(min(VOCABULARY_EPISODES, len(samples))):
                played = await play_expert(
                    task, samples[index], derive(seed, "vocabulary", name, index)
                )
                texts += _texts([*played.opening, *played.messages])
    finally:
        for task in tasks.values():
            await task.close()
    return texts, [tool for task in tasks.values() for tool in task.tools]


def _texts(messages: Sequence[Message]) -> list[str]:
    contents = [m.content for m in messages if m.content]
    return contents + [call.arguments for m in messages for call in m.tool_calls]

"""An expert plays a sample: for warm-start episodes, for the tokenizer's texts, for a table row."""

from __future__ import annotations

from dataclasses import dataclass

from agentrl.messages import Message
from agentrl.tasks.base import Sample, Step, Task


@dataclass(frozen=True, slots=True)
class Played:
    """A finished episode as messages: the opening, then assistant messages and replies in turn."""

    sample: Sample
    opening: tuple[Message, ...]
    messages: tuple[Message, ...]
    """Everything after the opening, the last reply included."""
    last: Step


async def play_expert(task: Task, sample: Sample, seed: int, noise: float = 0.0) -> Played:
    """One episode of `task`'s expert; `seed` decides both the episode and the expert's noise."""
    expert = task.expert(sample, seed, noise)
    episode = await task.start(sample, seed)
    try:
        new: tuple[Message, ...] = tuple(episode.messages)
        messages: list[Message] = []
        while True:
            action = expert.act(new)
            step = await episode.step(action)
            new = step.messages
            messages += [action, *new]
            if step.done:
                return Played(sample, tuple(episode.messages), tuple(messages), step)
    finally:
        await episode.close()

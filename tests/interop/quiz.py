"""A task whose outcome follows from the index and from how much is said: the same rules, written against
our Task API here and against the real one in `official_quiz.py`."""

from __future__ import annotations

from agentrl.messages import Message, Status, ToolSpec
from agentrl.tasks.base import Episode, SampleRange, Step, Task

SAMPLES = 200
TOOL = ToolSpec(
    "answer",
    "Answer the question.",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)


class QuizEpisode(Episode):
    def __init__(self, task: QuizTask, index: int) -> None:
        self.task, self.index = task, index
        self.rounds = 1 + index % 4
        self.said: list[int] = []
        self.messages = (Message("user", f"Question {index}"),)
        self.closed = 0

    async def step(self, message: Message) -> Step:
        self.said.append(len(message.content))
        left = self.rounds - len(self.said)
        if left:
            return Step((Message("user", f"{self.said[-1]} characters, {left} rounds left"),))
        status = {7: Status.LIMIT_REACHED, 8: Status.INVALID_ACTION}.get(
            self.index % 10, Status.COMPLETED
        )
        metrics = {"score": self.index / 200, "turns": self.rounds, "characters": sum(self.said)}
        return Step((), (self.index % 5) / 4, True, status, metrics)

    async def close(self) -> None:
        self.closed += 1


class QuizTask(Task):
    name = "quiz"
    tools = (TOOL,)
    level = "easy"

    def __init__(self, config=None, data_root=None) -> None:
        self.episodes: list[QuizEpisode] = []

    def samples(self, split):
        return SampleRange("quiz", split, SAMPLES)

    async def start(self, sample, seed):
        self.episodes.append(QuizEpisode(self, sample.index))
        return self.episodes[-1]

    def expert(self, sample, seed, noise=0.0):
        raise NotImplementedError

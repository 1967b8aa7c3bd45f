"""The quiz of `quiz.py` against the real `agentrl-worker` 0.4.0; runs in an environment of its own.

Also: a task that swallows no cancel (`Escaping`), which keeps its slot for ever there (a known defect).
"""

import asyncio

from agentrl.worker.task import Task
from agentrl.worker.typings import RewardHistoryItem, SampleStatus, TaskSampleExecutionResult

TOOL = {
    "type": "function",
    "function": {
        "name": "answer",
        "description": "Answer the question.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
    },
}


class Quiz(Task):
    def __init__(self, name="quiz-std", concurrency=16, **_):
        super().__init__(name=name, concurrency=concurrency, tools=[TOOL], full_async=True)

    def get_indices(self):
        return list(range(200))

    async def start_sample(self, index, session):
        rounds = 1 + index % 4
        said = []
        prompt = f"Question {index}"
        while True:
            answer = await session.action({"role": "user", "content": prompt})
            said.append(sum(len(message.get("content") or "") for message in answer.messages))
            left = rounds - len(said)
            if not left:
                break
            prompt = f"{said[-1]} characters, {left} rounds left"
        session.inject(
            RewardHistoryItem(
                reward=(index % 5) / 4,
                score=index / 200,
                metrics={"turns": rounds, "characters": sum(said)},
            )
        )
        status = {7: SampleStatus.TASK_LIMIT_REACHED, 8: SampleStatus.AGENT_INVALID_ACTION}.get(
            index % 10, SampleStatus.COMPLETED
        )
        return TaskSampleExecutionResult(status=status)


class Named(Quiz):
    """Samples with names, and custom ones."""

    def get_indices(self):
        return ["north", "south", "east", -1]

    async def start_sample(self, index, session):
        await session.action({"role": "user", "content": f"Sample {index}"})
        session.inject(RewardHistoryItem(reward=1.0))
        return TaskSampleExecutionResult()

    async def start_sample_custom(self, task, session):
        return await self.start_sample(f"custom {task['index']}", session)


class Failing(Quiz):
    """Ends in all the ways that need care: by index."""

    async def start_sample(self, index, session):
        if index == 1:
            raise OSError("no container")
        if index == 2:
            return TaskSampleExecutionResult()  # without any turn
        await session.action({"role": "user", "content": f"Question {index}"})
        if index == 3:
            raise OSError("the container died")
        if index == 4:
            return TaskSampleExecutionResult(status=SampleStatus.AGENT_CONTEXT_LIMIT)
        if index == 5:
            session.inject({"role": "user", "content": "x" * 20_000_000})
            await session.action()
        return TaskSampleExecutionResult()


class Escaping(Quiz):
    """Not `full_async`, so that a cancel is an exception which is no `Exception`: it escapes."""

    def __init__(self, **parameters):
        super().__init__(**parameters)
        self.full_async = False


class Deaf(Quiz):
    """Does not end when it is cancelled."""

    def __init__(self, **parameters):
        super().__init__(**parameters)
        self.full_async = False

    async def start_sample(self, index, session):
        await session.action({"role": "user", "content": f"Question {index}"})
        await asyncio.sleep(1000)

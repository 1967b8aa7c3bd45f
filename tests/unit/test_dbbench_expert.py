"""The expert solves what can be solved, and fails as often as it is told to."""

from __future__ import annotations

import asyncio
import json

import pytest

from agentrl.config.models import TaskConfig
from agentrl.messages import Message
from agentrl.randomness import stream
from agentrl.tasks.base import Step
from agentrl.tasks.dbbench.expert import DBBenchExpert, read_answers, spoil
from agentrl.tasks.dbbench.generator import generate
from agentrl.tasks.dbbench.sheets import LEVELS
from agentrl.tasks.dbbench.task import DBBenchTask


async def play(
    task: DBBenchTask, index: int, noise: float, seed: int = 0
) -> tuple[Step, list[Message]]:
    sample = task.samples("train")[index]
    episode = await task.start(sample, seed)
    expert = task.expert(sample, seed, noise)
    said: list[Message] = []
    news = episode.messages
    try:
        while True:
            said.append(expert.act(news))
            step = await episode.step(said[-1])
            news = step.messages
            if step.done:
                return step, said
    finally:
        await episode.close()


@pytest.mark.parametrize(
    ("level", "prompt"), [*((level, "compact") for level in LEVELS), ("hard", "agentbench")]
)
def test_without_noise_every_sample_is_solved(level: str, prompt: str) -> None:
    async def solve() -> list[float]:
        task = DBBenchTask(TaskConfig(level=level, prompt=prompt, max_turns=5))
        return [(await play(task, i, 0.0))[0].reward for i in range(500)]

    rewards = asyncio.run(solve())
    assert sum(rewards) >= 0.99 * len(rewards)


def test_noise_makes_it_unreliable_by_degrees() -> None:
    async def rate(noise: float) -> float:
        task = DBBenchTask(TaskConfig(max_turns=5))
        return sum([(await play(task, i, noise, seed=i))[0].reward for i in range(300)]) / 300

    rates = [asyncio.run(rate(noise)) for noise in (0.1, 0.3, 0.6)]
    assert rates == sorted(rates, reverse=True)
    assert 0.4 <= rates[1] <= 0.7


def test_noise_differs_by_seed_within_a_group() -> None:
    """RL needs groups that are not all right or all wrong."""

    async def mixed() -> int:
        task = DBBenchTask(TaskConfig(max_turns=5))
        groups = [
            {(await play(task, i, 0.3, seed))[0].reward for seed in range(8)} for i in range(30)
        ]
        return sum(len(rewards) == 2 for rewards in groups)

    assert asyncio.run(mixed()) >= 20


def test_answers_come_from_the_observation() -> None:
    record = next(r for i in range(99) if (r := generate("easy", "train", i)).kind == "other")
    expert = DBBenchExpert(record, quote_text=True)
    first = expert.act([Message("user", "…")])
    assert json.loads(first.tool_calls[0].arguments) == {"query": record.sql}
    second = expert.act([Message("tool", "[('seen',), ('there',)]")])
    assert json.loads(second.tool_calls[0].arguments) == {"answers": ["'seen'", "'there'"]}


@pytest.mark.parametrize(
    ("observed", "answers"),
    [
        ("[('a',), ('b',)]", ["a", "b"]),
        ("[(3,)]", ["3"]),
        ("[(12.5,)]", ["12.5"]),
        ("[(Decimal('2.5000'),)]", ["2.5"]),
        ("[(datetime.date(2020, 1, 2),)]", ["2020-01-02"]),
        ("[(None,)]", ["None"]),
        ('[("it\'s",)]', ["it's"]),
        ("[]", ["none"]),
        ("1054 (42S22): Unknown column 'x' in 'field list'", None),
        ("[('a',), ('b[TRUNCATED]", None),
    ],
)
def test_reading_results(observed: str, answers: list[str] | None) -> None:
    assert read_answers(observed, quote_text=False) == answers


def test_after_an_error_message_it_tries_again() -> None:
    record = generate("easy", "train", 0)
    expert = DBBenchExpert(record, noise=1.0)
    expert.act([Message("user", "…")])
    again = expert.act([Message("tool", "1146 (42S02): Table 'dbbench.x' doesn't exist")])
    assert again.tool_calls[0].name == "execute_sql"


@pytest.mark.parametrize("level", LEVELS)
def test_a_spoiled_statement_is_another_statement(level: str) -> None:
    for index in range(200):
        record = generate(level, "train", index)
        assert spoil(record, stream(index, "test")) != record.sql

"""The expert solves what can be solved, and fails as often as it is told to."""

from __future__ import annotations

import asyncio
import json

import pytest

from agentrl.config.models import TaskConfig
from agentrl.messages import Message, Status
from agentrl.tasks.base import Step
from agentrl.tasks.knowledgegraph.expert import KGExpert
from agentrl.tasks.knowledgegraph.records import Action, Record
from agentrl.tasks.knowledgegraph.task import KnowledgeGraphTask
from agentrl.tasks.play import play_expert

TURNS = {"easy": 8, "medium": 15, "hard": 15}


async def play(task: KnowledgeGraphTask, index: int, noise: float, seed: int = 0) -> Step:
    return (await play_expert(task, task.samples("train")[index], seed, noise)).last


@pytest.mark.parametrize(
    ("level", "prompt", "strict", "count"),
    [
        ("easy", "compact", False, 500),
        ("medium", "compact", False, 500),
        ("hard", "agentbench", False, 500),
        ("medium", "agentbench", True, 50),
    ],
)
def test_without_noise_every_sample_is_solved(
    level: str, prompt: str, strict: bool, count: int
) -> None:
    async def solve() -> list[float]:
        config = TaskConfig(
            level=level, prompt=prompt, max_turns=TURNS[level], options={"strict": strict}
        )
        task = KnowledgeGraphTask(config)
        return [(await play(task, i, 0.0)).reward for i in range(count)]

    assert sum(asyncio.run(solve())) >= 0.99 * count


def test_noise_makes_it_unreliable_by_degrees() -> None:
    async def rate(noise: float) -> float:
        task = KnowledgeGraphTask(TaskConfig(max_turns=8))
        return sum([(await play(task, i, noise, seed=i)).reward for i in range(200)]) / 200

    rates = [asyncio.run(rate(noise)) for noise in (0.1, 0.25, 0.5)]
    assert rates == sorted(rates, reverse=True)
    assert 0.3 <= rates[1] <= 0.6


def test_noise_differs_by_seed_within_a_group() -> None:
    """RL needs groups that are not all right or all wrong."""

    async def mixed() -> int:
        task = KnowledgeGraphTask(TaskConfig(max_turns=8))
        groups = [
            {(await play(task, i, 0.25, seed)).reward for seed in range(8)} for i in range(30)
        ]
        return sum(len(rewards) == 2 for rewards in groups)

    assert asyncio.run(mixed()) >= 20


def test_noise_never_breaks_an_episode() -> None:
    async def statuses() -> set[Status]:
        task = KnowledgeGraphTask(TaskConfig(level="medium", max_turns=12))
        return {(await play(task, i, 0.7, seed=i)).status for i in range(150)}

    assert asyncio.run(statuses()) <= {Status.COMPLETED, Status.LIMIT_REACHED}


RECORD = Record(
    "?",
    {"Ann Lee": "m.ann"},
    (
        Action("get_relations", ("m.ann",)),
        Action("get_neighbors", ("m.ann", "friend")),
        Action("count", ("#0",)),
    ),
    ("2",),
    {},
)


def said(message: Message) -> tuple[str, dict[str, str]]:
    (call,) = message.tool_calls
    return call.name, json.loads(call.arguments)


def test_it_types_names_and_reads_which_variable_it_got() -> None:
    expert = KGExpert(RECORD)
    assert said(expert.act([Message("user", "?")])) == ("get_relations", {"variable": "Ann Lee"})
    assert said(expert.act([Message("tool", "[boss, friend]")])) == (
        "get_neighbors", {"variable": "Ann Lee", "relation": "friend"},
    )  # fmt: skip
    assert said(expert.act([Message("tool", "#3 person")])) == ("count", {"variable": "#3"})
    last = expert.act([Message("tool", "Observation: #4 is a number")])
    assert (last.content, last.tool_calls) == ("Final Answer: #4", ())


def test_where_the_task_refuses_the_solution_it_ends_with_what_it_has() -> None:
    expert = KGExpert(RECORD)
    expert.act([])
    expert.act([Message("tool", "[]")])
    assert expert.act([Message("tool", "Error: no")]).content == "Final Answer: #0"
    expert = KGExpert(RECORD)
    for reply in ("", "[friend]", "#0 person"):
        expert.act([Message("tool", reply)])
    assert expert.act([Message("tool", "Error: no")]).content == "Final Answer: #0"


def test_after_a_refused_mistake_it_returns_to_where_it_erred() -> None:
    expert = KGExpert(RECORD, noise=1.0)
    expert.noise = 0.0
    expert.act([])
    expert.noise = 1.0
    tool, arguments = said(expert.act([Message("tool", "[boss, friend]")]))
    assert (tool, arguments["relation"]) == ("get_neighbors", "boss")
    expert.noise = 0.0
    assert said(expert.act([Message("tool", "Error: no")])) == (
        "get_neighbors", {"variable": "Ann Lee", "relation": "friend"},
    )  # fmt: skip

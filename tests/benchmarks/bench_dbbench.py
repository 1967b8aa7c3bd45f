"""What one episode of the DB task costs: python tests/benchmarks/bench_dbbench.py

Prints milliseconds and the ratios measured in the same run; asserts nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from agentrl.config.models import TaskConfig
from agentrl.tasks.dbbench.generator import generate
from agentrl.tasks.dbbench.mysql_semantics import syntax
from agentrl.tasks.dbbench.records import Record
from agentrl.tasks.dbbench.sheets import LEVELS
from agentrl.tasks.dbbench.sqlite import SqliteDatabase
from agentrl.tasks.dbbench.task import DBBenchTask

COUNT = 300


def milliseconds(function: Callable[[int], object]) -> float:
    start = time.perf_counter()
    for i in range(COUNT):
        function(i)
    return (time.perf_counter() - start) / COUNT * 1e3


def of_level(level: str) -> None:
    records: list[Record] = []
    made = milliseconds(lambda i: records.append(generate(level, "train", i)))
    databases: list[SqliteDatabase] = []
    opened = milliseconds(lambda i: databases.append(SqliteDatabase(records[i].tables)))
    parsed = milliseconds(lambda i: syntax.parse(records[i].sql))
    first = milliseconds(lambda i: databases[i].run(records[i].sql))
    again = milliseconds(lambda i: databases[i].run(records[i].sql))
    hashed = milliseconds(lambda i: databases[i].hash())
    episode = asyncio.run(whole_episodes(level))
    print(
        f"{level:>7}: generate {made:.2f}, open {opened:.2f}, new statement {first:.2f} "
        f"(sqlglot's parse {parsed / first:.0%}), known statement {again:.2f} "
        f"({first / again:.1f} times faster), hash {hashed:.2f}, expert episode {episode:.2f} ms"
    )


async def whole_episodes(level: str) -> float:
    task = DBBenchTask(TaskConfig(level=level, max_turns=5))
    samples = task.samples("train")
    for i in range(COUNT):
        task.record(samples[i])
    start = time.perf_counter()
    for i in range(COUNT):
        episode = await task.start(samples[i], i)
        expert = task.expert(samples[i], i)
        step = await episode.step(expert.act(episode.messages))
        while not step.done:
            step = await episode.step(expert.act(step.messages))
        await episode.close()
    return (time.perf_counter() - start) / COUNT * 1e3


if __name__ == "__main__":
    for level in LEVELS:
        of_level(level)

"""The task: tools, rewards, counted mistakes, prompts, options, and nothing left behind."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError
from agentrl.messages import Message, Status, ToolCall
from agentrl.tasks.base import Sample, Step, call_message
from agentrl.tasks.dbbench.backend import Reply
from agentrl.tasks.dbbench.prompts import opening
from agentrl.tasks.dbbench.records import Record, Table
from agentrl.tasks.dbbench.sqlite import SqliteBackend, SqliteDatabase
from agentrl.tasks.dbbench.task import COMPACT_LIMIT, DBBenchEpisode, DBBenchTask
from agentrl.tasks.registry import create_task

PEOPLE = Table("people", ("name", "Home Town"), (("Anna", "Oslo"), ("Bob", "Rome")))


def record(**changes: Any) -> Record:
    values = {
        "kind": "other", "question": "where is Anna from ?", "hint": "The table is people.",
        "tables": (PEOPLE,), "label": ("Oslo",), "sql": "SELECT 1",
    }  # fmt: skip
    return Record(**{**values, **changes})


async def begin(one: Record, style: Any = "compact", max_turns: int = 5) -> DBBenchEpisode:
    backend = SqliteBackend()
    return DBBenchEpisode(one, await backend.open(one.tables), backend, style, max_turns)


def execute(query: str) -> Message:
    return call_message("execute_sql", {"query": query})


def commit(*answers: str) -> Message:
    return call_message("commit_final_answer", {"answers": list(answers)})


async def play(one: Record, *messages: Message, **settings: Any) -> Step:
    episode = await begin(one, **settings)
    for message in messages:
        step = await episode.step(message)
    await episode.close()
    return step


def test_the_registry_builds_it_with_two_strict_tools() -> None:
    built = create_task("dbbench", TaskConfig())
    assert (built.name, built.level) == ("dbbench", "easy")
    assert [tool.name for tool in built.tools] == ["execute_sql", "commit_final_answer"]
    for tool in built.tools:
        assert tool.parameters["additionalProperties"] is False
        assert tool.parameters["required"] == list(tool.parameters["properties"])


async def test_a_question_is_scored_by_the_committed_answer() -> None:
    for answers, reward in ((["Oslo"], 1.0), (["'Oslo'"], 1.0), (["Rome"], 0.0), ([], 0.0)):
        step = await play(record(), execute("SELECT `Home Town` FROM people"), commit(*answers))
        assert (step.reward, step.done, step.status) == (reward, True, Status.COMPLETED)
        assert step.metrics["success"] == reward


async def test_a_change_is_scored_by_the_table_whatever_the_answer() -> None:
    gold = "UPDATE people SET `Home Town` = 'Bonn' WHERE name = 'Bob'"
    database = SqliteDatabase([PEOPLE])
    database.run(gold)
    one = record(kind="UPDATE", label=(gold,), sql=gold, answer_md5=database.hash())
    same = execute("UPDATE people SET `Home Town` = 'Bonn' WHERE `Home Town` = 'rome'")
    assert (await play(one, same, commit())).reward == 1.0
    assert (await play(one, execute(gold), commit("anything"))).reward == 1.0
    assert (await play(one, commit("done"))).reward == 0.0
    wrong = execute("UPDATE people SET `Home Town` = 'Bonn'")
    assert (await play(one, wrong, commit("done"))).reward == 0.0
    # a record without a hash: the gold statement is run on a second database
    bare = record(kind="UPDATE", label=(gold,), sql=gold)
    assert (await play(bare, same, commit())).reward == 1.0
    assert (await play(bare, wrong, commit())).reward == 0.0


async def test_wrong_sql_is_an_observation_and_a_count() -> None:
    episode = await begin(record())
    step = await episode.step(execute("SELECT nope FROM people"))
    assert step.messages[0].content == "1054 (42S22): Unknown column 'nope' in 'field list'"
    assert (step.done, step.metrics["sql_errors"], step.metrics["invalid_calls"]) == (False, 1, 0)
    step = await episode.step(execute("SELECT name FROM people WHERE name = 'anna'"))
    assert step.messages[0].content == "[('Anna',)]"
    assert (step.metrics["statements"], step.metrics["sql_errors"]) == (2, 1)


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("c", "commit_final_answer", "{}"),
        ToolCall("c", "commit_final_answer", "7"),
        ToolCall("c", "commit_final_answer", '{"answers": 7}'),
        ToolCall("c", "commit_final_answer", '{"answers": "Oslo"}'),
        ToolCall("c", "commit_final_answer", '{"answers": [1]}'),
        ToolCall("c", "commit_final_answer", '{"answers": ["Oslo"], "sure": true}'),
        ToolCall("c", "execute_sql", "{}"),
        ToolCall("c", "execute_sql", '{"query": null}'),
        ToolCall("c", "execute_sql", '{"query": ["SELECT 1"]}'),
        ToolCall("c", "execute_sql", "SELECT 1"),
        ToolCall("c", "drop_everything", "{}"),
    ],
)
async def test_broken_calls_never_crash_nor_reach_the_database(call: ToolCall) -> None:
    episode = await begin(record())
    step = await episode.step(Message("assistant", "", (call,)))
    assert (step.done, step.metrics["invalid_calls"], step.metrics["statements"]) == (False, 1, 0)
    assert (await episode.step(commit("Oslo"))).reward == 1.0


async def test_unicode_that_is_none() -> None:
    step = await play(record(), execute("SELECT '\ud800'"), commit("\udfff"))
    assert (step.reward, step.status) == (0.0, Status.COMPLETED)


async def test_the_turn_limit_gives_nothing() -> None:
    step = await play(record(), execute("SELECT 1"), execute("SELECT 1"), max_turns=2)
    assert (step.reward, step.done, step.status) == (0.0, True, Status.LIMIT_REACHED)


async def test_two_calls_in_one_turn_run_in_order() -> None:
    calls = (
        *execute("DELETE FROM people").tool_calls,
        *execute("SELECT COUNT(*) FROM people").tool_calls,
    )
    step = await play(record(), Message("assistant", "", calls))
    assert [message.content for message in step.messages] == ["[]", "[(0,)]"]


async def test_compact_results_are_short() -> None:
    long = execute("SELECT REPEAT('x', 700)")
    compact = (await play(record(), long)).messages[0].content
    assert compact == "[('" + "x" * (COMPACT_LIMIT - 3) + "[TRUNCATED]"
    whole = (await play(record(), long, style="agentbench")).messages[0].content
    assert whole == "[('" + "x" * 700 + "',)]"


def test_prompts() -> None:
    (message,) = opening(record(), "compact")
    assert (message.role, message.content) == (
        "user",
        "table people columns name `Home Town` question where is Anna from ?",
    )
    system, user = opening(record(evidence="Oslo is a town."), "agentbench")
    assert system.role == "system" and "MySQL" in system.content
    assert user.content == "Oslo is a town.\nThe table is people.\nwhere is Anna from ?"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"back_end": "sqlite"}, "unknown config key 'tasks.dbbench.options.back_end'; known keys: backend"),
        ({"backend": "postgres"}, "config key 'tasks.dbbench.options.backend': "),
        ({"backend": "mysql"}, "server: not set, but backend is 'mysql'"),
        ({"server": {"host": "x"}}, "server: set, but backend is 'sqlite'"),
        ({"backend": "mysql", "server": {}}, "give either unix_socket or host"),
        ({"backend": "mysql", "server": {"host": "x", "password": "y"}}, "unknown config key 'tasks.dbbench.options.server.password'"),
        ({"max_steps": 3}, "config key 'tasks.dbbench.options.max_steps': "),
    ],
)  # fmt: skip
def test_wrong_options_are_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DBBenchTask(TaskConfig(options=options))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_levels_and_splits_are_refused() -> None:
    with pytest.raises(ConfigError, match="level"):
        DBBenchTask(TaskConfig(level="extreme"))
    with pytest.raises(ConfigError, match="no split 'test'"):
        DBBenchTask(TaskConfig()).samples("test")


def test_mysql_without_its_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    monkeypatch.delitem(sys.modules, "agentrl.tasks.dbbench.mysql", raising=False)
    with pytest.raises(ConfigError, match=r"agentrl-reproducible\[mysql\]"):
        DBBenchTask(TaskConfig(options={"backend": "mysql", "server": {"host": "localhost"}}))


async def test_an_unreachable_server_is_an_infrastructure_error() -> None:
    from agentrl.errors import InfrastructureError

    task = DBBenchTask(
        TaskConfig(options={"backend": "mysql", "server": {"unix_socket": "/nowhere/s"}})
    )
    with pytest.raises(InfrastructureError, match="MySQL server /nowhere/s"):
        await task.start(Sample("dbbench", "train", 0), 0)
    await task.close()
    await task.close()


class CountingBackend:
    """Opens SQLite databases that remember whether they were closed, and fail now and then."""

    def __init__(self) -> None:
        self.open_databases = 0
        self.opened = 0

    async def open(self, tables: Sequence[Table]) -> CountingDatabase:
        await asyncio.sleep(0)
        self.opened += 1
        self.open_databases += 1
        return CountingDatabase(SqliteDatabase(tables), self, fails=self.opened % 7 == 0)

    async def close(self) -> None: ...


class CountingDatabase:
    def __init__(self, inner: SqliteDatabase, backend: CountingBackend, fails: bool) -> None:
        self.inner, self.backend, self.fails, self.closed = inner, backend, fails, False

    async def execute(self, sql: str) -> Reply:
        await asyncio.sleep(0)
        if self.fails:
            raise RuntimeError("the server is gone")
        return await self.inner.execute(sql)

    async def table_hash(self) -> str:
        await asyncio.sleep(0)
        return await self.inner.table_hash()

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.backend.open_databases -= 1
        await self.inner.close()


async def test_200_episodes_with_cancels_and_failures_leave_nothing_open() -> None:
    """Pitfall 39: whoever opens an episode closes it; the gold statement's database is closed too."""
    task = DBBenchTask(TaskConfig(max_turns=4))
    backend = CountingBackend()
    task.backend = backend

    async def episode(index: int) -> None:
        running = await task.start(task.samples("train")[index], index)
        running.record = record(
            kind="UPDATE", sql="UPDATE people SET name = 1", tables=running.record.tables
        )
        try:
            for message in (execute("SELECT 1"), execute("SELECT 2"), commit("x")):
                await running.step(message)
        finally:
            await running.close()

    tasks = [asyncio.create_task(episode(i)) for i in range(200)]
    for round_ in range(12):
        await asyncio.sleep(0)
        for one in tasks[round_::17]:
            one.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} <= {
        type(None),
        asyncio.CancelledError,
        RuntimeError,
    }
    assert sum(result is None for result in results) > 20
    assert backend.open_databases == 0
    assert backend.opened > 200 or backend.opened > sum(r is None for r in results)

"""A real MariaDB server: isolation, nothing left behind, and the same answers as the embedded one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from dbbench_statements import COLUMNS, Statements, random_table

from agentrl.config.models import TaskConfig
from agentrl.errors import InfrastructureError
from agentrl.messages import Message
from agentrl.tasks.base import call_message
from agentrl.tasks.dbbench.expert import spoil
from agentrl.tasks.dbbench.generator import generate
from agentrl.tasks.dbbench.mariadb_server import available, private_server
from agentrl.tasks.dbbench.mysql import MysqlBackend
from agentrl.tasks.dbbench.options import ServerOptions
from agentrl.tasks.dbbench.records import Table
from agentrl.tasks.dbbench.sheets import LEVELS
from agentrl.tasks.dbbench.sqlite import SqliteDatabase
from agentrl.tasks.dbbench.task import DBBenchTask

pytestmark = pytest.mark.skipif(
    not available(), reason="no MariaDB server here (Debian: mariadb-server)"
)
TABLE = Table("t", ("a", "b c"), (("1", "x"), ("2", "y")))


@pytest.fixture(scope="module")
def server() -> Iterator[ServerOptions]:
    with private_server(statement_timeout=1.0) as options:
        yield options


@pytest.fixture
async def backend(server: ServerOptions) -> AsyncIterator[MysqlBackend]:
    before = leftovers(server)
    assert before == []
    backend = MysqlBackend(server)
    yield backend
    await backend.close()
    assert leftovers(server) == [], "databases, users or connections were left behind"


def ask(server: ServerOptions, sql: str) -> list[tuple[Any, ...]]:
    connection = pymysql.connect(
        unix_socket=str(server.unix_socket), user="root", ssl_disabled=True
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def leftovers(server: ServerOptions) -> list[str]:
    """Databases, users and connections of episodes."""
    names = [row[0] for row in ask(server, "SHOW DATABASES LIKE 'dbbench%'")]
    names += [
        row[0] for row in ask(server, "SELECT user FROM mysql.user WHERE user LIKE 'dbbench%'")
    ]
    names += [
        row[1] for row in ask(server, "SHOW PROCESSLIST") if str(row[1]).startswith("dbbench")
    ]
    return names


async def test_an_episode_sees_its_own_database_only(backend: MysqlBackend) -> None:
    mine, other = await backend.open([TABLE]), await backend.open([TABLE])
    assert (await mine.execute("SHOW DATABASES")).text == "[('dbbench',), ('information_schema',)]"
    for sql in (
        f"SELECT * FROM `{other.name}`.t", f"DROP DATABASE `{other.name}`", "SELECT * FROM mysql.user",
        "CREATE DATABASE x", "CREATE USER x", "DROP TABLE t", "CREATE TABLE u (a INT)",
        "GRANT ALL ON *.* TO root@localhost", "SET GLOBAL max_connections = 1", "SHUTDOWN",
        "SELECT LOAD_FILE('/etc/passwd') INTO OUTFILE '/tmp/x'", "LOAD DATA INFILE '/etc/passwd' INTO TABLE t",
        "CREATE FUNCTION f() RETURNS INT RETURN 1", "LOCK TABLES t WRITE",
    ):  # fmt: skip
        reply = await mine.execute(sql)
        assert reply.error, sql
        assert mine.name not in reply.text
    assert (await mine.execute("SELECT DATABASE()")).text == "[('dbbench',)]"
    assert (await mine.execute("SELECT * FROM nope")).text == (
        "1146 (42S02): Table 'dbbench.nope' doesn't exist"
    )
    assert await other.table_hash() == await mine.table_hash() == SqliteDatabase([TABLE]).hash()
    await mine.close()
    await other.close()
    await other.close()


async def test_one_statement_a_call_and_results_as_from_the_embedded_one(
    backend: MysqlBackend,
) -> None:
    database = await backend.open([TABLE])
    assert (await database.execute("SELECT 1; SELECT 2")).error
    assert (await database.execute("SELECT * FROM t;")).text == "[('1', 'x'), ('2', 'y')]"
    assert (await database.execute("UPDATE t SET a = a + 1")).text == "[]"
    assert (await database.execute("SELECT 'é' = 'E', SUM(a), 1/3 FROM t")).text == (
        "[(1, 5.0, Decimal('0.3333'))]"
    )
    long = await database.execute("SELECT REPEAT('x', 900)")
    assert long.text == "[('" + "x" * 797 + "[TRUNCATED]"
    assert (await database.execute("\ud800")).error
    assert (await database.execute("x" * 20_000)).text.startswith("1153")
    await database.close()


async def test_what_an_agent_does_to_its_connection_ends_with_that_statement(
    backend: MysqlBackend,
) -> None:
    database = await backend.open([TABLE])
    assert (await database.execute("KILL CONNECTION_ID()")).error
    await database.execute("SET PASSWORD = PASSWORD('mine')")
    await database.execute("SET SESSION group_concat_max_len = 4, sql_mode = 'ANSI_QUOTES'")
    reply = await database.execute("SELECT SLEEP(30)")
    assert reply.error or reply.text == "[(1,)]"  # cut off by the time limit of a second
    assert (await database.execute("SELECT COUNT(*) FROM t")).text == "[(2,)]"
    assert await database.table_hash() == SqliteDatabase([TABLE]).hash()
    await database.close()


async def test_a_table_the_server_cannot_store_fails_and_leaves_nothing(
    backend: MysqlBackend,
) -> None:
    with pytest.raises(InfrastructureError, match="'t' cannot be stored: Incorrect column name ''"):
        await backend.open([TABLE, Table("u", ("", "a"), ())])


async def test_cancels_at_any_moment_leave_nothing(backend: MysqlBackend) -> None:
    opening = asyncio.create_task(backend.open([TABLE]))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    database = await backend.open([TABLE])
    running = asyncio.create_task(
        database.execute("SELECT COUNT(*) FROM t a, t b WHERE SLEEP(0.2) = 0")
    )
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    closing = asyncio.create_task(database.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing


async def test_200_episodes_with_random_cancels_leave_nothing(
    server: ServerOptions, backend: MysqlBackend
) -> None:
    options = {"backend": "mysql", "server": server.model_dump(exclude_none=True)}
    task = DBBenchTask(TaskConfig(max_turns=3, options=options))
    rng = random.Random(0)

    async def episode(index: int) -> float:
        running = await task.start(task.samples("train")[index], index)
        try:
            expert, news = task.expert(task.samples("train")[index], index), running.messages
            for _ in range(3):
                step = await running.step(expert.act(news))
                news = step.messages
                if step.done:
                    return step.reward
            return 0.0
        finally:
            await running.close()

    running = [asyncio.create_task(episode(i)) for i in range(200)]
    finished = 0
    for one in asyncio.as_completed(running):
        try:
            await one
            finished += 1
        except asyncio.CancelledError:
            pass
        if rng.random() < 0.5:
            rng.choice(running).cancel()
    rewards = [task_.result() for task_ in running if not task_.cancelled()]
    assert len(rewards) < 200
    assert set(rewards) == {1.0}
    await task.close()


async def test_what_a_killed_process_left_is_swept(server: ServerOptions) -> None:
    ask(server, "CREATE DATABASE dbbenchdeadbeefx1")
    ask(server, "CREATE USER 'dbbenchdeadbeefx1'@'localhost'")
    ask(server, "CREATE USER 'dbbenchdeadbeefx2'@'localhost'")
    alive, late = MysqlBackend(server), MysqlBackend(server)
    mine = await alive.open([TABLE])
    other = await late.open([TABLE])  # sweeps again, and leaves alone what a living process has
    assert [row[0] for row in ask(server, "SHOW DATABASES LIKE 'dbbench%'")] == sorted(
        [mine.name, other.name]
    )
    for closing in (mine, other, alive, late):
        await closing.close()
    assert leftovers(server) == []


async def test_closing_the_back_end_drops_what_episodes_left(server: ServerOptions) -> None:
    backend = MysqlBackend(server)
    for _ in range(3):
        await backend.open([TABLE])
    assert len(leftovers(server)) == 9  # a database, a user and a connection each
    await backend.close()
    assert leftovers(server) == []


async def test_a_server_that_goes_away_is_an_infrastructure_error(tmp_path: Path) -> None:
    with private_server() as options:
        backend = MysqlBackend(options)
        database = await backend.open([TABLE])
    with pytest.raises(InfrastructureError, match="MySQL server"):
        await database.execute("SELECT 1")
    with pytest.raises(InfrastructureError, match="MySQL server"):
        await backend.open([TABLE])
    for closing in (database, backend):
        with pytest.raises(InfrastructureError, match="MySQL server"):
            await closing.close()
    await backend.close()
    with pytest.raises(InfrastructureError, match="closed"):
        await backend.open([TABLE])


async def test_a_wrong_password_names_the_server_and_not_the_password(
    server: ServerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTRL_MYSQL_PASSWORD", "hunter2")
    backend = MysqlBackend(server)
    with pytest.raises(InfrastructureError) as caught:
        await backend.open([TABLE])
    assert "options.server" in str(caught.value) and "hunter2" not in str(caught.value)
    await backend.close()


async def test_sql_errors_of_both_count_alike(server: ServerOptions, backend: MysqlBackend) -> None:
    options = {"backend": "mysql", "server": server.model_dump(exclude_none=True)}
    metrics = []
    for extra in ({}, options):
        task = DBBenchTask(TaskConfig(options=extra))
        episode = await task.start(task.samples("std")[0], 0)
        for query in ("SELECT nope", "SELECT 1", "SELEKT"):
            step = await episode.step(call_message("execute_sql", {"query": query}))
        metrics.append(step.metrics)
        assert isinstance(step.messages[0], Message)
        await episode.close()
        await task.close()
    assert metrics[0] == metrics[1]
    assert metrics[0]["sql_errors"] == 2


# -- the same answers


async def both(
    backend: MysqlBackend, table: Table, statements: list[str]
) -> list[tuple[str, str, str]]:
    """Statements on which the two back ends disagree, with both answers."""
    real, embedded = await backend.open([table]), SqliteDatabase([table])
    out = []
    for sql in statements:
        theirs, ours = await real.execute(sql), embedded.run(sql)
        errors = theirs.error and ours.error
        same = theirs.text[:4] == ours.text[:4] if errors else theirs == ours
        if same and not sql.startswith("SELECT"):
            same = await real.table_hash() == embedded.hash()
        if not same:
            out.append((sql, theirs.text[:200], ours.text[:200]))
    await real.close()
    await embedded.close()
    return out


@pytest.mark.parametrize("level", LEVELS)
async def test_generated_statements_agree_gold_and_spoiled(
    backend: MysqlBackend, level: str
) -> None:
    rng = random.Random(1)
    for index in range(40):
        record = generate(level, "train", index)
        wrong = [spoil(record, rng) for _ in range(5)]
        whole = "SELECT * FROM `" + record.tables[0].name + "`"
        assert await both(backend, record.tables[0], [*wrong, record.sql, whole]) == []


async def test_1200_random_statements_agree(backend: MysqlBackend) -> None:
    for seed in range(100):
        statements = Statements(seed)
        selects = [statements.select() for _ in range(9)]
        changes = [statements.change() for _ in range(3)]
        table = random_table(statements.rng)
        assert (
            await both(backend, table, ["INSERT INTO T1 (`id`) VALUES (3)", *selects, *changes])
            == []
        )


async def test_order_and_equality_of_characters_agree(backend: MysqlBackend) -> None:
    characters = [chr(i) for i in (*range(33, 127), *range(0xA1, 0x17F)) if chr(i) not in "\xad'\\"]
    odd = {
        "ı",
        "ĸ",
        "ŋ",
        "þ",
        "Þ",
        "Ŋ",
        "ŉ",
        "ŧ",
        "Ŧ",
    }  # letters that stand after z here, by code point
    plain = [c for c in characters if c not in odd]
    table = Table("t", ("c",), tuple((c,) for c in plain))
    pairs = "SELECT GROUP_CONCAT(a.c, b.c ORDER BY BINARY a.c, BINARY b.c) FROM t a JOIN t b ON a.c = b.c AND a.c >= '{}'"
    ordered = "SELECT c FROM t ORDER BY c, BINARY c LIMIT 50 OFFSET {}"
    statements = [pairs.format(c) for c in "a1!zé"] + [ordered.format(50 * i) for i in range(6)]
    assert await both(backend, table, statements) == []


async def test_hashes_agree_beyond_1024_bytes_and_with_nulls(backend: MysqlBackend) -> None:
    table = Table("t", COLUMNS[:3], tuple((str(i), "é–🙂", "a,b") for i in range(250)))
    changes = [
        "INSERT INTO t (name) VALUES (NULL)",
        "UPDATE t SET City = NULL WHERE id < 40",
        "DELETE FROM t",
    ]
    assert await both(backend, table, changes) == []

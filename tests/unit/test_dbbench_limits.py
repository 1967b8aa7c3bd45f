"""A statement's cost is bounded by counts, and no text of the agent does more than read and change rows."""

from __future__ import annotations

import hashlib
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.errors import DataError, InfrastructureError
from agentrl.tasks.dbbench.backend import (
    RESULT_LIMIT,
    TRUNCATED,
    hash_rows,
    join_table_hashes,
    row_hash,
)
from agentrl.tasks.dbbench.mysql_semantics.numbers import double_text, number_prefix
from agentrl.tasks.dbbench.records import Table
from agentrl.tasks.dbbench.sqlite import SqliteDatabase

MANY = Table("t", ("a", "b"), tuple((str(i), "x" * 20) for i in range(100)))
INTERRUPTED = (
    "3024 (HY000): Query execution was interrupted, maximum statement execution time exceeded"
)


@pytest.fixture
def database() -> SqliteDatabase:
    return SqliteDatabase([MANY], max_steps=200_000)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM t a, t b, t c, t d",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n",
        "INSERT INTO t SELECT a.a, a.b FROM t a, t b, t c",
        "UPDATE t SET b = (SELECT COUNT(*) FROM (SELECT a.a FROM t a, t b, t c) x)",
    ],
)
def test_endless_work_is_cut_off_and_undone(database: SqliteDatabase, sql: str) -> None:
    before = database.hash()
    assert database.run(sql).text == INTERRUPTED
    assert database.hash() == before
    assert database.run("SELECT COUNT(*) FROM t").text == "[(100,)]"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT REPEAT(REPEAT('a', 60000), 60000)",
        "SELECT LPAD('a', 100000000, 'b')",
        "SELECT REPLACE(REPEAT('a', 60000), 'a', REPEAT('b', 60000))",
        "SELECT CONCAT(REPEAT('a', 60000), REPEAT('b', 60000))",
    ],
)
def test_no_value_grows_without_bound(database: SqliteDatabase, sql: str) -> None:
    assert database.run(sql).text.startswith("1301 (HY000): Result of ")


def test_the_table_cannot_fill_the_memory(database: SqliteDatabase) -> None:
    database.run("UPDATE t SET b = REPEAT('x', 60000)")
    reply = database.run("UPDATE t SET a = REPEAT('y', 60000)")
    assert reply.text == "1114 (HY000): The table is full"
    assert database.run("SELECT MAX(LENGTH(a)) FROM t").text == "[(2,)]"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 21 + "1" + ")" * 21,
        "SELECT " + "NOT " * 2000 + "1",
        "SELECT " + "-" + "(-" * 15 + "1" + ")" * 15 + " + 1" * 3000,
        "SELECT " + "CASE WHEN 1 THEN " * 400 + "1" + " END" * 400,
        "SELECT '" + "a" * 20_000 + "'",
    ],
)
def test_deep_and_long_statements_are_answers(database: SqliteDatabase, sql: str) -> None:
    assert database.run(sql).text[:4] in ("1436", "1153")


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", "(.*)*x", "a?{30}a{30}", "([a-z]+)*[0-9]"]
)
def test_no_pattern_hangs(database: SqliteDatabase, pattern: str) -> None:
    reply = database.run(f"SELECT COUNT(*) FROM t WHERE REPEAT('a', 2000) REGEXP '{pattern}'")
    assert reply.text in ("[(0,)]", "[(100,)]", INTERRUPTED) or reply.text.startswith("36")


def test_the_authorizer_refuses_what_the_compiler_would_never_write(
    database: SqliteDatabase,
) -> None:
    connection = database._open()
    for sql in (
        "ATTACH DATABASE ':memory:' AS other", "PRAGMA page_size = 512", "CREATE TABLE u (a)",
        "DROP TABLE t", "SELECT * FROM sqlite_master", "SELECT load_extension('x')",
        "CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM t; END", "VACUUM INTO '/tmp/x'",
    ):  # fmt: skip
        with pytest.raises(
            sqlite3.DatabaseError, match=r"not authorized|prohibited|authorization denied"
        ):
            connection.execute(sql)


def test_long_results_are_cut_where_mysql_users_expect_it(database: SqliteDatabase) -> None:
    whole = str([(str(i), "x" * 20) for i in range(100)])
    assert database.run("SELECT * FROM t").text == whole[:RESULT_LIMIT] + TRUNCATED


def test_a_closed_database_is_an_infrastructure_error() -> None:
    import asyncio

    database = SqliteDatabase([MANY])
    asyncio.run(database.close())
    asyncio.run(database.close())
    with pytest.raises(InfrastructureError, match="closed"):
        database.run("SELECT 1")


def test_a_table_that_cannot_be_loaded_is_a_data_error() -> None:
    with pytest.raises(DataError, match="table 't'"):
        SqliteDatabase([Table("t", ("a", "A"), ())])


# -- the table hash


def test_the_hash_follows_its_definition() -> None:
    # h = first 5 hex digits of md5("1,x") and md5("2,y"), sorted, joined, md5 again
    short = [hashlib.md5(text.encode()).hexdigest()[:5] for text in ("1,x", "2,y")]
    expected = hashlib.md5(",".join(sorted(short)).encode()).hexdigest()
    table = Table("t", ("a", "b"), (("2", "y"), ("1", "x")))
    assert SqliteDatabase([table]).hash() == expected
    assert hash_rows([("1", "x"), ("2", "y")]) == expected


def test_null_is_skipped_so_its_column_does_not_show() -> None:
    assert row_hash(("a", None, "b")) == row_hash((None, "a", "b")) == row_hash(("a", "b", None))
    assert row_hash(("a", "", "b")) != row_hash(("a", None, "b"))
    assert row_hash((None, None)) == hashlib.md5(b"").hexdigest()[:5]


def test_the_hash_is_cut_at_1024_bytes() -> None:
    rows = sorted(([str(i)] for i in range(300)), key=row_hash)
    joined = ",".join(row_hash(row) for row in rows)
    assert hash_rows(rows) == hashlib.md5(joined[:1024].encode()).hexdigest()
    assert hash_rows(rows[:171]) == hash_rows(rows)  # 170 hashes with commas are 1019 bytes
    assert hash_rows(rows[:170]) != hash_rows(rows)


def test_several_tables_and_empty_ones() -> None:
    assert join_table_hashes(["b", "a"]) == "a_b"
    database = SqliteDatabase([Table("t", ("a",), ()), Table("u", ("a",), (("1",),))])
    assert database.hash() == join_table_hashes([hash_rows([("1",)]), "None"])


# -- whatever the text


@settings(max_examples=150, deadline=None)
@given(
    st.text(max_size=60)
    | st.binary(max_size=20).map(lambda b: b.decode("utf-8", "surrogateescape"))
)
def test_any_text_is_answered(text: str) -> None:
    database = SqliteDatabase([Table("t", ("a",), (("1",),))])
    for sql in (text, f"SELECT '{text}'", f"SELECT a FROM t WHERE a {text}"):
        assert not database.run(sql).text.startswith("1105")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30))
def test_any_value_goes_in_and_comes_out(value: str) -> None:
    value = value.encode("utf-8", "replace").decode()
    written = value.replace("\\", "\\\\").replace("'", "''")
    database = SqliteDatabase([Table("t", ("a",), ())])
    if database.run(f"INSERT INTO t VALUES ('{written}')").error:
        assert any(c in value for c in "\0\x1a") or not value.isprintable()
        return
    assert database.run("SELECT a FROM t").text == str([(value,)])


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_survives_its_text(value: float) -> None:
    assert number_prefix(double_text(value)) == value

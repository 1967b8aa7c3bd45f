"""The embedded default: one in-memory SQLite database an episode, spoken to in MySQL.

Every statement is compiled by `mysql_semantics.statements.plan`; none of the agent's text reaches
SQLite. Work is bounded by counts, never by a clock, so a statement is cut off at the same place on
every machine: virtual-machine steps in SQLite, characters in our functions, pages of memory. An
authorizer refuses everything but reading and changing rows, should the compiler ever be fooled.
"""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from agentrl.errors import DataError, InfrastructureError
from agentrl.tasks.dbbench.backend import Reply, hash_rows, join_table_hashes, render, truncate
from agentrl.tasks.dbbench.mysql_semantics.aggregates import AGGREGATES
from agentrl.tasks.dbbench.mysql_semantics.catalogue import Catalogue, StoredTable
from agentrl.tasks.dbbench.mysql_semantics.collation import compare
from agentrl.tasks.dbbench.mysql_semantics.dates import parse_time
from agentrl.tasks.dbbench.mysql_semantics.errors import (
    SqlError,
    out_of_range,
    too_much_work,
    wrong_group_function,
)
from agentrl.tasks.dbbench.mysql_semantics.functions import (
    is_function,
    make_aggregate,
    make_function,
)
from agentrl.tasks.dbbench.mysql_semantics.meter import Meter
from agentrl.tasks.dbbench.mysql_semantics.numbers import round_decimal, to_decimal
from agentrl.tasks.dbbench.mysql_semantics.statements import Plan, plan
from agentrl.tasks.dbbench.mysql_semantics.types import FLOATING, Kind, Type, identifier
from agentrl.tasks.dbbench.records import Table

log = logging.getLogger(__name__)

STEP_GRAIN = 1000
MAX_STEPS = 2_000_000
MAX_CHARACTERS = 5_000_000
MAX_PAGES = 2048
"""8 MiB of 4 KiB pages."""
MAX_VALUE_BYTES = 1_000_000

_ALLOWED = frozenset({
    sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_INSERT,
    sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_RECURSIVE,
})  # fmt: skip
_OURS = re.compile(r"\bmy_[a-z0-9_]+(?=\()")


def _authorize(action: int, first: Any, second: Any, database: Any, trigger: Any) -> int:
    if action in _ALLOWED and (first or "").lower() not in ("sqlite_master", "load_extension"):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


class SqliteBackend:
    """Opens in-memory databases; holds nothing itself."""

    def __init__(self, strict: bool = False, max_steps: int = MAX_STEPS) -> None:
        self.strict = strict
        self.max_steps = max_steps

    async def open(self, tables: Sequence[Table]) -> SqliteDatabase:
        return SqliteDatabase(tables, self.strict, self.max_steps)

    async def close(self) -> None:
        """Nothing is held."""


class SqliteDatabase:
    """One episode's tables. Calls are short and run on the event loop's own thread."""

    def __init__(self, tables: Sequence[Table], strict: bool = False, max_steps: int = MAX_STEPS):
        self.strict = strict
        self.catalogue = Catalogue(tuple(StoredTable(t.name, t.columns) for t in tables))
        self.meter = Meter(MAX_CHARACTERS)
        self._budget = self._left = max_steps // STEP_GRAIN
        self._registered: set[str] = set()
        self._connection: sqlite3.Connection | None = None
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        try:
            connection.create_collation("mysql", compare)
            connection.execute(f"PRAGMA max_page_count = {MAX_PAGES}")
            for table in tables:
                _load(connection, table)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            connection.set_progress_handler(self._progress, STEP_GRAIN)
            connection.set_authorizer(_authorize)
        except sqlite3.Error as error:
            connection.close()
            raise DataError(f"table {tables[0].name!r} cannot be loaded: {error}") from None
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    async def execute(self, sql: str) -> Reply:
        return self.run(sql)

    def run(self, sql: str) -> Reply:
        """`execute` without a loop."""
        connection = self._open()
        try:
            planned = plan(sql.encode("utf-8", "replace").decode(), self.catalogue)
            if planned.rows is not None:
                return Reply(render(planned.rows))
            return Reply(self._run(connection, planned))
        except SqlError as error:
            return Reply(truncate(str(error)), error=True)
        except Exception:
            # a fault of the compiler: like MySQL's own, it is an answer and not the episode's end
            log.exception("no answer to the statement %r", sql)
            return Reply(str(SqlError(1105, "Unknown error")), error=True)

    def _run(self, connection: sqlite3.Connection, planned: Plan) -> str:
        self._register(connection, planned.sql)
        self.meter.begin(strict=self.strict and planned.changes)
        self._left = self._budget
        try:
            cursor = connection.execute(planned.sql)
            try:
                return render(_rows(cursor, planned.types)) if planned.types else "[]"
            finally:
                cursor.close()
        except (sqlite3.Error, OverflowError, MemoryError) as error:
            raise self._explain(error, planned) from None

    def _explain(self, error: Exception, planned: Plan) -> SqlError:
        if self.meter.error is not None:
            return self.meter.error
        said = str(error)
        if isinstance(error, MemoryError) or "too big" in said:
            return SqlError(1153, "Got a packet bigger than 'max_allowed_packet' bytes")
        if "interrupted" in said:
            return too_much_work()
        if "overflow" in said or "too large to convert" in said:
            return out_of_range("BIGINT", "expression")
        if "full" in said:
            return SqlError(1114, "The table is full")
        if "not allowed in the GROUP BY" in said:
            return SqlError(1056, "Can't group on an aggregate")
        if "misuse of" in said:
            return wrong_group_function()
        if "too large" in said or "too deep" in said or "stack" in said or "too many" in said:
            return SqlError(1436, "Thread stack overrun: statement is too large")
        log.warning("SQLite refused a compiled statement: %s: %s", said, planned.sql)
        return SqlError(1105, "Unknown error")

    def _progress(self) -> int:
        self._left -= 1
        return int(self._left < 0)

    def _register(self, connection: sqlite3.Connection, sql: str) -> None:
        """Make the functions known that this statement calls."""
        for name in set(_OURS.findall(sql)) - self._registered:
            if name in AGGREGATES:
                arity, group = make_aggregate(name, self.meter)
                connection.create_aggregate(name, arity, group)
            elif is_function(name):
                arity, function = make_function(name, self.meter)
                connection.create_function(name, arity, function, deterministic=True)
            self._registered.add(name)

    async def table_hash(self) -> str:
        return self.hash()

    def hash(self) -> str:
        """`table_hash` without a loop."""
        connection = self._open()
        self._left = 1 << 40
        return join_table_hashes(
            hash_rows(connection.execute(f"SELECT * FROM main.{identifier(table.name)}"))
            for table in self.catalogue.tables
        )

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise InfrastructureError("the episode's database is closed")
        return self._connection


def _load(connection: sqlite3.Connection, table: Table) -> None:
    columns = ", ".join(f"{identifier(name)} TEXT COLLATE mysql" for name in table.columns)
    connection.execute(f"CREATE TABLE main.{identifier(table.name)} ({columns})")
    marks = ", ".join("?" * len(table.columns))
    connection.execute("BEGIN")
    connection.executemany(
        f"INSERT INTO main.{identifier(table.name)} VALUES ({marks})", table.rows
    )
    connection.execute("COMMIT")


def _rows(cursor: sqlite3.Cursor, types: tuple[Type, ...]) -> Iterator[tuple[Any, ...]]:
    for row in cursor:
        yield tuple(_value(value, kind) for value, kind in zip(row, types, strict=True))


def _value(value: Any, kind: Type) -> Any:
    """The Python object that a MySQL connector would return."""
    if value is None or kind.kind in (Kind.TEXT, Kind.NULL):
        return value
    if kind.kind is Kind.INT:
        if isinstance(value, float):
            raise out_of_range("BIGINT", "expression")
        return value
    if kind.kind is Kind.DECIMAL:
        return to_decimal(value, kind.scale)
    if kind.kind is Kind.DOUBLE:
        shown = round_decimal(value, kind.scale) if kind.scale != FLOATING else float(value)
        return shown + 0.0
    if kind.kind is Kind.DATE:
        return date.fromisoformat(value)
    if kind.kind is Kind.DATETIME:
        return datetime.fromisoformat(value)
    return timedelta(seconds=parse_time(value) or 0)

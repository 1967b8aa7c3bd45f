"""A real MySQL or MariaDB server: every episode has its own database and its own user.

Invariants: the user may read and change rows of that one database and nothing else; both are
dropped on every path, after a cancel, a time-out and an exception too, and what a killed process
left is swept by the next one (invariant 11). An unreachable server is an `InfrastructureError`,
never a reward (invariant 4). The hash is computed by the administrator's own session (invariant 10).

Blocking calls run in a bounded pool of threads. Database names carry no `_` or `%`, which would be
wildcards in GRANT; the agent sees the name `dbbench` instead of the real one.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pymysql
from pymysql.cursors import SSCursor

from agentrl.errors import InfrastructureError
from agentrl.tasks.dbbench.backend import HASH_LIMIT, Reply, join_table_hashes, render, truncate
from agentrl.tasks.dbbench.mysql_semantics.builtins import DATABASE
from agentrl.tasks.dbbench.mysql_semantics.errors import error_text
from agentrl.tasks.dbbench.mysql_semantics.syntax import MAX_LENGTH
from agentrl.tasks.dbbench.options import ServerOptions
from agentrl.tasks.dbbench.records import Table

LOST = frozenset({0, 2006, 2013, 2014, 2027, 2055})
"""Client errors after which the connection is gone: the agent's doing, if the server still answers."""
SERVER_FAULTS = frozenset({1021, 1037, 1040, 1041, 1053, 1129, 1135, 1203, 2002, 2003, 2005})
_OWN_NAME = re.compile(r"dbbench([0-9a-f]{8})x[0-9]+")
_LONGEST_WAIT = 31_536_000
T = TypeVar("T")


class MysqlBackend:
    """Opens databases on one server."""

    def __init__(self, server: ServerOptions, strict: bool = False) -> None:
        self.server = server
        self.sql_mode = (
            "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION" if strict else "NO_ENGINE_SUBSTITUTION"
        )
        self._pool = ThreadPoolExecutor(server.connections, thread_name_prefix="dbbench-mysql")
        self._token = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._live: set[MysqlDatabase] = set()
        self._keeper: Any = None
        self._keeper_lock = threading.Lock()
        self._maria = False
        self._closed = False

    # -- for the event loop

    async def open(self, tables: Sequence[Table]) -> MysqlDatabase:
        if self._closed:
            raise InfrastructureError("the MySQL back end is closed")
        database = MysqlDatabase(self, f"dbbench{self._token}x{next(self._numbers)}", tables)
        self._live.add(database)
        try:
            await self.call(database.create)
        except asyncio.CancelledError:
            await database.close()
            raise
        except BaseException:
            self._live.discard(database)  # create() has cleaned up after itself
            raise
        return database

    async def close(self) -> None:
        """Drop what episodes left, end the pool and the connection that says we live. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            for database in list(self._live):
                await database.close()
        finally:
            await asyncio.to_thread(self._pool.shutdown)
            keeper, self._keeper = self._keeper, None
            if keeper is not None:
                keeper._force_close()

    def forget(self, database: MysqlDatabase) -> None:
        self._live.discard(database)

    async def call(
        self, function: Callable[[], T], on_cancel: Callable[[], None] | None = None
    ) -> T:
        """Run a blocking function in the pool, to its end even when the waiting task is cancelled."""
        loop = asyncio.get_running_loop()
        future = asyncio.ensure_future(loop.run_in_executor(self._pool, function))
        cancelled = False
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                if not cancelled and on_cancel is not None:
                    await asyncio.shield(loop.run_in_executor(None, on_cancel))
                cancelled = True
        if cancelled:
            future.exception()
            raise asyncio.CancelledError
        return future.result()

    # -- for the threads

    def administrator(self) -> Any:
        """A new connection that may create and drop; the first one also sweeps."""
        with self._keeper_lock:
            if self._keeper is None or not _alive(self._keeper):
                self._keeper = self._start_keeper()
        return self._administrator()

    def _administrator(self) -> Any:
        return self.connect(self.server.user, os.environ.get(self.server.password_variable, ""))

    def connect(self, user: str, password: str, database: str | None = None, init: str = "") -> Any:
        server = self.server
        where = (
            {"unix_socket": str(server.unix_socket)}
            if server.unix_socket
            else {"host": server.host, "port": server.port}
        )
        encrypted = server.tls and server.unix_socket is None
        tls = {"ssl_verify_identity": True} if encrypted else {"ssl_disabled": True}
        try:
            return pymysql.connect(
                **where,
                **tls, user=user, password=password, database=database, charset="utf8mb4",
                init_command=init or None, autocommit=True, local_infile=False,
                connect_timeout=max(1, round(server.connect_timeout)),
                read_timeout=server.statement_timeout + 5, write_timeout=server.statement_timeout + 5,
            )  # fmt: skip
        except (pymysql.MySQLError, OSError) as error:
            raise InfrastructureError(
                f"MySQL server {server.address} (options.server): {_message(error)}"
            ) from None

    def _start_keeper(self) -> Any:
        """A connection whose lock says that this process lives; drops what dead ones left."""
        connection = self._administrator()
        with connection.cursor() as cursor:
            cursor.execute("SELECT VERSION()")
            self._maria = "maria" in cursor.fetchone()[0].lower()
            cursor.execute(f"SET SESSION wait_timeout = {_LONGEST_WAIT}")
            cursor.execute("SELECT GET_LOCK(%s, 0)", (f"dbbench{self._token}",))
            cursor.execute("SHOW DATABASES LIKE 'dbbench%'")
            names = {row[0] for row in cursor.fetchall()}
            cursor.execute("SELECT user FROM mysql.user WHERE user LIKE 'dbbench%'")
            names |= {_plain(row[0]) for row in cursor.fetchall()}
            for name in sorted(names):
                match = _OWN_NAME.fullmatch(name)
                if match is None:
                    continue
                cursor.execute("SELECT IS_FREE_LOCK(%s)", (f"dbbench{match.group(1)}",))
                if cursor.fetchone()[0] == 1:
                    self.remove(cursor, name)
        return connection

    def remove(self, cursor: Any, name: str) -> None:
        cursor.execute(f"DROP DATABASE IF EXISTS `{name}`")
        for host in ("localhost", "%"):
            cursor.execute(f"DROP USER IF EXISTS '{name}'@'{host}'")

    @property
    def collation(self) -> str:
        """Accents and case ignored, no padding: the nearest of each server."""
        return "utf8mb4_uca1400_nopad_ai_ci" if self._maria else "utf8mb4_0900_ai_ci"

    def session(self) -> str:
        """What the agent's connection starts with."""
        seconds = self.server.statement_timeout
        limit = (
            f"max_statement_time = {seconds:g}"
            if self._maria
            else f"max_execution_time = {int(seconds * 1000)}"
        )
        return (
            f"SET SESSION {limit}, sql_mode = '{self.sql_mode}', sql_select_limit = 1000, "
            f"group_concat_max_len = {HASH_LIMIT}, collation_connection = '{self.collation}'"
        )


class MysqlDatabase:
    """One episode's database on the server."""

    def __init__(self, backend: MysqlBackend, name: str, tables: Sequence[Table]) -> None:
        self.backend = backend
        self.name = name
        self.tables = tuple(tables)
        self._host = "localhost" if backend.server.unix_socket else "%"
        self._connection: Any = None
        self._closed = False

    # -- for the event loop

    async def execute(self, sql: str) -> Reply:
        return await self.backend.call(lambda: self.run(sql), on_cancel=self._interrupt)

    async def table_hash(self) -> str:
        return await self.backend.call(self._hash)

    async def close(self) -> None:
        if self._closed:
            return
        try:
            await self.backend.call(self.drop)
        except asyncio.CancelledError:
            self._dropped()  # a cancel does not stop the drop
            raise
        self._dropped()

    def _dropped(self) -> None:
        self._closed = True
        self.backend.forget(self)

    # -- for the threads

    def create(self) -> None:
        """Make database, tables, user and connection, or leave nothing."""
        try:
            admin = self.backend.administrator()
            try:
                password = secrets.token_hex(16)
                with admin.cursor() as cursor:
                    self._create_tables(cursor)
                    cursor.execute(f"CREATE USER {self._user()} IDENTIFIED BY '{password}'")
                    cursor.execute(
                        f"GRANT SELECT, INSERT, UPDATE, DELETE ON `{self.name}`.* TO {self._user()}"
                    )
            finally:
                admin.close()
            self._connect(password)
        except BaseException as error:
            self.drop()
            if isinstance(error, pymysql.MySQLError):
                raise InfrastructureError(
                    f"MySQL server {self.backend.server.address}: table {self.tables[0].name!r} "
                    f"cannot be stored: {_message(error)}"
                ) from None
            raise

    def _create_tables(self, cursor: Any) -> None:
        collation = self.backend.collation
        cursor.execute(f"CREATE DATABASE `{self.name}` CHARACTER SET utf8mb4 COLLATE {collation}")
        for table in self.tables:
            where = f"`{self.name}`.{_quoted(table.name)}"
            columns = ", ".join(f"{_quoted(name)} TEXT" for name in table.columns)
            cursor.execute(f"CREATE TABLE {where} ({columns})")
            if table.rows:
                marks = ", ".join(["%s"] * len(table.columns))
                cursor.executemany(f"INSERT INTO {where} VALUES ({marks})", table.rows)

    def _user(self) -> str:
        return f"'{self.name}'@'{self._host}'"

    def _fresh_password(self) -> str:
        """Set a new password: whatever the agent did to its own, it does not matter."""
        password = secrets.token_hex(16)
        admin = self.backend.administrator()
        try:
            with admin.cursor() as cursor:
                cursor.execute(f"ALTER USER {self._user()} IDENTIFIED BY '{password}'")
        finally:
            admin.close()
        return password

    def _connect(self, password: str) -> None:
        backend = self.backend
        self._connection = backend.connect(self.name, password, self.name, backend.session())

    def run(self, sql: str) -> Reply:
        """`execute`, blocking."""
        if self._connection is None:
            raise InfrastructureError("the episode's database is closed")
        if len(sql) > MAX_LENGTH:
            text = error_text(1153, "Got a packet bigger than 'max_allowed_packet' bytes")
            return Reply(text, error=True)
        try:
            with self._connection.cursor(SSCursor) as cursor:
                cursor.execute(sql.encode("utf-8", "replace").decode())
                return Reply(self._masked(render(iter(cursor.fetchone, None))))
        except (pymysql.MySQLError, OSError) as error:
            return self._failed(error)

    def _failed(self, error: Exception) -> Reply:
        number = _number(error)
        if number in SERVER_FAULTS:
            raise InfrastructureError(
                f"MySQL server {self.backend.server.address}: {_message(error)}"
            )
        if number in LOST or isinstance(error, (pymysql.InterfaceError, OSError)):
            self._reconnect()
            number, error = 2013, Exception("Lost connection to MySQL server during query")
        return Reply(truncate(self._masked(error_text(number, _message(error)))), error=True)

    def _reconnect(self) -> None:
        """After a time-out or a KILL by the agent; raises where the server itself is gone."""
        self._interrupt()
        self._drop_connection()
        self._connect(self._fresh_password())

    def _interrupt(self) -> None:
        """Stop the statement that runs, so that a cancelled episode frees its thread at once."""
        connection = self._connection
        if connection is None:
            return
        admin = self.backend.administrator()
        try:
            with admin.cursor() as cursor:
                cursor.execute(f"KILL QUERY {int(connection.thread_id())}")
        except pymysql.MySQLError:
            return  # it has ended by itself
        finally:
            admin.close()

    def _hash(self) -> str:
        admin = self.backend.administrator()
        try:
            with admin.cursor() as cursor:
                cursor.execute(f"SET SESSION group_concat_max_len = {HASH_LIMIT}")
                hashes = []
                for table in self.tables:
                    columns = ", ".join(_quoted(name) for name in table.columns)
                    cursor.execute(
                        "SELECT MD5(GROUP_CONCAT(h ORDER BY h)) FROM (SELECT SUBSTRING(MD5("
                        f"CONCAT_WS(',', {columns})), 1, 5) AS h FROM `{self.name}`.{_quoted(table.name)}) AS x"
                    )
                    hashes.append(str(cursor.fetchone()[0]))
        except (pymysql.MySQLError, OSError) as error:
            raise InfrastructureError(
                f"MySQL server: hash of {self.name}: {_message(error)}"
            ) from None
        finally:
            admin.close()
        return join_table_hashes(hashes)

    def drop(self) -> None:
        """Drop connection, database and user. Idempotent."""
        self._drop_connection()
        admin = self.backend.administrator()
        try:
            with admin.cursor() as cursor:
                self.backend.remove(cursor, self.name)
        except (pymysql.MySQLError, OSError) as error:
            raise InfrastructureError(
                f"MySQL server: dropping {self.name}: {_message(error)}"
            ) from None
        finally:
            admin.close()

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            try:
                connection.close()
            except (pymysql.MySQLError, OSError):
                connection._force_close()

    def _masked(self, text: str) -> str:
        return text.replace(self.name, DATABASE)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _alive(connection: Any) -> bool:
    try:
        connection.ping(reconnect=False)
    except (pymysql.MySQLError, OSError):
        return False
    return True


def _number(error: Exception) -> int:
    first = error.args[0] if error.args else 0
    return first if isinstance(first, int) else 0


def _message(error: Exception) -> str:
    return str(error.args[-1]) if error.args else type(error).__name__


def _plain(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name

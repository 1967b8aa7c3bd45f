"""What outlives a restart of the controller: live sessions, tasks, workers, counters, spent ids.

One SQLite file. Writes are gathered and made every fraction of a second, off the event loop; what a
crash loses of them is found again by comparing with the workers. Ids are different: a block of them is
marked as spent before the first is used, so none is ever given twice, whatever the clock says.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl.errors import StateError
from agentrl.hosting.registry import Session
from agentrl.hosting.router import Observer

log = logging.getLogger(__name__)

VERSION = 1
BLOCK = 1 << 16
SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS tasks (name TEXT PRIMARY KEY, indices TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS workers (
    key TEXT PRIMARY KEY, task TEXT NOT NULL, capacity INTEGER NOT NULL, drained INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (
    id INTEGER PRIMARY KEY, task TEXT NOT NULL, place TEXT NOT NULL, worker TEXT NOT NULL,
    client TEXT NOT NULL, started REAL NOT NULL);
CREATE TABLE IF NOT EXISTS counters (
    kind TEXT NOT NULL, task TEXT NOT NULL, cause TEXT NOT NULL, value INTEGER NOT NULL,
    PRIMARY KEY (kind, task, cause));
"""
Count = tuple[str, str, str]
"""Kind (started, turns, ended), task, cause (of an end)."""


@dataclass(frozen=True, slots=True)
class StoredWorker:
    key: str
    task: str
    capacity: int
    drained: bool


@dataclass(frozen=True, slots=True)
class StoredSession:
    id: int
    task: str
    index: Any
    worker: str
    client: str


@dataclass(slots=True)
class Stored:
    """What an earlier controller left."""

    tasks: dict[str, list[Any]] = field(default_factory=dict)
    workers: list[StoredWorker] = field(default_factory=list)
    sessions: list[StoredSession] = field(default_factory=list)
    counters: Counter[Count] = field(default_factory=Counter)


class Store(Observer):
    """Counts, and keeps. With `path` None nothing outlives the process and ids start anywhere."""

    def __init__(self, path: Path | None) -> None:
        self.counters: Counter[Count] = Counter()
        self._database = None if path is None else _open(path)
        # One thread: a write that nobody waits for any more still comes before the next one.
        self._writer = ThreadPoolExecutor(1, "state")
        self._transaction = threading.Lock()
        self._started: dict[int, tuple[Any, ...]] = {}
        self._ended: set[int] = set()
        self._changes: list[tuple[str, tuple[Any, ...]]] = []
        self._written: Counter[Count] = Counter()
        self._ids = self._blocks()
        self.first_id = self.next_id()
        """Smaller ids are of earlier controllers."""

    def next_id(self) -> int:
        return next(self._ids)

    def _blocks(self) -> Iterator[int]:
        if self._database is None:
            start = (secrets.randbits(31) + 1) << 20
            while True:
                yield start
                start += 1
        while True:
            with self._transaction, self._database as database:
                (spent,) = database.execute(
                    "INSERT INTO facts VALUES ('spent', ?) "
                    "ON CONFLICT (name) DO UPDATE SET value = value + ? RETURNING value",
                    (BLOCK, BLOCK),
                ).fetchone()
            yield from range(spent - BLOCK + 1, spent + 1)

    def load(self) -> Stored:
        stored = Stored()
        if self._database is not None:
            rows = self._database.execute
            stored.tasks = {name: json.loads(text) for name, text in rows("SELECT * FROM tasks")}
            stored.workers = [
                StoredWorker(key, task, capacity, bool(drained))
                for key, task, capacity, drained in rows("SELECT * FROM workers")
            ]
            stored.sessions = [
                StoredSession(id_, task, json.loads(place), worker, client)
                for id_, task, place, worker, client, _ in rows("SELECT * FROM sessions")
            ]
            stored.counters.update({tuple(key): n for *key, n in rows("SELECT * FROM counters")})
        self.counters.update(stored.counters)
        self._written.update(stored.counters)
        return stored

    # Observer

    def started(self, session: Session) -> None:
        self.counters["started", session.task, ""] += 1
        if self._database is not None:
            place = json.dumps(session.index)
            row = (session.id, session.task, place, session.worker.key, session.client, time.time())
            self._started[session.id] = row

    def turned(self, session: Session) -> None:
        self.counters["turns", session.task, ""] += 1

    def ended(self, session: Session, cause: str, detail: str) -> None:
        self.counters["ended", session.task, cause] += 1
        if self._started.pop(session.id, None) is None:
            self._ended.add(session.id)

    # What registers

    def task(self, name: str, indices: list[Any] | None) -> None:
        if indices is None:
            self._change("DELETE FROM tasks WHERE name = ?", name)
        else:
            self._change("INSERT OR REPLACE INTO tasks VALUES (?, ?)", name, json.dumps(indices))

    def worker(self, key: str, task: str, capacity: int, drained: bool) -> None:
        self._change(
            "INSERT OR REPLACE INTO workers VALUES (?, ?, ?, ?)", key, task, capacity, drained
        )

    def forget_worker(self, key: str) -> None:
        self._change("DELETE FROM workers WHERE key = ?", key)

    def _change(self, statement: str, *values: Any) -> None:
        if self._database is not None:
            self._changes.append((statement, values))

    async def flush(self) -> None:
        """Write what has gathered. Called by one task at a time."""
        if self._database is None:
            self._ended.clear()
            return
        counts = [(*k, n) for k, n in self.counters.items() if self._written[k] != n]
        if not (counts or self._changes or self._started or self._ended):
            return
        changes, self._changes = self._changes, []
        started, self._started = self._started, {}
        ended, self._ended = self._ended, set()
        for kind, task, cause, value in counts:
            self._written[kind, task, cause] = value
        try:
            await asyncio.get_running_loop().run_in_executor(
                self._writer, self._write, changes, list(started.values()), ended, counts
            )
        except sqlite3.Error as error:
            # A full disk ends no session. A restart will compare with the workers anyway.
            log.error("the controller's state could not be written: %s", error)

    def _write(
        self,
        changes: list[tuple[str, tuple[Any, ...]]],
        started: list[tuple[Any, ...]],
        ended: set[int],
        counts: list[tuple[Any, ...]],
    ) -> None:
        assert self._database is not None
        with self._transaction, self._database as database:
            for statement, values in changes:
                database.execute(statement, values)
            database.executemany(
                "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?)", started
            )
            database.executemany("DELETE FROM sessions WHERE id = ?", [(i,) for i in ended])
            database.executemany("INSERT OR REPLACE INTO counters VALUES (?, ?, ?, ?)", counts)

    async def close(self) -> None:
        await self.flush()
        await asyncio.to_thread(self._writer.shutdown)
        if self._database is not None:
            self._database.close()


def _open(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(path, check_same_thread=False, timeout=5)
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.executescript(SCHEMA)
        (version,) = database.execute(
            "INSERT INTO facts VALUES ('version', ?) ON CONFLICT DO UPDATE SET value = value "
            "RETURNING value",
            (VERSION,),
        ).fetchone()
        database.commit()
    except (sqlite3.Error, OSError) as error:
        raise StateError(
            f"{path}: cannot be used as the controller's state: {error}; is another controller "
            "running on it? Give it a --state of its own"
        ) from None
    if version != VERSION:
        raise StateError(f"{path}: written by another version ({version}); move it away")
    return database

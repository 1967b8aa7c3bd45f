"""What a database has to offer to an episode, whatever serves it; how results read and tables hash.

Invariants: an agent's wrong SQL is text for it (a `Reply` with `error`), a server that fails is an
`InfrastructureError` (invariant 4); a database belongs to one episode and is gone after `close`, on
every path (invariant 11); the hash that decides the reward is computed outside the agent's reach
(invariant 10).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentrl.tasks.dbbench.records import Table

RESULT_LIMIT = 800
TRUNCATED = "[TRUNCATED]"
HASH_LIMIT = 1024
"""group_concat_max_len of MySQL in bytes: from about 170 rows on, later row hashes do not count."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the agent reads of one statement."""

    text: str
    error: bool = False


class Database(Protocol):
    """The tables of one episode."""

    async def execute(self, sql: str) -> Reply:
        """Run one statement, committed at once."""
        ...

    async def table_hash(self) -> str:
        """Hash of the tables as they stand: see `join_table_hashes`."""
        ...

    async def close(self) -> None:
        """Drop everything. Idempotent."""
        ...


class Backend(Protocol):
    """Serves databases to many episodes at once."""

    async def open(self, tables: Sequence[Table]) -> Database:
        """A fresh database with these tables; leaves nothing behind when it fails or is cancelled."""
        ...

    async def close(self) -> None:
        """Give back what is held for all episodes. Idempotent."""
        ...


def render(rows: Iterable[tuple[Any, ...]]) -> str:
    """`str(list_of_row_tuples)` as a MySQL connector's user sees it, cut at `RESULT_LIMIT`.

    Rows after the cut are not even fetched.
    """
    parts: list[str] = []
    length = 2
    for row in rows:
        parts.append(repr(row))
        length += len(parts[-1]) + 2
        if length > RESULT_LIMIT + 4:
            break
    return truncate("[" + ", ".join(parts) + "]")


def truncate(text: str) -> str:
    return text if len(text) <= RESULT_LIMIT else text[:RESULT_LIMIT] + TRUNCATED


def row_hash(row: Sequence[str | None]) -> str:
    """First 5 hex digits of md5(concat_ws(',', columns)): NULLs are skipped, as CONCAT_WS does."""
    joined = ",".join(value for value in row if value is not None)
    return _md5(joined)[:5]


def hash_rows(rows: Iterable[Sequence[str | None]]) -> str:
    """md5(group_concat(h ORDER BY h)) over the row hashes, cut at `HASH_LIMIT`.

    The md5 of an empty table's NULL is NULL in MySQL; it reads "None" here.
    """
    hashes = sorted(row_hash(row) for row in rows)
    return _md5(",".join(hashes)[:HASH_LIMIT]) if hashes else "None"


def join_table_hashes(hashes: Iterable[str]) -> str:
    """Several tables: their sorted hashes joined by `_`."""
    return "_".join(sorted(hashes))


def _md5(text: str) -> str:
    return hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()

"""Workers, the sessions they hold, and the starts that wait for a free slot."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentrl.hosting.failures import HostingError, QueueFull


@dataclass(frozen=True, slots=True)
class Reply:
    """What a worker answered. `payload` is opaque to the router."""

    payload: Any
    finished: bool = False
    """The session has ended there: nothing is left to give back."""
    status: str = "running"
    detail: str = ""
    """Of an end that is a failure: what went wrong there."""


class Link(Protocol):
    """The way to one worker. Every failure is a `HostingError` (or, in process, an `AgentRLError`)."""

    ends_failed: bool
    """A call that fails or is given up has ended its session there already."""

    async def start(self, session: int, request: Any) -> Reply: ...

    async def interact(self, session: int, turn: Any) -> Reply: ...

    async def cancel(self, session: int) -> None:
        """Returns when the session has ended there; an unknown one has. Raises where it may live."""
        ...

    async def close(self) -> None: ...


@dataclass(eq=False, slots=True)
class Session:
    """One episode as the controller knows it. Times are the event loop's, never the wall's."""

    id: int
    task: str
    index: Any
    worker: Worker
    client: str
    started: float
    updated: float
    turns: int = 0
    busy: bool = False
    cancelling: bool = False
    scope: asyncio.Timeout | None = None
    """Of the call under way."""
    abort: HostingError | None = None
    """Why the call under way was cut off from outside."""

    def cut(self, error: HostingError) -> None:
        """End the call under way with `error`; nothing happens where there is none."""
        if self.scope is not None and self.abort is None and not self.scope.expired():
            self.abort = error
            self.scope.reschedule(0)


@dataclass(eq=False, slots=True)
class Worker:
    """One place that holds up to `capacity` sessions of one task (None: any number)."""

    key: str
    task: str
    link: Link
    capacity: int | None = None
    sessions: dict[int, Session] = field(default_factory=dict)
    stuck: set[int] = field(default_factory=set)
    """Sessions that have ended here but that the worker still holds: their slots are not free."""
    reserved: int = 0
    """Slots handed to starts that have waited and are about to run on."""
    doubtful: bool = False
    """Had no room though it should: gets no new sessions until both sides are compared."""
    drained: bool = False
    """Gets no new sessions."""
    silent: bool = False
    """Has not been heard of for a while: gets no new sessions, keeps those it has."""
    seen: float = 0.0

    @property
    def free(self) -> float:
        if self.drained or self.silent or self.doubtful:
            return 0
        return math.inf if self.capacity is None else self.capacity - self.used

    @property
    def used(self) -> int:
        return len(self.sessions) + len(self.stuck) + self.reserved


class StartQueue:
    """Starts that wait for a slot: bounded, first come first served within a client, and one client
    after the other between them, so that a large run does not keep a small one out."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lines: OrderedDict[str, OrderedDict[asyncio.Future[Worker], None]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, client: str) -> asyncio.Future[Worker]:
        if self._size >= self.limit:
            raise QueueFull(f"{self._size} starts are waiting already; try again later")
        future: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(client, OrderedDict())[future] = None
        self._size += 1
        return future

    def drop(self, client: str, future: asyncio.Future[Worker]) -> None:
        """A start that waits no more. Nothing happens where `next` has handed it out."""
        line = self._lines.get(client)
        if line is None or future not in line:
            return
        del line[future]
        self._size -= 1
        if not line:
            del self._lines[client]

    def next(self) -> asyncio.Future[Worker] | None:
        """The start whose turn it is, taken out; its client goes to the end of the row."""
        if not self._lines:
            return None
        client, line = self._lines.popitem(last=False)
        future, _ = line.popitem(last=False)
        self._size -= 1
        if line:
            self._lines[client] = line
        return future

"""Sessions and where they live: the one controller behind the in-process and the network form.

Invariants: a slot is taken by one session from before its start is sent until its worker is known to
have ended it, on every path (11); a session ends exactly once and with a cause, so that the started
ones are the live ones and the ended ones (3); ids never repeat; only one call a session at a time;
everything runs on the event loop's clock, so a jump of the wall clock ends nothing.

What travels is opaque here: messages in process, JSON over the network. A path that does not wait for
a slot or for an answer never gives up control, so in process nothing is reordered (8).
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import count
from typing import Any

from agentrl.hosting.failures import (
    Busy,
    CallTimeout,
    Closing,
    Full,
    HostingError,
    Refused,
    Unreachable,
    WaitTimeout,
    WorkerLost,
)
from agentrl.hosting.registry import Reply, Session, StartQueue, Worker

log = logging.getLogger(__name__)

START_ATTEMPTS = 4
"""Workers that a start is offered to: others are tried where one is gone or has no room after all."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds; None: for ever."""

    wait: float | None = None
    """A start for a free slot."""
    start: float | None = None
    """One `start` of a worker."""
    call: float | None = None
    """One `interact` of a worker."""
    cancel: float | None = None
    """One `cancel` of a worker; after it the slot counts as stuck until the worker says otherwise."""
    queued: int = 10_000
    """Starts of one task that may wait."""


class Observer:
    """Is told what happens to sessions, in order. Must neither raise nor wait."""

    def started(self, session: Session) -> None: ...

    def turned(self, session: Session) -> None: ...

    def ended(self, session: Session, cause: str, detail: str) -> None: ...


class Router:
    def __init__(
        self,
        limits: Limits | None = None,
        observers: tuple[Observer, ...] = (),
        next_id: Callable[[], int] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.observers = observers
        self.workers: dict[str, Worker] = {}
        self.sessions: dict[int, Session] = {}
        self.queues: dict[str, StartQueue] = defaultdict(lambda: StartQueue(self.limits.queued))
        self.closing = False
        self._next_id = next_id or count(1).__next__
        self._tasks: set[asyncio.Task[None]] = set()

    # Workers

    def add(self, worker: Worker) -> None:
        worker.seen = _now()
        self.workers[worker.key] = worker
        self.pump(worker.task)

    def remove(self, worker: Worker, error: HostingError) -> None:
        """Forget a worker; its sessions end now, their calls with `error`."""
        if self.workers.get(worker.key) is worker:
            del self.workers[worker.key]
        worker.silent = True
        for session in list(worker.sessions.values()):
            if session.scope is not None:
                session.cut(error)
            else:
                self.finish(session, error.cause, str(error))

    def of(self, task: str) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.task == task]

    # Sessions

    async def start(self, task: str, index: Any, request: Any, client: str = "") -> tuple[int, Any]:
        """A session on the emptiest worker of `task`, once one has room. Returns id and answer."""
        tried: set[str] = set()
        for attempt in range(1, START_ATTEMPTS + 1):
            session = self._open(task, index, client, tried)
            if session is None:
                session = await self._wait(task, index, client, tried)
            worker = session.worker
            over = False
            cause, detail = "cancelled", "the client went away"
            try:
                reply = await self._call(
                    session, self.limits.start, worker.link.start(session.id, request)
                )
                if session.cancelling:
                    raise HostingError(f"session {session.id} was cancelled while it started")
                cause = ""
                if reply.finished:
                    cause, detail, over = reply.status, reply.detail, True
                return session.id, reply.payload
            except (Full, WorkerLost) as error:
                cause, detail, over = error.cause, str(error), isinstance(error, Full)
                worker.silent |= isinstance(error, Unreachable)
                worker.doubtful |= isinstance(error, Full)
                tried.add(worker.key)
                if attempt == START_ATTEMPTS or session.cancelling:
                    raise
            except HostingError as error:
                cause, detail, over = error.cause, str(error), isinstance(error, Refused)
                raise
            except Exception as error:
                cause, detail, over = "start_failed", str(error), True
                raise
            finally:
                self._close_call(session, cause, detail, over)
        raise AssertionError("unreachable")

    async def interact(self, session_id: int, turn: Any) -> Any:
        """Raises `KeyError` for an unknown or ended session. After a failure that is not `Busy` or
        `Refused` the session has ended."""
        session = self.sessions[session_id]
        if session.cancelling:
            raise KeyError(session_id)
        if session.busy:
            raise Busy(f"session {session_id} is still busy with its last call")
        over = False
        cause, detail = "cancelled", "the call was given up"
        try:
            reply = await self._call(
                session, self.limits.call, session.worker.link.interact(session_id, turn)
            )
            session.turns += 1
            for observer in self.observers:
                observer.turned(session)
            cause = ""
            if reply.finished:
                cause, detail, over = reply.status, reply.detail, True
            return reply.payload
        except Refused:
            cause = ""
            raise
        except HostingError as error:
            cause, detail = error.cause, str(error)
            raise
        except Exception as error:
            cause, detail = "step_failed", str(error)
            raise
        finally:
            self._close_call(session, cause, detail, over)

    def cancel(
        self, session_id: int, cause: str = "cancelled", detail: str = ""
    ) -> Coroutine[Any, Any, None]:
        """Ends a session; the returned coroutine, to be awaited, lasts until its worker has ended it.

        From now on calls on it fail. Idempotent; an unknown session has ended already.
        """
        session = self.sessions.get(session_id)
        if session is None or session.cancelling:
            return _nothing()
        session.cancelling = True
        return self._withdraw(session, cause, detail)

    def renew(self, session_id: int) -> None:
        """The client is still there. Raises `KeyError` for an unknown session."""
        session = self.sessions[session_id]
        if session.cancelling:
            raise KeyError(session_id)
        session.updated = _now()

    def admit(self, session: Session) -> None:
        """From now on `session` is live and takes a slot of its worker."""
        self.sessions[session.id] = session.worker.sessions[session.id] = session
        for observer in self.observers:
            observer.started(session)

    def finish(self, session: Session, cause: str, detail: str = "") -> None:
        """The session has ended: its slot is free and goes to the next start that waits."""
        if self.sessions.pop(session.id, None) is None:
            return
        session.worker.sessions.pop(session.id, None)
        for observer in self.observers:
            observer.ended(session, cause, detail)
        self.pump(session.task)

    def pump(self, task: str) -> None:
        """Hand free slots to waiting starts."""
        queue = self.queues.get(task)
        while queue:
            worker = self._emptiest(task, frozenset())
            if worker is None:
                return
            future = queue.next()
            if future is None:
                return
            if not future.done():
                worker.reserved += 1
                future.set_result(worker)

    async def close(self) -> None:
        """Refuse what waits, cancel every session."""
        self.closing = True
        self.refuse_waiting(Closing("the controller is closing"))
        for session_id in list(self.sessions):
            self.spawn(self.cancel(session_id, "closing"))
        await self.settle(self.limits.cancel)

    async def settle(self, limit: float | None) -> None:
        """Let what runs beside the calls come to its end, for at most `limit` seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=limit)
        for task in self._tasks:
            task.cancel()

    def refuse_waiting(self, error: HostingError, task: str | None = None) -> None:
        for name, queue in list(self.queues.items()):
            if task in (None, name):
                while (future := queue.next()) is not None:
                    if not future.done():
                        future.set_exception(error)

    # Inside

    def _emptiest(self, task: str, tried: set[str] | frozenset[str]) -> Worker | None:
        best, most = None, 0.0
        for worker in self.workers.values():
            if worker.task == task and worker.key not in tried and worker.free > most:
                best, most = worker, worker.free
        return best

    def _open(self, task: str, index: Any, client: str, tried: set[str]) -> Session | None:
        if self.closing:
            raise Closing("the controller is closing")
        if self.queues.get(task):
            return None  # others came first
        worker = self._emptiest(task, tried)
        return None if worker is None else self._admit(worker, index, client)

    def _admit(self, worker: Worker, index: Any, client: str) -> Session:
        now = _now()
        session = Session(self._next_id(), worker.task, index, worker, client, now, now)
        self.admit(session)
        return session

    async def _wait(self, task: str, index: Any, client: str, tried: set[str]) -> Session:
        queue = self.queues[task]
        future = queue.add(client)
        tried.clear()  # whoever has room now may be asked again
        try:
            async with asyncio.timeout(self.limits.wait):
                worker = await future
        except TimeoutError:
            self._hand_on(task, client, future)
            raise WaitTimeout(
                f"no worker of task {task!r} had room within {self.limits.wait:g} s"
            ) from None
        except BaseException:
            self._hand_on(task, client, future)
            raise
        worker.reserved -= 1
        if self.workers.get(worker.key) is not worker:
            raise WorkerLost(f"worker {worker.key} was lost before the session started")
        return self._admit(worker, index, client)

    def _hand_on(self, task: str, client: str, future: asyncio.Future[Worker]) -> None:
        """A start that does not wait any longer gives back what it may have been handed."""
        self.queues[task].drop(client, future)
        if future.done() and not future.cancelled() and future.exception() is None:
            future.result().reserved -= 1
            self.pump(task)

    async def _call(
        self, session: Session, limit: float | None, call: Coroutine[Any, Any, Reply]
    ) -> Reply:
        session.busy = True
        try:
            async with asyncio.timeout(limit) as session.scope:
                return await call
        except TimeoutError:
            raise session.abort or CallTimeout(
                f"worker {session.worker.key} did not answer within {limit:g} s"
                if limit is not None
                else "the call timed out"
            ) from None
        finally:
            session.scope = session.abort = None
            session.busy = False
            session.updated = _now()

    def _close_call(self, session: Session, cause: str, detail: str, over: bool) -> None:
        """After a call: what it ended is finished, or withdrawn from a worker that may still hold it."""
        if not cause or session.id not in self.sessions:
            return
        worker = session.worker
        if over or worker.link.ends_failed or self.workers.get(worker.key) is not worker:
            self.finish(session, cause, detail)
        elif not session.cancelling:
            self.spawn(self.cancel(session.id, cause, detail))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` beside everything else; `close` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _withdraw(self, session: Session, cause: str, detail: str) -> None:
        worker = session.worker
        ended = True
        try:
            async with asyncio.timeout(self.limits.cancel):
                await worker.link.cancel(session.id)
        except (HostingError, TimeoutError) as error:
            ended = isinstance(error, WorkerLost) and worker.key not in self.workers
            log.warning(
                "session %d could not be cancelled at %s: %s", session.id, worker.key, error
            )
        finally:
            if not ended:
                worker.stuck.add(session.id)
            self.finish(session, cause, detail)


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _nothing() -> None:
    return None

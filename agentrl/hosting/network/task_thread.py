"""A thread with an event loop of its own for the code of tasks: where it blocks, it blocks no heartbeat,
no cancel and no answer of another session's transport.

Invariant: work is told apart from its caller's patience - `Work.cancel` asks, `Work.done` is when it has
really ended, whatever it raised (also what is no `Exception`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any


class Work:
    """One coroutine that runs in the other thread."""

    def __init__(self, caller: asyncio.AbstractEventLoop, there: asyncio.AbstractEventLoop) -> None:
        self.done: asyncio.Future[Any] = caller.create_future()
        """Its result, or the exception that it ended with, as a value."""
        self._there = there
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._there.call_soon_threadsafe(self._cancel_there)

    def _cancel_there(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._task = self._there.create_task(_outcome(coroutine))
        self._task.add_done_callback(self._ended)
        if self._cancelled:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        outcome = asyncio.CancelledError() if task.cancelled() else task.result()
        self.done.get_loop().call_soon_threadsafe(self._settle, outcome)

    def _settle(self, outcome: Any) -> None:
        if not self.done.done():
            self.done.set_result(outcome)


async def _outcome(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await coroutine
    except BaseException as error:
        # Everything, so that neither a task's own kind of exit nor SystemExit ends the thread.
        return error


class TaskThread:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="tasks", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Work:
        """Run `coroutine` there; it starts at once and goes on whether or not it is awaited."""
        work = Work(asyncio.get_running_loop(), self._loop)
        self._loop.call_soon_threadsafe(work.begin, coroutine)
        return work

    def close(self, limit: float) -> None:
        """Stop the thread; one that is blocked in a task's code is left to the process's end."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(limit)

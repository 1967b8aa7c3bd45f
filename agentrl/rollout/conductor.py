"""Runs many episodes against embedded engines, one decode step at a time.

Invariants: in lockstep an engine steps only when every live episode waits for it, so what happens
depends on nothing but the requests - two runs give the same log (8); each spawned episode is
reported exactly once, or its exception ends the run (3); `close` leaves no episode behind (11).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class SteppedEngine(Protocol):
    """An engine that computes only when told to."""

    on_request: Callable[[], None] | None
    """Called whenever a request comes in."""

    @property
    def pending(self) -> int:
        """Requests that have no answer yet."""
        ...

    def step(self) -> int:
        """One decode step for every request; answers those that are finished."""
        ...


class Conductor:
    """Drives `engines` in lockstep, or merely watches where they drive themselves.

    Args:
        engines: the engines that the episodes use; empty where none is embedded.
        lockstep: step the engines here; otherwise they run on their own and `until` only waits.
    """

    def __init__(self, engines: Sequence[SteppedEngine], *, lockstep: bool = True) -> None:
        self._engines = tuple(engines)
        self._lockstep = lockstep
        self._episodes: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        for engine in self._engines:
            engine.on_request = self.notify

    @property
    def live(self) -> int:
        """Episodes that have not been reported yet."""
        return len(self._episodes)

    def spawn(self, episode: Coroutine[Any, Any, T], report: Callable[[T], None]) -> None:
        """Start an episode; `report` gets its result, from the event loop, in order of ending."""

        def ended(task: asyncio.Task[T]) -> None:
            self._episodes.discard(task)
            try:
                if not task.cancelled():
                    report(task.result())
            except BaseException as error:  # asyncio would only log what a callback raises
                self._failure = self._failure or error
            finally:
                self._changed.set()

        task = asyncio.create_task(episode)
        self._episodes.add(task)
        task.add_done_callback(ended)

    async def run_all(
        self, episodes: Iterable[Callable[[], Coroutine[Any, Any, T]]], concurrency: int
    ) -> list[T]:
        """Play all episodes, at most `concurrency` at once; results in the order of `episodes`."""
        waiting = enumerate(episodes)
        results: dict[int, T] = {}

        def start_next() -> None:
            if (item := next(waiting, None)) is not None:
                place, episode = item
                self.spawn(episode(), lambda result: ended(place, result))

        def ended(place: int, result: T) -> None:
            results[place] = result
            start_next()

        for _ in range(concurrency):
            start_next()
        await self.until(lambda: not self.live)
        return [results[place] for place in sorted(results)]

    def watch(self, background: asyncio.Task[Any]) -> None:
        """End the run with the exception of a background task, should it raise one."""

        def ended(task: asyncio.Task[Any]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self._failure = self._failure or error
                self._changed.set()

        background.add_done_callback(ended)

    def notify(self) -> None:
        """Something that a condition of `until` looks at has changed."""
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let episodes go on until `condition` holds, looked at between two decode steps.

        Raises whatever an episode raised, and `RuntimeError` when nothing is left that could make
        the condition true.
        """
        while True:
            if self._lockstep:
                await self._settled()
            if self._failure is not None:
                raise self._failure
            if condition():
                return
            if not self._lockstep:
                self._changed.clear()
                await self._changed.wait()
            elif not self.live:
                raise RuntimeError("no episode is live and the condition does not hold")
            else:
                for engine in self._engines:
                    if engine.pending:
                        engine.step()
                # A step that answers nobody wakes nobody: signals and pipes still need the loop.
                await asyncio.sleep(0)

    async def _settled(self) -> None:
        """Wait until every live episode waits for an engine, or one has failed."""
        while self._failure is None and sum(e.pending for e in self._engines) < self.live:
            self._changed.clear()
            await self._changed.wait()

    async def close(self) -> None:
        """Cancel what is live and wait for its clean-up."""
        for episode in tuple(self._episodes):
            episode.cancel()
        await asyncio.gather(*self._episodes, return_exceptions=True)

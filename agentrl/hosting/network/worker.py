"""A worker: the sessions of one task behind the endpoints of the protocol, whatever the transport.

Invariants: an episode is closed on every path and exactly once (`EpisodeHost`); its slot is free when
its code has really ended, not before, and then at once - also where a cancel escapes from the task as
something that is no `Exception`; episodes know nothing of each other; only the endpoints of the table
can be called.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from agentrl.errors import ConfigError
from agentrl.hosting.client import Opening
from agentrl.hosting.host import EpisodeHost
from agentrl.hosting.network import wire
from agentrl.hosting.network.settings import WorkerSettings
from agentrl.hosting.network.task_thread import TaskThread, Work
from agentrl.messages import Message, Status
from agentrl.randomness import derive
from agentrl.tasks.base import Sample, Step, Task

log = logging.getLogger("agentrl.hosting.worker")

Answer = tuple[int, Any]
"""HTTP status and what the body says."""


@dataclass(eq=False, slots=True)
class _Live:
    index: Any
    touched: float
    work: Work | None = None
    """The call under way."""
    cancelling: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    last: list[wire.Json] = field(default_factory=list)
    """What the environment said last."""


class TaskWorker:
    """Serves `task`, one split of it, under the name `TASK-SPLIT`."""

    def __init__(
        self,
        task: Task,
        split: str,
        settings: WorkerSettings,
        seed: int = 0,
        notify: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        self.task, self.settings = task, settings
        self.split = split
        self.name = f"{task.name}-{split}"
        self.instance = uuid.uuid4().hex
        self.seed = seed
        self.samples = task.samples(split)
        if not len(self.samples):
            raise ConfigError(f"task {task.name!r} has no samples in split {split!r}")
        self.indices = list(range(len(self.samples)))
        self.notify = notify
        self.sessions: dict[int, _Live] = {}
        self.stopping = False
        self._tools = [tool.to_openai() for tool in task.tools]
        self._host = EpisodeHost(task)
        self._thread = TaskThread()
        self._beside: set[asyncio.Task[None]] = set()
        self._endpoints: Mapping[str, Callable[[bytes], Awaitable[Answer]]] = {
            "get_indices": self._get_indices,
            "get_sessions": self._get_sessions,
            "worker_status": self._worker_status,
            "sample_status": self._sample_status,
            "start_sample": self._start_sample,
            "interact": self._interact,
            "cancel": self._cancel,
            "cancel_with_notice": self._cancel_with_notice,
            "cancel_all": self._cancel_all,
            "cancel_all_with_notice": self._cancel_all_with_notice,
            "calculate_overall": self._calculate_overall,
        }

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(self._endpoints)

    async def call(self, endpoint: str, body: bytes) -> Answer:
        """One call; never raises for what a caller sent."""
        handler = self._endpoints.get(endpoint)
        if handler is None:
            return 404, {"detail": f"no endpoint {endpoint[:100]!r}"}
        try:
            return await handler(body)
        except ValidationError as error:
            return 422, {"detail": wire.problems(error)}

    # Questions

    async def _get_indices(self, body: bytes) -> Answer:
        return 200, self.indices

    async def _get_sessions(self, body: bytes) -> Answer:
        return 200, {str(session): live.index for session, live in self.sessions.items()}

    async def _worker_status(self, body: bytes) -> Answer:
        return 200, {"concurrency": self.settings.concurrency, "current": len(self.sessions)}

    async def _sample_status(self, body: bytes) -> Answer:
        session = wire.read(wire.SessionOnly, body).session_id
        live = self.sessions.get(session)
        if live is None:
            return _unknown(session)
        status = {
            "waiting_for_env": live.work is not None,
            "waiting_for_agent": live.work is None,
            "env_input": None,
            "env_output": {
                "index": live.index,
                "status": "running",
                "result": None,
                "history": live.last,
                "history_ptr": 0,
            },
        }
        return 200, {"session_id": session, "index": live.index, "status": status}

    async def _calculate_overall(self, body: bytes) -> Answer:
        wire.read(wire.Overall, body)
        return 500, {"detail": f"task {self.name!r} has no summary of its own"}

    # Episodes

    async def _start_sample(self, body: bytes) -> Answer:
        wanted = wire.read(wire.WorkerStart, body)
        id_, index = wanted.session_id, wanted.index
        if id_ in self.sessions:
            return 400, {"detail": f"session {id_} is live already"}
        if not isinstance(index, int) or not 0 <= index < len(self.indices):
            return 422, {"detail": f"task {self.name!r} has no sample {index!r}"}
        if self.stopping or len(self.sessions) >= self.settings.concurrency:
            limit = 0 if self.stopping else self.settings.concurrency
            return 406, {"detail": f"Sample concurrency limit reached: {limit}"}
        sample = self.samples[index]
        seed = wanted.seed
        if seed is None:
            seed = derive(self.seed, "episode", sample.task, sample.split, sample.index)
        live = self.sessions[id_] = _Live(index, _now())
        outcome = await self._run(id_, live, self._begin(id_, sample, seed))
        if isinstance(outcome, Opening) and not live.cancelling:
            live.last = [message.to_openai() for message in outcome.messages]
            return 200, wire.environment_reply(live.last, self._tools, Status.RUNNING)
        return 200, await self._failed(id_, live, outcome)

    async def _interact(self, body: bytes) -> Answer:
        said = wire.read(wire.WorkerInteract, body)
        id_ = said.session_id
        live = self.sessions.get(id_)
        if live is None:
            return _unknown(id_)
        if live.work is not None or live.cancelling:
            return 400, {"detail": f"session {id_} is still busy with its last call"}
        live.touched = _now()
        message = wire.one_message(said.messages)
        if self._renews(message):
            reply = wire.environment_reply(live.last, self._tools, Status.RUNNING)
            return 200, {"session_id": id_, "env_out": reply}
        outcome = await self._run(id_, live, self._host.step(id_, message))
        if isinstance(outcome, Step) and (outcome.done or not live.cancelling):
            live.last = [reply.to_openai() for reply in outcome.messages]
            answer = wire.environment_reply(
                live.last,
                self._tools,
                outcome.status if outcome.done else Status.RUNNING,
                outcome.reward,
                outcome.metrics,
            )
            if outcome.done:
                self._end(id_, live)
        else:
            answer = await self._failed(id_, live, outcome)
        return 200, {"session_id": id_, "env_out": answer}

    async def _begin(self, id_: int, sample: Sample, seed: int) -> Opening:
        return await self._host.start(id_, sample, seed)

    def _renews(self, message: Message) -> bool:
        empty = not message.content and not message.tool_calls
        return self.settings.empty_message_renews and empty

    async def _run(self, id_: int, live: _Live, coroutine: Any) -> Any:
        """One call of the task's code, to its real end, whoever has stopped waiting meanwhile."""
        live.work = self._thread.submit(coroutine)
        try:
            return await asyncio.shield(live.work.done)
        except asyncio.CancelledError:
            # The caller went away in mid-call: nobody knows the answer, so the session ends.
            self._spawn(self._stop(id_, live))
            raise
        finally:
            live.work = None if live.work.done.done() else live.work
            live.touched = _now()

    async def _failed(self, id_: int, live: _Live, outcome: Any) -> wire.Json:
        """The answer after a call that gave none: the session is over."""
        cancelled = live.cancelling or isinstance(outcome, asyncio.CancelledError)
        if not cancelled:
            log.warning("session failed: %s", outcome, extra={"session": id_, "task": self.name})
            await self._close(id_, live)
            return wire.environment_reply(
                [], self._tools, Status.TASK_ERROR, result=str(outcome)[:1000]
            )
        return wire.environment_reply([], self._tools, Status.CANCELLED)

    # Ends

    async def _cancel(self, body: bytes) -> Answer:
        return await self._cancel_one(wire.read(wire.SessionOnly, body).session_id, notice=False)

    async def _cancel_with_notice(self, body: bytes) -> Answer:
        return await self._cancel_one(wire.read(wire.SessionOnly, body).session_id, notice=True)

    async def _cancel_one(self, id_: int, *, notice: bool) -> Answer:
        live = self.sessions.get(id_)
        if live is None:
            return _unknown(id_)
        if notice:
            self._spawn(self._stop_and_tell(id_, live))
        else:
            await asyncio.shield(self._spawn(self._stop(id_, live)))
        return 200, {"session_id": id_}

    async def _cancel_all(self, body: bytes) -> Answer:
        await self.stop_all()
        return 200, None

    async def _cancel_all_with_notice(self, body: bytes) -> Answer:
        for id_, live in list(self.sessions.items()):
            self._spawn(self._stop_and_tell(id_, live))
        return 200, None

    async def stop_all(self) -> None:
        stops = [self._spawn(self._stop(id_, live)) for id_, live in list(self.sessions.items())]
        if stops:
            await asyncio.wait(stops)

    async def _stop_and_tell(self, id_: int, live: _Live) -> None:
        await self._stop(id_, live)
        if self.notify is not None:
            await self.notify(id_)

    async def _stop(self, id_: int, live: _Live) -> None:
        """End a session, however its code takes it; lasts until it has ended."""
        if live.cancelling:
            await live.ended.wait()
            return
        live.cancelling = True
        if live.work is not None:
            live.work.cancel()
            await live.work.done
        await self._close(id_, live)

    async def _close(self, id_: int, live: _Live) -> None:
        outcome = await self._thread.submit(self._host.close(id_)).done
        if isinstance(outcome, BaseException):
            log.error("session %d: closing failed: %r", id_, outcome, extra={"session": id_})
        self._end(id_, live)

    def _end(self, id_: int, live: _Live) -> None:
        if self.sessions.get(id_) is live:
            del self.sessions[id_]
        live.ended.set()

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    async def reap(self) -> None:
        """Close sessions that nobody has called for very long; until cancelled."""
        while True:
            await asyncio.sleep(min(60.0, self.settings.idle / 4))
            old = _now() - self.settings.idle
            for id_, live in list(self.sessions.items()):
                if live.work is None and not live.cancelling and live.touched < old:
                    log.warning("session idle", extra={"session": id_, "task": self.name})
                    self._spawn(self._stop(id_, live))

    async def close(self, limit: float) -> None:
        """End every session, then the task, within about `limit` seconds."""
        self.stopping = True
        try:
            async with asyncio.timeout(limit):
                await self.stop_all()
                outcome = await self._thread.submit(self.task.close()).done
                if isinstance(outcome, BaseException):
                    log.error("closing task %s failed: %r", self.name, outcome)
        except TimeoutError:
            log.error("task %s: %d sessions did not end in time", self.name, len(self.sessions))
        self._thread.close(1.0)


def _unknown(session: int) -> Answer:
    return 400, {"detail": f"No such session: {session}"}


def _now() -> float:
    return asyncio.get_running_loop().time()

"""The controller of the network form: the router, with JSON as what travels, and all that surrounds it.

Knows no transport of its clients: `server.py` puts HTTP around it, `grpc_server.py` the workers' streams.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from agentrl.hosting.failures import Closing, SessionLost
from agentrl.hosting.network.directory import Directory, Registration
from agentrl.hosting.network.link import WireLink
from agentrl.hosting.network.settings import ControllerSettings
from agentrl.hosting.network.store import Store
from agentrl.hosting.network.watch import Metrics, Watch
from agentrl.hosting.network.wire import ClientStart, Json, Overall
from agentrl.hosting.registry import Session, Worker
from agentrl.hosting.router import Limits, Router

log = logging.getLogger("agentrl.hosting")


class ControllerService:
    def __init__(self, settings: ControllerSettings) -> None:
        self.settings = settings
        self.store = Store(settings.state)
        self.watch = Watch(settings.transcript)
        limits = Limits(
            wait=settings.wait,
            start=settings.start,
            call=settings.call,
            cancel=settings.cancel,
            queued=settings.queued,
        )
        self.router = Router(limits, (self.store, self.watch), self.store.next_id)
        self.directory = Directory(self.router, self.store, settings)
        self.metrics = Metrics(self.router, self.store)
        self._keeper: asyncio.Task[None] | None = None

    async def open(self, make_link: Callable[[str], WireLink | None]) -> None:
        """Take up what an earlier controller left; `make_link` by a worker's key."""
        self._restore(make_link)
        self._keeper = asyncio.get_running_loop().create_task(self.directory.run())

    def _restore(self, make_link: Callable[[str], WireLink | None]) -> None:
        stored = self.store.load()
        now = asyncio.get_running_loop().time()
        for task, indices in stored.tasks.items():
            self.directory.remember(task, indices)
        for known in stored.workers:
            link = make_link(known.key)
            if link is None:
                self.store.forget_worker(known.key)
                continue
            worker = Worker(known.key, known.task, link, known.capacity, drained=known.drained)
            worker.silent = worker.doubtful = True
            self.router.add(worker)
        for row in stored.sessions:
            found = self.router.workers.get(row.worker)
            if found is None:
                found = Worker(row.worker, row.task, _NoLink(row.worker), 0, silent=True)
            session = Session(row.id, row.task, row.index, found, row.client, now, now)
            self.router.sessions[row.id] = found.sessions[row.id] = session
            self.watch.started(session)
            if found.key not in self.router.workers:
                self.router.finish(session, SessionLost.cause, "its worker is not known any more")
        if stored.sessions or stored.workers:
            log.info(
                "state taken up",
                extra={"sessions": len(self.router.sessions), "workers": len(stored.workers)},
            )

    # Clients

    async def start(self, request: ClientStart, client: str) -> tuple[int, Json]:
        offer = self.directory.offer(request.name)
        index, custom = offer.resolve(request.name, request.index, request.custom_task)
        body: Json = {"index": index, "custom_task": custom}
        if request.seed is not None:
            body["seed"] = request.seed
        session, payload = await self.router.start(request.name, index, body, client)
        self.watch.said(session, payload["messages"])
        return session, payload

    async def interact(self, session: int, messages: list[Any]) -> Json:
        self.watch.said(session, messages)
        payload: Json = await self.router.interact(session, messages)
        self.watch.said(session, payload["messages"])
        return payload

    def cancel(self, session: int) -> None:
        """Raises `KeyError` for an unknown session; the worker is told beside this call."""
        if session not in self.router.sessions:
            raise KeyError(session)
        self.router.spawn(self.router.cancel(session))

    def cancel_all(self, task: str | None) -> int:
        chosen = [s for s in self.router.sessions.values() if task in (None, s.task)]
        for session in chosen:
            self.router.spawn(self.router.cancel(session.id, "cancelled", "cancel_all"))
        return len(chosen)

    async def overall(self, worker: Worker, wanted: Overall) -> Any:
        assert isinstance(worker.link, WireLink)
        return await worker.link.overall(wanted.model_dump(mode="json"), self.settings.call)

    # Workers

    def heartbeat(
        self,
        key: str,
        task: str,
        capacity: int,
        indices: list[Any],
        make_link: Callable[[], WireLink],
        instance: str | None = None,
    ) -> Worker:
        if not task or not indices:
            raise Registration("a heartbeat needs a task name and samples")
        return self.directory.heartbeat(key, task, capacity, indices, make_link, instance)

    def notice(self, session_id: int) -> None:
        """A worker says that a session has ended there after a cancel."""
        session = self.router.sessions.get(session_id)
        if session is not None:
            self.router.finish(session, "cancelled", "the worker says so")
        for worker in self.router.workers.values():
            if session_id in worker.stuck:
                worker.stuck.discard(session_id)
                self.router.pump(worker.task)

    def silence(self, key: str) -> None:
        """A worker's stream has ended: no new sessions until it is back, or dropped when it is not."""
        worker = self.router.workers.get(key)
        if worker is not None:
            worker.silent = True

    # End

    def begin_close(self) -> None:
        """No new sessions; calls under way go on."""
        self.router.closing = True
        self.router.refuse_waiting(Closing("the controller is closing"))

    async def close(self) -> None:
        """Leave the live sessions to the next controller, or end them where none will know of them."""
        self.begin_close()
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
        if self.settings.state is None:
            await self.router.close()
        else:
            await self.router.settle(self.settings.grace)
        for worker in self.router.workers.values():
            await worker.link.close()
        await self.store.close()


class _NoLink(WireLink):
    """Of a worker that is not known any more."""

    async def send(self, endpoint: str, body: bytes) -> tuple[int, bytes]:
        raise SessionLost(f"worker {self.name} is not known any more")

    async def close(self) -> None: ...

"""Which tasks there are, who serves them, and what becomes of workers that fall silent.

Invariants: no worker gets a session before its sessions have been compared with ours; a session that
only one side knows ends, except one of an earlier controller, which is adopted; what a worker still
holds of ended sessions counts as taken (11).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from agentrl.hosting.failures import (
    HostingError,
    SessionLost,
    UnknownIndex,
    UnknownTask,
    Unreachable,
    WorkerLost,
)
from agentrl.hosting.network.link import WireLink
from agentrl.hosting.network.settings import ControllerSettings
from agentrl.hosting.network.store import Store
from agentrl.hosting.network.wire import CUSTOM
from agentrl.hosting.registry import Session, Worker
from agentrl.hosting.router import Router

log = logging.getLogger(__name__)

TICK = 0.25
"""Seconds between looks at the timers, and between writes of the state."""


class Registration(HostingError):
    """A heartbeat that cannot be taken."""

    cause, http = "refused_heartbeat", 400


class Offer:
    """The samples of one task. Names of samples may be used by their place, where all are texts."""

    def __init__(self, indices: list[Any]) -> None:
        self.indices = indices
        self._known = {(type(index), index) for index in indices}
        named = [index for index in indices if index != CUSTOM]
        self._names = named if named and all(isinstance(i, str) for i in named) else []

    def resolve(self, task: str, index: Any, custom: Any) -> tuple[Any, Any]:
        """What is sent to a worker: index and custom task."""
        if index == CUSTOM:
            if custom is None or (int, CUSTOM) not in self._known:
                raise UnknownIndex(f"task {task!r}: index -1 needs a task that takes custom_task")
            return index, custom
        if (type(index), index) in self._known:
            return index, None
        if isinstance(index, int) and 0 <= index < len(self._names):
            return self._names[index], None
        raise UnknownIndex(f"task {task!r} has no sample {index!r}")


class Directory:
    def __init__(self, router: Router, store: Store, settings: ControllerSettings) -> None:
        self.router, self.store, self.settings = router, store, settings
        self.offers: dict[str, Offer] = {}
        self._instances: dict[str, str | None] = {}
        self._compared: dict[str, float] = {}
        self._comparing: set[str] = set()

    # Tasks

    def offer(self, task: str) -> Offer:
        offer = self.offers.get(task)
        if offer is None:
            known = ", ".join(sorted(self.offers)) or "none"
            raise UnknownTask(f"no worker serves task {task!r}; tasks: {known}")
        return offer

    def remember(self, task: str, indices: list[Any]) -> None:
        """A task of an earlier controller: starts wait for its workers to come back."""
        self.offers[task] = Offer(indices)

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
        """A worker is there. Raises `Registration` where it cannot be taken as it is."""
        worker = self.router.workers.get(key)
        if worker is not None and worker.task != task:
            self.drop(worker, WorkerLost(f"worker {key} serves {task!r} now"))
            worker = None
        self._offered(task, indices, worker)
        new = worker is None
        if worker is None:
            worker = Worker(key, task, make_link(), capacity, doubtful=True)
            self._instances[key] = instance
            self.router.add(worker)
            log.info("worker registered", extra={"worker": key, "task": task, "slots": capacity})
        back = worker.silent or self._instances.get(key) != instance
        if new or worker.capacity != capacity:
            worker.capacity = capacity
            self.store.worker(key, task, capacity, worker.drained)
        self._instances[key] = instance
        worker.seen = asyncio.get_running_loop().time()
        worker.silent = False
        if new or back or worker.doubtful:
            worker.doubtful = True
            self.compare_soon(worker)
        else:
            self.router.pump(task)
        return worker

    def _offered(self, task: str, indices: list[Any], worker: Worker | None) -> None:
        offer = self.offers.get(task)
        if offer is not None and offer.indices == indices:
            return
        others = [other for other in self.router.of(task) if other is not worker]
        if offer is not None and others:
            raise Registration(
                f"task {task!r}: its other workers offer other samples; all workers of a task must "
                "list the same ones in the same order"
            )
        self.offers[task] = Offer(indices)
        self.store.task(task, indices)

    def drop(self, worker: Worker, error: HostingError) -> None:
        """Forget a worker; its sessions end. Its task stays: starts wait for another worker."""
        log.warning("worker dropped: %s", error, extra={"worker": worker.key, "task": worker.task})
        self.router.remove(worker, error)
        self.store.forget_worker(worker.key)
        self._instances.pop(worker.key, None)
        self._compared.pop(worker.key, None)
        self.router.spawn(worker.link.close())

    def drain(self, worker: Worker, drained: bool) -> None:
        worker.drained = drained
        self.store.worker(worker.key, worker.task, worker.capacity or 0, drained)
        log.info("worker drained" if drained else "worker back", extra={"worker": worker.key})
        self.router.pump(worker.task)

    # Comparing

    def compare_soon(self, worker: Worker) -> None:
        if worker.key not in self._comparing:
            self._comparing.add(worker.key)
            self.router.spawn(self._compare(worker))

    async def _compare(self, worker: Worker) -> None:
        try:
            await self.compare(worker)
        except Unreachable as error:
            worker.silent = True
            log.info("%s", error, extra={"worker": worker.key})
        except HostingError as error:
            worker.doubtful = True  # and is asked again at the next tick
            log.info("%s", error, extra={"worker": worker.key})
        finally:
            self._comparing.discard(worker.key)
            self._compared[worker.key] = asyncio.get_running_loop().time()

    async def compare(self, worker: Worker) -> None:
        """Make both sides know the same sessions."""
        asked = asyncio.get_running_loop().time()
        link = worker.link
        assert isinstance(link, WireLink)
        there = await link.sessions(self.settings.sync_call)
        if self.router.workers.get(worker.key) is not worker:
            return
        for session in list(worker.sessions.values()):
            known = session.id in there and there[session.id] == session.index
            if known or session.updated >= asked or session.cancelling:
                continue
            lost = SessionLost(f"worker {worker.key} does not know session {session.id} any more")
            if not session.busy:
                self.router.finish(session, lost.cause, str(lost))
            elif link.ordered:
                session.cut(lost)
        for id_, index in there.items():
            if id_ in worker.sessions or id_ in worker.stuck:
                continue
            if id_ < self.store.first_id and id_ not in self.router.sessions:
                self._adopt(worker, id_, index)
            else:
                worker.stuck.add(id_)
        worker.stuck &= there.keys()
        for id_ in worker.stuck:
            self.router.spawn(self._free(worker, id_))
        worker.doubtful = False
        self.router.pump(worker.task)

    def _adopt(self, worker: Worker, id_: int, index: Any) -> None:
        now = asyncio.get_running_loop().time()
        session = Session(id_, worker.task, index, worker, "", now, now)
        self.router.admit(session)
        log.info("session adopted", extra={"session": id_, "worker": worker.key})

    async def _free(self, worker: Worker, id_: int) -> None:
        try:
            async with asyncio.timeout(self.settings.cancel):
                await worker.link.cancel(id_)
        except (HostingError, TimeoutError):
            return  # still stuck; asked again at the next comparison
        worker.stuck.discard(id_)
        self.router.pump(worker.task)

    # Time

    async def run(self) -> None:
        """Look after the timers until cancelled."""
        while True:
            await asyncio.sleep(TICK)
            self.tick()
            await self.store.flush()

    def tick(self) -> None:
        now = asyncio.get_running_loop().time()
        settings = self.settings
        for worker in list(self.router.workers.values()):
            quiet = now - worker.seen
            if quiet > settings.lost_after:
                self.drop(worker, WorkerLost(f"worker {worker.key} was silent for {quiet:.0f} s"))
            elif quiet > settings.silent_after and not worker.silent:
                worker.silent = True
                log.warning("worker silent", extra={"worker": worker.key})
            elif not worker.silent:
                since = now - self._compared.get(worker.key, now - settings.sync)
                if since >= (1.0 if worker.doubtful else settings.sync):
                    self.compare_soon(worker)
        for session in list(self.router.sessions.values()):
            if (
                not session.busy
                and not session.cancelling
                and now - session.updated > settings.idle
            ):
                self.router.spawn(
                    self.router.cancel(session.id, "idle", f"no call for {settings.idle:g} s")
                )

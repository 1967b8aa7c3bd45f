"""A running worker: one process of it, or several that are started again when they die."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from types import TracebackType

from agentrl.hosting.network.guard import Guard
from agentrl.hosting.network.serving import HttpServer, stop_signal
from agentrl.hosting.network.settings import WorkerSettings
from agentrl.hosting.network.worker import TaskWorker
from agentrl.hosting.network.worker_grpc import GrpcTransport, is_grpc
from agentrl.hosting.network.worker_http import HttpHeartbeat, WorkerApp
from agentrl.tasks.base import Task

log = logging.getLogger("agentrl.hosting.worker")

GRACE = 30.0
"""Seconds for sessions to end when a worker is stopped."""
QUICK_DEATH, MAX_QUICK_DEATHS = 10.0, 5
"""A process that dies so soon, so often in a row, is not started again."""


class NetworkWorker:
    """`async with NetworkWorker(task, split, settings):` serves meanwhile."""

    def __init__(self, task: Task, split: str, settings: WorkerSettings, seed: int = 0) -> None:
        self.settings = settings
        self._served = (task, split, settings, seed)

    async def __aenter__(self) -> NetworkWorker:
        self.worker = worker = TaskWorker(*self._served)
        self._http: HttpServer | None = None
        self._transport: GrpcTransport | HttpHeartbeat
        if is_grpc(self.settings.controller):
            self._transport = GrpcTransport(worker)
        else:
            app = Guard(WorkerApp(worker), self.settings)
            self._http = HttpServer(app, self.settings, self.settings.port, GRACE)
            self._transport = HttpHeartbeat(worker, self.address)
            await self._http.start()
        worker.notify = self._transport.notify
        loop = asyncio.get_running_loop()
        self._jobs = [loop.create_task(self._transport.run()), loop.create_task(worker.reap())]
        return self

    @property
    def address(self) -> str:
        if self.settings.address is not None:
            return self.settings.address
        assert self._http is not None
        scheme = "http" if self.settings.certificate is None else "https"
        host = self.settings.host
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self._http.port}/api"

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.worker.close(GRACE)
        await asyncio.sleep(0)  # what was just answered is on its way
        for job in self._jobs:
            job.cancel()
        for job in self._jobs:
            with suppress(asyncio.CancelledError):
                await job
        if self._http is not None:
            await self._http.close()
        await self._transport.close()


async def run_worker(
    make_task: Callable[[], Task], split: str, settings: WorkerSettings, seed: int
) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    with stop_signal() as stop:
        async with NetworkWorker(make_task(), split, settings, seed) as worker:
            where = settings.controller if is_grpc(settings.controller) else worker.address
            name = worker.worker.name
            print(f"agentrl worker: {name}, {settings.concurrency} sessions, {where}", flush=True)
            await stop.wait()


def supervise(start: Callable[[int], None], processes: int) -> None:
    """Run `start(0) … start(n - 1)`, each in a process of its own, until SIGTERM or Ctrl-C.

    One that dies is started again; one that keeps dying at once is given up, and when all are, it ends.
    """
    context = multiprocessing.get_context("spawn")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())

    def launch(place: int) -> multiprocessing.process.BaseProcess:
        process = context.Process(target=start, args=(place,), name=f"worker-{place}")
        process.start()
        return process

    running = {place: launch(place) for place in range(processes)}
    born = dict.fromkeys(running, time.monotonic())
    quick = dict.fromkeys(running, 0)
    while running and not stop.is_set():
        wait([process.sentinel for process in running.values()], timeout=0.5)
        for place, process in list(running.items()):
            if process.is_alive() or stop.is_set():
                continue
            quick[place] = quick[place] + 1 if time.monotonic() - born[place] < QUICK_DEATH else 0
            if quick[place] >= MAX_QUICK_DEATHS:
                log.error("worker process %d keeps dying; given up", place)
                del running[place]
                continue
            log.warning("worker process %d ended (%s); started again", place, process.exitcode)
            running[place], born[place] = launch(place), time.monotonic()
    for process in running.values():
        process.terminate()
    deadline = time.monotonic() + GRACE + 5
    for process in running.values():
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()

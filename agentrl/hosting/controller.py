"""The controller in process: starts, steps and ends the episodes of any number of tasks.

The router of the network form with one worker a task, in the same process and with any number of
slots; see there, and `EpisodeHost`, for the invariants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from agentrl.errors import InfrastructureError
from agentrl.hosting.client import Opening
from agentrl.hosting.host import EpisodeHost
from agentrl.hosting.registry import Reply, Worker
from agentrl.hosting.router import Router
from agentrl.messages import Message
from agentrl.tasks.base import Sample, Step, Task


class LocalLink:
    """Calls the episodes of one task in the same process."""

    ends_failed = True

    def __init__(self, task: Task) -> None:
        self.host = EpisodeHost(task)

    async def start(self, session: int, request: Any) -> Reply:
        sample, seed = request
        return Reply(await self.host.start(session, sample, seed))

    async def interact(self, session: int, turn: Any) -> Reply:
        step = await self.host.step(session, turn)
        return Reply(step, step.done, step.status)

    async def cancel(self, session: int) -> None:
        await self.host.close(session)

    async def close(self) -> None:
        await self.host.close_all()


class Controller:
    """Serves `tasks` to agents in the same process; see `EnvironmentClient` for the contract."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self.tasks = dict(tasks)
        self._router = Router()

    @property
    def live(self) -> int:
        """Sessions that hold an episode now."""
        return len(self._router.sessions)

    async def start(self, sample: Sample, seed: int) -> Opening:
        if sample.task not in self._router.workers:
            task = self.tasks.get(sample.task)
            if task is None:
                raise InfrastructureError(f"no worker serves task {sample.task!r}")
            self._router.add(Worker(sample.task, sample.task, LocalLink(task)))
        _, opening = await self._router.start(sample.task, sample.index, (sample, seed))
        assert isinstance(opening, Opening)
        return opening

    async def interact(self, session: int, message: Message) -> Step:
        step = await self._router.interact(session, message)
        assert isinstance(step, Step)
        return step

    async def cancel(self, session: int) -> None:
        await self._router.cancel(session)

    async def close(self) -> None:
        """End every session, then every task."""
        await self._router.close()
        closed = await asyncio.gather(
            *(task.close() for task in self.tasks.values()), return_exceptions=True
        )
        for problem in closed:
            if isinstance(problem, BaseException):
                raise problem

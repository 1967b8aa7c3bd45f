"""The controller in process: starts, steps and ends the episodes of any number of tasks.

Invariants: a session is closed exactly once, on every path (11) - its last step, a cancel, an
exception, the controller's own end; a failure of the environment is an `InfrastructureError` and
never a step (4); ids never repeat. Bad input of a person (`DataError`, `ConfigError`) passes
through unchanged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from agentrl.errors import AgentRLError, InfrastructureError
from agentrl.hosting.client import Opening
from agentrl.messages import Message
from agentrl.tasks.base import Episode, Sample, Step, Task

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Session:
    sample: Sample
    episode: Episode
    busy: bool = False


class Controller:
    """Serves `tasks` to agents in the same process; see `EnvironmentClient` for the contract."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self.tasks = dict(tasks)
        self._sessions: dict[int, _Session] = {}
        self._next = 1

    @property
    def live(self) -> int:
        """Sessions that hold an episode now."""
        return len(self._sessions)

    async def start(self, sample: Sample, seed: int) -> Opening:
        task = self.tasks.get(sample.task)
        if task is None:
            raise InfrastructureError(f"no worker serves task {sample.task!r}")
        session, self._next = self._next, self._next + 1
        try:
            episode = await task.start(sample, seed)
        except AgentRLError:
            raise
        except Exception as error:
            raise _failure(sample, "start", error) from error
        self._sessions[session] = _Session(sample, episode)
        return Opening(session, episode.messages, task.tools)

    async def interact(self, session: int, message: Message) -> Step:
        entry = self._sessions[session]
        if entry.busy:
            raise InfrastructureError(f"session {session} is still busy with its last call")
        entry.busy = True
        ended = True
        try:
            step = await entry.episode.step(message)
            ended = step.done
            return step
        except AgentRLError:
            raise
        except Exception as error:
            raise _failure(entry.sample, "step", error) from error
        finally:
            entry.busy = False
            if ended:
                await self.cancel(session)

    async def cancel(self, session: int) -> None:
        entry = self._sessions.pop(session, None)
        if entry is None:
            return
        try:
            # Shielded: a caller that is cancelled meanwhile must not leave it half closed.
            await asyncio.shield(entry.episode.close())
        except Exception:
            # The episode's result stands; what it held is the task's to give back when it closes.
            log.exception("session %d: closing %s failed", session, entry.sample)

    async def close(self) -> None:
        """End every session, then every task."""
        for session in list(self._sessions):
            await self.cancel(session)
        closed = await asyncio.gather(
            *(task.close() for task in self.tasks.values()), return_exceptions=True
        )
        for problem in closed:
            if isinstance(problem, BaseException):
                raise problem


def _failure(sample: Sample, verb: str, error: Exception) -> InfrastructureError:
    log.warning("%s: %s failed", sample, verb, exc_info=error)
    return InfrastructureError(
        f"task {sample.task!r}, sample {sample.split}/{sample.index}: {verb} failed: "
        f"{type(error).__name__}: {error}"
    )

"""The live episodes of one task, by session: what the in-process controller and a worker share.

Invariants: an episode is closed exactly once, on every path (11) - its last step, a cancel, an
exception, the end of its host; a failure of the environment is an `InfrastructureError` and never a
step (4). Bad input of a person (`DataError`, `ConfigError`) passes through unchanged.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from agentrl.errors import AgentRLError, InfrastructureError
from agentrl.hosting.client import Opening
from agentrl.messages import Message
from agentrl.tasks.base import Episode, Sample, Step, Task

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Hosted:
    sample: Sample
    episode: Episode


class EpisodeHost:
    """Starts, steps and closes episodes of `task`. Whoever calls sees to one call a session."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._episodes: dict[int, _Hosted] = {}

    @property
    def live(self) -> int:
        """Episodes that are held now."""
        return len(self._episodes)

    async def start(self, session: int, sample: Sample, seed: int) -> Opening:
        try:
            episode = await self.task.start(sample, seed)
        except AgentRLError:
            raise
        except Exception as error:
            raise _failure(sample, "start", error) from error
        self._episodes[session] = _Hosted(sample, episode)
        return Opening(session, episode.messages, self.task.tools)

    async def step(self, session: int, message: Message) -> Step:
        """Raises `KeyError` for an unknown or ended session. After any failure it is closed."""
        hosted = self._episodes[session]
        ended = True
        try:
            step = await hosted.episode.step(message)
            ended = step.done
            return step
        except AgentRLError:
            raise
        except Exception as error:
            raise _failure(hosted.sample, "step", error) from error
        finally:
            if ended:
                await self.close(session)

    async def close(self, session: int) -> None:
        """Idempotent. Never raises for the task: its result stands."""
        hosted = self._episodes.pop(session, None)
        if hosted is None:
            return
        try:
            # Shielded: a caller that is cancelled meanwhile must not leave it half closed.
            await asyncio.shield(hosted.episode.close())
        except Exception:
            log.exception("session %d: closing %s failed", session, hosted.sample)

    async def close_all(self) -> None:
        for session in list(self._episodes):
            await self.close(session)


def _failure(sample: Sample, verb: str, error: Exception) -> InfrastructureError:
    log.warning("%s: %s failed", sample, verb, exc_info=error)
    return InfrastructureError(
        f"task {sample.task!r}, sample {sample.split}/{sample.index}: {verb} failed: "
        f"{type(error).__name__}: {error}"
    )

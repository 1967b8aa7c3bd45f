"""One episode played by one model, or by several that take turns.

Invariants: who speaks at a turn is drawn by (episode seed, turn) and nothing else (8); a failed
endpoint or environment is a record without a reward (4); the session is given back on every path,
also on cancel (11).
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from agentrl.errors import InfrastructureError
from agentrl.evaluation.api.conversation import Answer, Request, Said, with_own_ids
from agentrl.evaluation.api.endpoint import Endpoint
from agentrl.evaluation.api.failures import ContextExceeded
from agentrl.evaluation.api.usage import Tally
from agentrl.evaluation.rows import SAMPLED, Job
from agentrl.hosting.client import EnvironmentClient, Opening
from agentrl.messages import Message, Status, clean
from agentrl.randomness import derive, stream

log = logging.getLogger(__name__)

CONTEXT_LIMIT_REWARD = 0.0
"""As in `rollout.agent_loop`."""


class EndpointFailure(InfrastructureError):
    """A model did not answer: the endpoint has tried for long enough already."""


@dataclass(slots=True)
class Played:
    """An episode as it went; of an episode that failed, as far as it went."""

    status: Status = Status.TASK_ERROR
    reward: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    history: list[Said] = field(default_factory=list)
    finish_reasons: list[str] = field(default_factory=list)
    """One a turn."""
    spent: dict[str, Tally] = field(default_factory=dict)
    """By model."""
    error: str | None = None
    seconds: float = 0.0

    @property
    def tokens(self) -> int | None:
        """Written by the models; None where one did not say."""
        if any(tally.without_usage for tally in self.spent.values()):
            return None
        return sum(tally.usage.output for tally in self.spent.values())


class ApiEpisode:
    """One episode; `run` it once. `played` is what it has come to, also after a cancel.

    Args:
        models: by name; each speaks with a share of `config.weight`.
        temperature: of sampled episodes.
    """

    def __init__(
        self,
        client: EnvironmentClient,
        models: Mapping[str, Endpoint],
        job: Job,
        temperature: float,
    ) -> None:
        self._client, self._models, self._job = client, models, job
        self._temperature = temperature if job.mode == SAMPLED else 0.0
        self.played = Played()

    async def run(self, attempts: int) -> Played:
        """Play to the end; after a failure of the environment again, `attempts` times in all."""
        started = time.monotonic()
        for left in reversed(range(attempts)):
            spent = self.played.spent
            self.played = Played(spent=spent)
            try:
                await self._play()
            except InfrastructureError as error:
                self.played.status, self.played.reward = Status.TASK_ERROR, None
                self.played.error = str(error)
                if isinstance(error, EndpointFailure):
                    break
            if not (left and self.played.status.is_infrastructure):
                break
        self.played.seconds = round(time.monotonic() - started, 3)
        return self.played

    async def _play(self) -> None:
        opening = await self._client.start(self._job.sample, self._job.seed)
        try:
            await self._turns(opening)
        finally:
            # Shielded: a second cancel must not leave the session open.
            await asyncio.shield(self._give_back(opening.session))

    async def _turns(self, opening: Opening) -> None:
        played, used, turn = self.played, set[str](), 0
        played.history = [Said(_cleaned(message)) for message in opening.messages]
        while True:
            name = draw(self._job.seed, turn, self._models)
            try:
                answer = await self._ask(name, opening, turn)
            except ContextExceeded as error:
                played.status, played.reward = Status.CONTEXT_LIMIT, CONTEXT_LIMIT_REWARD
                played.error = str(error)
                return
            except InfrastructureError as error:
                raise EndpointFailure(f"models.{name}: {error}") from None
            message = with_own_ids(answer.message, turn, used)
            native = answer.native if message == answer.message else None
            played.history.append(Said(message, name, native))
            played.finish_reasons.append(answer.finish_reason)
            try:
                step = await self._client.interact(opening.session, message)
            except KeyError:
                raise InfrastructureError(
                    f"the environment has lost session {opening.session}"
                ) from None
            played.history += [Said(_cleaned(reply)) for reply in step.messages]
            played.metrics = dict(step.metrics)
            if step.done:
                played.status = step.status
                if not step.status.is_infrastructure:
                    played.reward = step.reward
                else:
                    played.error = f"the environment ended with status {step.status.value!r}"
                return
            turn += 1

    async def _ask(self, name: str, opening: Opening, turn: int) -> Answer:
        model = self._models[name]
        request = Request(
            self.played.history,
            opening.tools,
            self._temperature if model.config.takes_temperature else None,
            derive(self._job.seed, "api", turn) % 2**31 if model.config.takes_seed else None,
        )
        return await model.ask(request, self.played.spent.setdefault(name, Tally()))

    async def _give_back(self, session: int) -> None:
        try:
            await self._client.cancel(session)
        except InfrastructureError as error:
            log.warning("session %d could not be cancelled: %s", session, error)


def draw(seed: int, turn: int, models: Mapping[str, Endpoint]) -> str:
    """Which model speaks at `turn` of the episode with `seed`, in shares of their weights."""
    names, bounds = list(models), list(accumulate(m.config.weight for m in models.values()))
    point = stream(seed, "acting policy", turn).random() * bounds[-1]
    return names[min(bisect_right(bounds, point), len(names) - 1)]


def transcript(played: Played) -> list[dict[str, Any]]:
    """The messages as OpenAI objects; `by` says which model spoke."""
    return [
        said.message.to_openai() | ({} if said.by is None else {"by": said.by})
        for said in played.history
    ]


def _cleaned(message: Message) -> Message:
    return Message(
        message.role, clean(message.content), message.tool_calls, message.tool_call_id, message.name
    )

"""One episode from its first observation to its trajectory.

Invariants: only new tokens are rendered, sampled ones are never encoded again (1); the trajectory
never holds more than `max_total_tokens`; a failure of the environment or of an engine is a record
with a status and without a reward (3, 4), a bug is an exception; the session and the engines' slots
are given back on every path, also on cancel (11); `state()` between two decode steps is all that a
later process needs to go on (9). Clocks are read for timings only (8).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import TypeVar

from renderers import Renderer

from agentrl.errors import InfrastructureError
from agentrl.hosting.client import EnvironmentClient, Opening
from agentrl.messages import Message, Status
from agentrl.randomness import derive
from agentrl.rollout.cross_policy import PolicyPool
from agentrl.rollout.engine import Completion, Sampling
from agentrl.rollout.episode_state import EpisodeState
from agentrl.rollout.rendering import extension, parse_message, render, sanitized
from agentrl.rollout.trajectory import TokenRecord, Trajectory, Turn
from agentrl.tasks.base import Sample, Step

log = logging.getLogger(__name__)
T = TypeVar("T")

CONTEXT_LIMIT_REWARD = 0.0
"""Reward of an episode that ran out of tokens before the environment ended it."""


@dataclass(frozen=True, slots=True)
class EpisodeSettings:
    """How the episodes of a run are played."""

    renderer: Renderer
    temperature: float = 1.0
    max_new_tokens: int = 48
    """Per turn."""
    max_total_tokens: int = 768
    """Per episode, the opening and all replies included."""
    validation: bool = False
    """True: the current policy speaks at every turn."""


@dataclass(frozen=True, slots=True)
class _Ending:
    status: Status
    reward: float | None
    error: str | None = None


class AgentEpisode:
    """One live episode; `run` it once, look at `state` at any time.

    Args:
        session: the episode's name at the engines, unique among the live ones; decides the order
            of rows in a batch. By default the number that the environment gives.
        state: an episode of an earlier process to go on with; sample, seed and place in the group
            must be the same.
    """

    def __init__(
        self,
        client: EnvironmentClient,
        pool: PolicyPool,
        settings: EpisodeSettings,
        sample: Sample,
        *,
        seed: int,
        group_id: int = -1,
        member: int = 0,
        session: int | None = None,
        state: EpisodeState | None = None,
    ) -> None:
        self._client, self._pool, self._settings = client, pool, settings
        self._live = state or EpisodeState(sample, seed, group_id, member, session or 0)
        self._unnamed = session is None and state is None
        self._sampling_seed = derive(seed, "sampled tokens")
        self._environment: int | None = None
        self._generating = False
        self._opening: Opening | None = None
        self._metrics: dict[str, float] = {}
        self._seconds = {"engine": 0.0, "environment": 0.0}
        self._ending: _Ending | None = None

    def state(self) -> EpisodeState:
        """A copy of all that is needed to go on, as of now."""
        live = self._live
        partial = live.partial
        if self._generating and live.role is not None:
            partial = self._pool.engines[live.role].partial(live.session) or partial
        return replace(
            live,
            turns=[replace(turn) for turn in live.turns],
            tokens=TokenRecord.from_dict(live.tokens.to_dict()),
            partial=partial,
        )

    async def run(self) -> Trajectory:
        """Play to the end. Infrastructure failures come back as a trajectory, bugs are raised."""
        try:
            try:
                await self._start()
                while self._ending is None:
                    await self._turn()
            except InfrastructureError as error:
                self._ending = _Ending(Status.TASK_ERROR, None, str(error))
        finally:
            self._pool.release(self._live.session)
            if self._environment is not None:
                # Shielded: a second cancel must not leave the session open.
                await asyncio.shield(self._give_back(self._environment))
        return self._trajectory(self._ending)

    async def _start(self) -> None:
        live = self._live
        opening = await self._timed("environment", self._client.start(live.sample, live.seed))
        self._opening, self._environment = opening, opening.session
        if self._unnamed:
            live.session = opening.session
        messages = [sanitized(message) for message in opening.messages]
        told = [message.to_openai() for message in messages]
        if live.opening not in (None, told):
            raise self._differs("opening")
        live.opening = told
        if len(live.tokens):
            await self._replay()
            return
        ids = render(
            self._settings.renderer, messages, opening.tools, add_generation_prompt=True
        ).token_ids
        if len(ids) >= self._settings.max_total_tokens:
            self._ending = _Ending(Status.CONTEXT_LIMIT, CONTEXT_LIMIT_REWARD)
            return
        live.tokens.environment(ids, 0)

    async def _replay(self) -> None:
        """Bring a fresh environment to where the saved one was."""
        live = self._live
        for turn in live.turns[: live.answered]:
            step = await self._interact(Message.from_openai(turn.assistant))
            self._metrics = dict(step.metrics)
            if step.done or [m.to_openai() for m in step.messages] != turn.replies:
                raise self._differs("reply")
        if live.answered < len(live.turns):
            await self._take(live.turns[-1])

    async def _turn(self) -> None:
        live, settings = self._live, self._settings
        number = len(live.turns)
        room = settings.max_total_tokens - len(live.tokens)
        if room <= 0:
            self._ending = _Ending(Status.CONTEXT_LIMIT, CONTEXT_LIMIT_REWARD)
            return
        before = dict(self._seconds)
        live.role = self._pool.draw(live.seed, number, validation=settings.validation)
        completion = await self._generate(min(settings.max_new_tokens, room))
        if not completion.token_ids:
            self._ending = _Ending(Status.CONTEXT_LIMIT, CONTEXT_LIMIT_REWARD)
            return
        assert self._opening is not None
        message = parse_message(
            settings.renderer,
            completion.token_ids,
            self._opening.tools,
            prompt=live.tokens.ids,
            turn=number,
        )
        turn = Turn(message.to_openai(), [], completion.finish_reason, live.role)
        live.tokens.sampled(completion, self._pool.roles.index(live.role), number)
        live.turns.append(turn)
        live.role = live.partial = None
        await self._take(turn)
        turn.seconds = {kind: self._seconds[kind] - before[kind] for kind in before}

    async def _generate(self, max_new_tokens: int) -> Completion:
        live, settings = self._live, self._settings
        assert live.role is not None
        sampling = Sampling(
            settings.temperature,
            max_new_tokens,
            tuple(settings.renderer.get_stop_token_ids()),
            self._sampling_seed,
        )
        self._generating = True
        try:
            completion = await self._timed(
                "engine",
                self._pool.engines[live.role].generate(
                    live.tokens.ids, sampling, session=live.session, partial=live.partial
                ),
            )
        finally:
            self._generating = False
        if completion.finish_reason == "cancelled":
            raise InfrastructureError(f"engine {live.role!r} cancelled session {live.session}")
        return completion

    async def _take(self, turn: Turn) -> None:
        """Give the last assistant message to the environment and take in what it answers."""
        live, settings = self._live, self._settings
        assert self._opening is not None
        step = await self._interact(Message.from_openai(turn.assistant))
        turn.replies = [message.to_openai() for message in step.messages]
        self._metrics = dict(step.metrics)
        if step.done:
            failed = step.status.is_infrastructure
            self._ending = _Ending(
                step.status,
                None if failed else step.reward,
                f"the environment ended with status {step.status.value!r}" if failed else None,
            )
            return
        prompt, completion = live.tokens.split()
        ids = extension(settings.renderer, prompt, completion, step.messages, self._opening.tools)
        if len(live.tokens) + len(ids) >= settings.max_total_tokens:
            self._ending = _Ending(Status.CONTEXT_LIMIT, CONTEXT_LIMIT_REWARD)
        else:
            live.tokens.environment(ids, len(live.turns))
            live.answered = len(live.turns)

    async def _interact(self, message: Message) -> Step:
        assert self._environment is not None
        try:
            step = await self._timed(
                "environment", self._client.interact(self._environment, message)
            )
        except KeyError:
            raise InfrastructureError(
                f"the environment has lost session {self._environment}"
            ) from None
        return replace(step, messages=tuple(sanitized(reply) for reply in step.messages))

    async def _timed(self, kind: str, work: Awaitable[T]) -> T:
        started = time.monotonic()
        try:
            return await work
        finally:
            self._seconds[kind] += time.monotonic() - started

    async def _give_back(self, session: int) -> None:
        try:
            await self._client.cancel(session)
        except InfrastructureError as error:
            # What the episode has shown stands; the far side ends silent sessions by itself.
            log.warning("session %d could not be cancelled: %s", session, error)

    def _differs(self, what: str) -> InfrastructureError:
        sample = self._live.sample
        return InfrastructureError(
            f"task {sample.task!r}, sample {sample.split}/{sample.index}: on replay its {what} "
            "differs from the saved one, so the episode cannot go on"
        )

    def _trajectory(self, ending: _Ending | None) -> Trajectory:
        assert ending is not None
        live = self._live
        columns = live.tokens.columns()
        return Trajectory(
            task=live.sample.task,
            split=live.sample.split,
            index=live.sample.index,
            group_id=live.group_id,
            member=live.member,
            seed=live.seed,
            status=ending.status,
            reward=ending.reward,
            metrics=self._all_metrics(ending, int(columns["loss_mask"].sum())),
            opening=live.opening or [],
            turns=live.turns,
            timings=dict(self._seconds),
            roles=self._pool.roles,
            error=ending.error,
            **columns,
        )

    def _all_metrics(self, ending: _Ending, sampled: int) -> dict[str, float]:
        """The task's own metrics, and those that every trajectory has."""
        turns = self._live.turns
        cut_off = sum(turn.finish_reason == "length" for turn in turns)
        metrics: dict[str, float] = {
            "invalid_calls": 0.0,
            **self._metrics,
            "turns": float(len(turns)),
            "truncated_turns": float(cut_off),
            "sampled_tokens": float(sampled),
        }
        if ending.reward is not None:
            metrics["reward"] = ending.reward
            metrics.setdefault("success", float(ending.reward >= 1.0))
        return metrics


async def run_episode(
    client: EnvironmentClient,
    pool: PolicyPool,
    settings: EpisodeSettings,
    sample: Sample,
    *,
    seed: int,
    group_id: int = -1,
    member: int = 0,
    session: int | None = None,
    resume: EpisodeState | None = None,
) -> Trajectory:
    """Play one episode; see `AgentEpisode`."""
    episode = AgentEpisode(
        client,
        pool,
        settings,
        sample,
        seed=seed,
        group_id=group_id,
        member=member,
        session=session,
        state=resume,
    )
    return await episode.run()

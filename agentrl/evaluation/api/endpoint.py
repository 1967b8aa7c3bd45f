"""Asks one model over HTTP, as often as it takes, and keeps count.

Invariants: a key comes from the environment, goes into one header, and is in no text that leaves
this module; what can pass is tried again, what cannot ends the evaluation in one line, and neither
becomes a reward (4); all answers come from one served model (12).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt

from agentrl.config.api_models import ModelConfig
from agentrl.errors import AgentRLError, ConfigError, StateError
from agentrl.evaluation.api import anthropic, openai_chat, openai_responses
from agentrl.evaluation.api.conversation import Answer, Garbage, Request
from agentrl.evaluation.api.failures import Refused, Transient, failure
from agentrl.evaluation.api.limits import Limits
from agentrl.evaluation.api.usage import Tally
from agentrl.randomness import stream

log = logging.getLogger(__name__)

PROTOCOLS: Mapping[str, Any] = {
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
}


class Endpoint:
    """One of `models`; `ask` it from many episodes at once.

    Args:
        environment: where the key is looked up; raises `ConfigError` where it is not.
        spent: what earlier runs of the same evaluation have asked for; counts towards the budget.
        served: the model that has answered them.
        transport: for tests.
    """

    def __init__(
        self,
        name: str,
        config: ModelConfig,
        environment: Mapping[str, str],
        *,
        spent: Tally | None = None,
        served: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.name, self.config, self.served = name, config, served
        self.tally = Tally()
        if spent is not None:
            self.tally.add(spent)
        self._protocol = PROTOCOLS[config.protocol]
        self._key = _key(name, config, environment)
        self._slots = asyncio.Semaphore(config.concurrency)
        self._limits = Limits(config.requests_per_minute, config.tokens_per_minute)
        self._asked = 0
        self._lost_in_a_row = 0
        self._client = httpx.AsyncClient(
            headers={"content-type": "application/json", **self._protocol.headers(self._key)},
            timeout=None,  # one limit for the whole of a request, in `_try`
            limits=httpx.Limits(max_connections=config.concurrency),
            transport=transport,
        )

    async def ask(self, request: Request, tally: Tally) -> Answer:
        """The model's next message; `tally` (an episode's) and `self.tally` count it.

        Raises `Transient` after the last attempt, `Refused` where the endpoint does not take this
        conversation, and an error for a person where nothing will do.
        """
        sent = json.dumps(self._protocol.body(self.name, self.config, request)).encode()
        self._asked += 1
        draws = stream(0, "back-off", self.name, self._asked)

        def wait(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            asked = error.wait if isinstance(error, Transient) else None
            backed_off = self.config.first_wait * 2.0 ** (state.attempt_number - 1)
            seconds = asked if asked is not None else min(backed_off, self.config.longest_wait)
            # Never earlier than the server asks, never all at the same moment.
            return seconds * (1 + draws.random() / 4)

        retrying = AsyncRetrying(
            stop=stop_after_attempt(self.config.attempts),
            retry=retry_if_exception_type(Transient),
            wait=wait,
            sleep=asyncio.sleep,
            before_sleep=self._log,
            reraise=True,
        )
        async with self._slots:
            try:
                answer: Answer = await retrying(self._try, sent, tally)
            except Transient as error:
                self._lost(error)
                raise
        self._lost_in_a_row = 0
        return answer

    async def close(self) -> None:
        await self._client.aclose()

    async def _try(self, sent: bytes, tally: Tally) -> Answer:
        await self._limits.turn()
        self._check_budget()
        try:
            answer = await self._post(sent)
        except (Transient, Refused) as error:
            for each in (tally, self.tally):
                each.failures += 1
            if isinstance(error, Transient) and error.wait is not None:
                self._pause(error.wait)
            if isinstance(error, Refused) and not self.tally.answers:
                raise ConfigError(
                    f"config key 'models.{self.name}': the endpoint refuses the very first request: "
                    f"{error}; see parameters, max_output_tokens, takes_temperature"
                ) from None
            raise
        for each in (tally, self.tally):
            each.answered(answer.usage)
        if answer.usage is not None:
            self._limits.used(answer.usage.total)
        self._check_served(answer.served)
        return answer

    async def _post(self, sent: bytes) -> Answer:
        url = self.config.base_url.rstrip("/") + self._protocol.PATH
        try:
            async with asyncio.timeout(self.config.timeout):
                response = await self._client.post(url, content=sent)
        except TimeoutError:
            raise Transient(f"no answer within {self.config.timeout:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # Not chained: what a library says of a request is shown nowhere unread.
            said = self._scrub(str(error)) or type(error).__name__
            raise Transient(f"cannot be reached, or cut the connection: {said}") from None
        if not response.is_success:
            raise failure(
                response.status_code, response.headers, self._scrub(response.text), self.name
            )
        try:
            data = json.loads(response.content)
            if not isinstance(data, dict):
                raise Garbage("it is no object")
            if isinstance(data.get("error"), dict):  # gateways that say so with status 200
                raise Transient(f"said: {self._scrub(json.dumps(data['error']))[:300]}")
            parsed: Answer = self._protocol.parse(data)
        except (ValueError, RecursionError, AttributeError, TypeError) as error:
            why = str(error) if isinstance(error, Garbage) else "it is not JSON"
            raise Transient(f"answered with garbage: {self._scrub(why)}") from None
        return parsed

    def _pause(self, seconds: float) -> None:
        """Nobody asks while the server wants to be left alone."""
        if seconds > self.config.longest_wait:
            raise StateError(
                f"models.{self.name}: the endpoint asks to wait {seconds:g} s, more than longest_wait "
                f"({self.config.longest_wait:g}); run the same command again later, it goes on"
            )
        self._limits.pause(seconds)

    def _check_budget(self) -> None:
        budget = self.config.budget
        if budget is None or self.config.prices is None:
            return
        if self.tally.without_usage:
            raise ConfigError(
                f"config key 'models.{self.name}.budget': {budget:g} US dollars cannot be kept, for the "
                "endpoint has not said the tokens of an answer; set it to null to go on"
            )
        spent = self.tally.usage.cost(self.config.prices)
        if spent >= budget:
            raise ConfigError(
                f"config key 'models.{self.name}.budget': {spent:.4f} of {budget:g} US dollars are "
                "spent; set more and run the same command again, it goes on"
            )

    def _check_served(self, served: str | None) -> None:
        if not isinstance(served, str):
            return
        if self.served not in (None, served):
            raise ConfigError(
                f"config key 'models.{self.name}.model': {self.config.model!r} was answered by "
                f"{self.served!r} and now by {served!r}; one evaluation is one policy version: name a "
                "dated snapshot, and give another --output"
            )
        self.served = served

    def _lost(self, error: Transient) -> None:
        """A request that failed to its end; where nothing else comes through, all would."""
        self._lost_in_a_row += 1
        if self._lost_in_a_row > self.config.concurrency:
            raise AgentRLError(
                f"models.{self.name}: {self._lost_in_a_row} requests in a row failed all "
                f"{self.config.attempts} attempts, the last one: {error}; run the same command again "
                "when the endpoint is back, it goes on"
            ) from None

    def _log(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        seconds = state.next_action.sleep if state.next_action else 0.0
        log.warning("models.%s: %s; again in %.1f s", self.name, error, seconds)

    def _scrub(self, text: str) -> str:
        """One line in which the key does not stand."""
        text = text.replace(self._key, "***") if self._key else text
        return " ".join(text.split())


def _key(name: str, config: ModelConfig, environment: Mapping[str, str]) -> str | None:
    if config.key_variable is None:
        return None
    key = environment.get(config.key_variable, "").strip()
    if not key:
        raise ConfigError(
            f"config key 'models.{name}.key_variable': the environment has no {config.key_variable}; "
            "set it to the key"
        )
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigError(
            f"config key 'models.{name}.key_variable': {config.key_variable} holds what no header can "
            "(spaces, line breaks or letters beyond ASCII); set it to the key alone"
        )
    return key

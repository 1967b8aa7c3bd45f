"""The embedded engine: samples for many sessions at once and keeps their keys and values.

Invariants:

- No token of a session is computed twice under the same weights, as long as there are slots.
- `step` is a function of (state, requests): requests are taken in the order of sessions, never of
  arrival, and draws depend on the episode alone. Same requests, same results, bit by bit (8).
- New weights take effect between two steps. All slots are emptied then, and running completions go
  on as partial ones in the order of sessions, exactly as a resumed run hands them in (9, pitfalls
  25 and 32); their earlier tokens keep the old version (2, pitfall 27).
- The event loop's thread owns all bookkeeping; a step's tensors may be computed in another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from renderers import Renderer
from transformers import AutoConfig

from agentrl.errors import ConfigError, InfrastructureError, StateError
from agentrl.rollout.decoder import DTYPES, check, create_cache, create_decoder, load_tensors
from agentrl.rollout.engine import Completion, FinishReason, Sampling
from agentrl.rollout.kv_cache import ROW_BLOCK, RowWork, make_batch
from agentrl.rollout.policy import load_tokenizer, read_card
from agentrl.rollout.rendering import create_renderer
from agentrl.rollout.sampling import draw, uniforms
from agentrl.rollout.slots import Slot, SlotTable
from agentrl.rollout.weights import read_weights, tensors_digest

BATCH_TOKENS = 4096
"""Padded tokens of one pass: attention's scores should fit into the processor's cache."""


@dataclass(slots=True, eq=False)
class _Request:
    session: int
    prompt: list[int]
    sampling: Sampling
    done: Completion
    limit: int
    future: asyncio.Future[Completion]
    slot: Slot | None = None
    fresh: bool = True
    """Nothing of it has been computed since it got its slot."""


@dataclass(slots=True)
class _Plan:
    """The tensors' part of one step: a token for each of `requests`."""

    requests: list[_Request]
    """In the order of rows."""
    work: list[RowWork]
    """What each has to compute: its prompt's new tokens, or the token sampled last."""


@dataclass(slots=True)
class EngineStatistics:
    """What was computed so far."""

    steps: int = 0
    computed: int = 0
    """Tokens that went into the cache."""
    sampled: int = 0


class TransformersEngine:
    """See `Engine` for the contract. Use `step` to drive it, or run `run` as a task.

    Args:
        path: a policy folder.
        slots: sessions whose keys and values are kept; more sessions evict the one idle longest.
        max_tokens: longest session, prompt and completion together.
        dtype: of weights and cache; log-probabilities are float32 in any case.
        threads: of torch, for the whole process; None leaves them as they are.
        version: of the weights in `path`.
        decoder: see `create_decoder`.
        device: of weights and cache, as torch names it.
    """

    def __init__(
        self,
        path: Path,
        *,
        slots: int,
        max_tokens: int,
        dtype: Literal["fp32", "bf16"] = "fp32",
        threads: int | None = None,
        version: int = 0,
        decoder: Literal["auto", "own", "transformers"] = "auto",
        device: str = "cpu",
    ) -> None:
        try:
            config = AutoConfig.from_pretrained(path, local_files_only=True)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise StateError(f"cannot read the policy {path}: {reason}") from None
        positions = getattr(config, "max_position_embeddings", max_tokens)
        if max_tokens > positions:
            raise ConfigError(
                f"config key 'rollout.max_total_tokens': {max_tokens} is more than the policy's "
                f"{positions} positions; lower it, or make a policy with more policy.max_positions"
            )
        if threads is not None:
            torch.set_num_threads(threads)
        self._path, self._dtype, self._max_tokens = path, dtype, max_tokens
        self._decoder = create_decoder(path, max_tokens, dtype, decoder, device)
        check(self._decoder, path, dtype, device)
        self._cache = create_cache(config, slots, max_tokens, dtype, device)
        self._device = torch.device(device)
        # A GPU pays for launches, not for rows that nobody asked for.
        self._block = ROW_BLOCK if self._device.type == "cpu" else slots
        self._slots = SlotTable(slots)
        self._version = version
        self._digest = tensors_digest(self._decoder.tensors())
        self._waiting: dict[int, _Request] = {}
        self._active: dict[int, _Request] = {}
        self._actions: list[Callable[[], None]] = []
        self._computing = False
        self._running = False
        self._failure: InfrastructureError | None = None
        self._wake = asyncio.Event()
        self.on_request: Callable[[], None] | None = None
        self.statistics = EngineStatistics()

    @property
    def version(self) -> int:
        return self._version

    @property
    def digest(self) -> str:
        return self._digest

    @cached_property
    def renderer(self) -> Renderer:
        """The renderer of the policy's chat format."""
        tokenizer = load_tokenizer(self._path)
        return create_renderer(read_card(self._path).chat_format, tokenizer)

    @property
    def decoder(self) -> str:
        """Class name of the decoder in use."""
        return type(self._decoder).__name__

    @property
    def waiting(self) -> int:
        """Requests that no step has looked at yet, or that wait for a slot."""
        return len(self._waiting)

    @property
    def pending(self) -> int:
        """Requests without an answer."""
        return len(self._waiting) + len(self._active)

    # -- requests ---------------------------------------------------------------------------

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        *,
        session: int,
        partial: Completion | None = None,
    ) -> Completion:
        if self._failure is not None:
            raise self._failure
        if session in self._waiting or session in self._active:
            raise RuntimeError(f"session {session} already waits for a completion")
        if not prompt_ids:
            raise ValueError(f"session {session}: an empty prompt")
        request = _Request(
            session,
            list(prompt_ids),
            sampling,
            _copy(partial) if partial else Completion([], [], [], "length"),
            min(sampling.max_new_tokens, self._max_tokens - len(prompt_ids)),
            asyncio.get_running_loop().create_future(),
        )
        if (reason := _finished(request)) is not None:
            request.done.finish_reason = reason
            return request.done
        self._waiting[session] = request
        self._wake.set()
        if self.on_request is not None:
            self.on_request()
        try:
            return await request.future
        except asyncio.CancelledError:
            self._drop(request)
            raise

    def partial(self, session: int) -> Completion | None:
        request = self._active.get(session) or self._waiting.get(session)
        return _copy(request.done) if request else None

    def release(self, session: int) -> None:
        request = self._active.get(session) or self._waiting.get(session)
        if request is not None:
            self._drop(request)
            if not request.future.done():
                request.done.finish_reason = "cancelled"
                request.future.set_result(request.done)
        self._slots.release(session)

    def _drop(self, request: _Request) -> None:
        for group in (self._waiting, self._active):
            if group.get(request.session) is request:
                del group[request.session]

    # -- steps ------------------------------------------------------------------------------

    def step(self) -> int:
        """Admit what waits, compute what is new of it, sample one token for every running request.

        Returns how many requests are left without an answer.
        """
        if self._running:
            raise RuntimeError("step() while run() drives the engine")
        plan = self._plan()
        if plan is not None:
            try:
                outcome = self._compute(plan)
            except Exception as error:
                self._break(error)
                raise
            self._settle(plan, *outcome)
        return self.pending

    async def run(self) -> None:
        """Step for ever, in a thread of its own, whenever there is work. Ends by cancelling.

        An error in a step fails every request and is raised.
        """
        loop = asyncio.get_running_loop()
        self._running = True
        threads = torch.get_num_threads()
        with ThreadPoolExecutor(1, "engine", torch.set_num_threads, (threads,)) as thread:
            try:
                while True:
                    plan = self._plan()
                    if plan is None:
                        self._wake.clear()
                        await self._wake.wait()
                        continue
                    await self._computed(loop.run_in_executor(thread, self._compute, plan), plan)
            except Exception as error:
                self._break(error)
                raise
            finally:
                self._running = False
                self._act()

    async def _computed(
        self, job: asyncio.Future[tuple[list[int], list[float]]], plan: _Plan
    ) -> None:
        cancelled: asyncio.CancelledError | None = None
        self._computing = True
        while not job.done():
            try:
                await asyncio.wait([job])
            except asyncio.CancelledError as error:
                # The step counts all the same: its tokens are in the cache.
                cancelled = error
        self._computing = False
        self._settle(plan, *job.result())
        if cancelled is not None:
            raise cancelled

    def _plan(self) -> _Plan | None:
        """Bookkeeping before a step: weights, slots, what has to be computed. None: nothing."""
        self._act()
        if not self.pending:
            return None
        self.statistics.steps += 1
        for session, slot in self._slots.place(self._waiting, self._active).items():
            request = self._active[session] = self._waiting.pop(session)
            request.slot, request.fresh = slot, True
        requests = sorted(self._active.values(), key=lambda request: _slot(request).row)
        work = []
        for request in requests:
            slot = _slot(request)
            ids = [*request.prompt, *request.done.token_ids] if request.fresh else []
            start = slot.shared(ids[:-1]) if request.fresh else len(slot.ids)
            new = ids[start:] if request.fresh else request.done.token_ids[-1:]
            work.append(RowWork(slot.row, start, new))
            slot.ids[start:] = new
            slot.used = self.statistics.steps
            request.fresh = False
            self.statistics.computed += len(new)
        self.statistics.sampled += len(requests)
        return _Plan(requests, work)

    def _compute(self, plan: _Plan) -> tuple[list[int], list[float]]:
        """Everything of a step that touches tensors."""
        dtype = DTYPES[self._dtype]
        with torch.inference_mode():
            logits = torch.cat(
                [
                    self._decoder.logits(
                        make_batch(work, dtype, self._block).to(self._device), self._cache
                    )
                    for work in _batches(plan.work)
                ]
            )
            seeds = np.array([r.sampling.seed for r in plan.requests], np.uint64)
            temperatures = np.array([r.sampling.temperature for r in plan.requests])
            places = np.array([w.start + len(w.tokens) for w in plan.work])
            drawn, logprobs = draw(logits, temperatures, uniforms(seeds, places))
            return drawn.tolist(), logprobs.tolist()

    def _settle(self, plan: _Plan, ids: list[int], logprobs: list[float]) -> None:
        """Bookkeeping after a step: hand out tokens, answer what is finished."""
        for request, token, logprob in zip(plan.requests, ids, logprobs, strict=True):
            if self._active.get(request.session) is not request:
                continue  # dropped while the step was computed
            request.done.token_ids.append(token)
            request.done.logprobs.append(logprob)
            request.done.policy_version.append(self._version)
            if (reason := _finished(request)) is not None:
                request.done.finish_reason = reason
                del self._active[request.session]
                if not request.future.done():
                    request.future.set_result(request.done)

    # -- weights ----------------------------------------------------------------------------

    async def load_weights(self, version: int, path: Path) -> None:
        read = asyncio.to_thread(read_weights, path, version) if self._running else None
        tensors = await read if read is not None else read_weights(path, version)

        def swap() -> None:
            load_tensors(self._decoder, tensors, path)
            self._digest = tensors_digest(self._decoder.tensors())
            self._version = version
            self._requeue()

        await self._between_steps(swap)

    def drop_caches(self) -> None:
        if self._computing:
            self._actions.append(self._requeue)
        else:
            self._requeue()

    def _requeue(self) -> None:
        self._slots.clear()
        for request in self._active.values():
            request.slot = None
        self._waiting |= self._active
        self._active = {}

    def _act(self) -> None:
        """Carry out what had to wait for the end of a step."""
        actions, self._actions = self._actions, []
        for action in actions:
            action()

    async def _between_steps(self, action: Callable[[], None]) -> None:
        if not self._computing:
            action()
            return
        done = asyncio.get_running_loop().create_future()

        def act() -> None:
            try:
                action()
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(None)

        self._actions.append(act)
        await done

    async def close(self) -> None:
        """Refuse what is waiting and what comes. Idempotent; cancel `run` first."""
        self._fail(InfrastructureError("the engine is closed"))

    def _break(self, error: Exception) -> None:
        self._fail(InfrastructureError(f"the engine broke: {type(error).__name__}: {error}"))

    def _fail(self, failure: InfrastructureError) -> None:
        self._failure = self._failure or failure
        for request in [*self._waiting.values(), *self._active.values()]:
            if not request.future.done():
                request.future.set_exception(failure)
        self._waiting, self._active = {}, {}


def _slot(request: _Request) -> Slot:
    assert request.slot is not None
    return request.slot


def _copy(done: Completion) -> Completion:
    return Completion(
        list(done.token_ids), list(done.logprobs), list(done.policy_version), done.finish_reason
    )


def _finished(request: _Request) -> FinishReason | None:
    ids = request.done.token_ids
    if ids and ids[-1] in request.sampling.stop_token_ids:
        return "stop"
    return "length" if len(ids) >= request.limit else None


def _batches(work: list[RowWork]) -> list[list[RowWork]]:
    """Cut where the padded grid of new tokens would become larger than `BATCH_TOKENS`."""
    batches: list[list[RowWork]] = [[]]
    longest = 0
    for item in work:
        longest = max(longest, len(item.tokens))
        if batches[-1] and longest > 1 and longest * (len(batches[-1]) + 1) > BATCH_TOKENS:
            batches.append([])
            longest = len(item.tokens)
        batches[-1].append(item)
    return batches

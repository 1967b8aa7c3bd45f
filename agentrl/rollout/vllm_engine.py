"""The engine that samples on vLLM servers: replicas of one policy, whichever is alive.

Invariants: token ids in and out (1); every token has the version of the weights that sampled it (2): an
update ends all running completions at the server, which go on from their tokens under the new weights
(pitfall 32); prompts of different versions never share a cached prefix (pitfall 25); after an update every
replica shows the checksum of what it holds, and all show the same (pitfall 26). What a replica was
computing when it died is not lost: its tokens so far go on elsewhere, once; a second failure is the
request's.

Draws are the server's, so two runs are not equal token by token as they are on the embedded engine (8).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError, safe_open
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

from agentrl.errors import InfrastructureError, StateError
from agentrl.randomness import derive
from agentrl.rollout.engine import Completion, FinishReason, Sampling
from agentrl.rollout.vllm_server import ReplicaError, VllmServer
from agentrl.rollout.weights import weights_file

log = logging.getLogger(__name__)
ATTEMPTS = 2
"""Of a request, over the failures of replicas; updates do not count."""


class Process(Protocol):
    """What keeps a server alive, where it is ours."""

    async def restart(self, folder: Path) -> None:
        """Start it again with the weights of `folder`. Raises `InfrastructureError`."""
        ...

    async def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class Replica:
    server: VllmServer
    process: Process | None = None
    running: int = 0
    alive: bool = True
    version: int = 0
    repair: asyncio.Task[None] | None = None


@dataclass(slots=True, eq=False)
class _Request:
    done: Completion
    task: asyncio.Task[Any] | None = None
    released: bool = False


@dataclass(slots=True)
class EngineStatistics:
    requests: int = 0
    retries: int = 0
    restarts: int = 0
    continued: int = 0
    """Completions that an update cut and that went on."""
    silent: list[str] = field(default_factory=list)
    """What failed, in words."""


class VllmEngine:
    """See `Engine`. Make one with `start`.

    Args:
        policy: the folder that the servers started with; new weights are given the rest of it.
        scratch: an empty folder that the servers can read; holds the folder of the newest weights.
        max_tokens: longest session, prompt and completion together.
        role: keeps the cached prefixes of engines apart that share a server.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        policy: Path,
        scratch: Path,
        *,
        max_tokens: int,
        role: str = "current",
        version: int = 0,
        repair_seconds: float = 1.0,
    ) -> None:
        self._replicas, self._role = list(replicas), role
        self._policy = self._folder = policy
        self._scratch, self._max_tokens = scratch, max_tokens
        self._version, self._digest = version, ""
        self._repair_seconds = repair_seconds
        self._requests: dict[int, _Request] = {}
        self._homes: dict[int, Replica] = {}
        self._open = asyncio.Event()
        self._open.set()
        self._changed = asyncio.Event()
        self._closed = False
        self.statistics = EngineStatistics()

    @classmethod
    async def start(
        cls, replicas: Sequence[Replica], policy: Path, scratch: Path, **options: Any
    ) -> VllmEngine:
        """An engine whose servers were asked what they hold; closed where that fails. Raises `ConfigError`."""
        engine = cls(replicas, policy, scratch, **options)
        try:
            for replica in replicas:
                await replica.server.check_model(engine._max_tokens)
            engine._digest = await engine._agreed(replicas)
        except BaseException:
            await engine.close()
            raise
        return engine

    @property
    def version(self) -> int:
        return self._version

    @property
    def digest(self) -> str:
        return self._digest

    # -- requests ---------------------------------------------------------------------------

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        *,
        session: int,
        partial: Completion | None = None,
    ) -> Completion:
        if self._closed:
            raise InfrastructureError("the engine is closed")
        if session in self._requests:
            raise RuntimeError(f"session {session} already waits for a completion")
        if not prompt_ids:
            raise ValueError(f"session {session}: an empty prompt")
        done = _copy(partial) if partial else Completion([], [], [], "length")
        request = self._requests[session] = _Request(done)
        limit = min(sampling.max_new_tokens, self._max_tokens - len(prompt_ids))
        self.statistics.requests += 1
        request.task = asyncio.create_task(
            self._complete(list(prompt_ids), sampling, limit, session, done)
        )
        try:
            await asyncio.wait([request.task])
            if request.released:
                done.finish_reason = "cancelled"
                return done
            return request.task.result()  # type: ignore[no-any-return]
        finally:
            request.task.cancel()
            self._requests.pop(session, None)

    async def _complete(
        self, prompt: list[int], sampling: Sampling, limit: int, session: int, done: Completion
    ) -> Completion:
        retrying = AsyncRetrying(
            stop=stop_after_attempt(ATTEMPTS),
            retry=retry_if_exception_type(ReplicaError),
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                self.statistics.retries += attempt.retry_state.attempt_number > 1
                while (reason := _finished(done, sampling, limit)) is None:
                    await self._go_on(prompt, sampling, limit, session, done)
                done.finish_reason = reason
        return done

    async def _go_on(
        self, prompt: list[int], sampling: Sampling, limit: int, session: int, done: Completion
    ) -> None:
        """Stream from one replica until the completion is over, or an update cuts it."""
        replica = await self._place(session)
        version = replica.version
        ids = [*prompt, *done.token_ids]
        request = {
            "prompt": ids,
            "max_tokens": limit - len(done.token_ids),
            "temperature": sampling.temperature,
            "top_p": 1.0,
            "top_k": -1,
            "stop_token_ids": list(sampling.stop_token_ids),
            "ignore_eos": True,  # stop tokens alone end a completion, as on the embedded engine
            # By position too: what goes on must not draw its first numbers again.
            "seed": derive(sampling.seed, "vllm", len(ids)) % 2**31,
            "cache_salt": f"{self._role}-{version}",
            "skip_special_tokens": False,
        }
        replica.running += 1
        finish: str | None = None
        try:
            async with aclosing(replica.server.stream(request)) as pieces:  # type: ignore[type-var]
                async for piece in pieces:
                    done.token_ids += piece.token_ids
                    done.logprobs += piece.logprobs
                    done.policy_version += [version] * len(piece.token_ids)
                    finish = piece.finish or finish
        except ReplicaError as error:
            await self._failed(replica, error)
            raise
        finally:
            replica.running -= 1
        if finish == "abort":
            self.statistics.continued += 1
        elif finish not in ("stop", "length"):
            raise ReplicaError(f"vLLM server {replica.server.url} ended a completion: {finish!r}")

    async def _place(self, session: int) -> Replica:
        """Where a session's prefix is cached, else the live replica with the least to do."""
        while True:
            await self._open.wait()
            live = [replica for replica in self._replicas if replica.alive]
            if live:
                home = self._homes.get(session)
                if home is None or not home.alive:
                    home = self._homes[session] = min(live, key=lambda replica: replica.running)
                return home
            if not any(replica.repair for replica in self._replicas):
                raise InfrastructureError("no vLLM server is left: " + self.statistics.silent[-1])
            self._changed.clear()
            await self._changed.wait()

    def partial(self, session: int) -> Completion | None:
        request = self._requests.get(session)
        return _copy(request.done) if request else None

    def release(self, session: int) -> None:
        self._homes.pop(session, None)
        request = self._requests.get(session)
        if request is not None and request.task is not None:
            request.released = True
            request.task.cancel()  # which closes the stream: the server ends the request

    def drop_caches(self) -> None:
        """Nothing: draws are the server's, so no run is equal to another bit by bit (9)."""

    # -- replicas ---------------------------------------------------------------------------

    async def _failed(self, replica: Replica, error: ReplicaError) -> None:
        """A request has failed there: keep the replica only if it says that it is well."""
        self.statistics.silent.append(str(error))
        log.warning("%s", error)
        if not replica.alive or await replica.server.healthy():
            self._homes = {s: home for s, home in self._homes.items() if home is not replica}
            return
        if replica.alive:  # still: another request may have been quicker
            replica.alive = False
            replica.repair = asyncio.create_task(self._repair(replica))

    async def _repair(self, replica: Replica) -> None:
        """Restart it, or wait for whoever it belongs to; it serves again with the newest weights."""
        try:
            if replica.process is not None:
                self.statistics.restarts += 1
                await replica.process.restart(self._folder)
            else:
                while not await replica.server.healthy():  # noqa: ASYNC110  (it cannot call us)
                    await asyncio.sleep(self._repair_seconds)
            await self._open.wait()
            await self._update(replica, self._folder, self._version)
            if await replica.server.digest() != self._digest:
                raise InfrastructureError(f"{replica.server.url} came back with other weights")
            replica.alive = True
        except InfrastructureError as error:
            self.statistics.silent.append(str(error))
            log.warning("%s", error)
        finally:
            replica.repair = None
            self._changed.set()

    # -- weights ----------------------------------------------------------------------------

    async def load_weights(self, version: int, path: Path) -> None:
        """Give `path` to every live replica; nobody samples while any of them takes it."""
        _check_file(path, weights_file(self._policy), version)
        folder = _policy_folder(self._policy, path, self._scratch / f"{self._role}-{version:06d}")
        self._open.clear()
        before = self._folder
        self._folder = folder
        try:
            live = [replica for replica in self._replicas if replica.alive]
            found = await asyncio.gather(
                *(self._update(replica, folder, version) for replica in live),
                return_exceptions=True,
            )
            for replica, error in zip(live, found, strict=True):
                if isinstance(error, ReplicaError):
                    await self._failed(replica, error)
                elif isinstance(error, BaseException):
                    raise error
            live = [replica for replica in live if replica.alive]
            if any(replica.version != version for replica in live):
                raise InfrastructureError(f"not every vLLM server took {path}: {found}")
            if not live:
                raise InfrastructureError(f"no vLLM server took {path}: {found}")
            self._digest = await self._agreed(live)
            self._version = version
        finally:
            self._open.set()
        if before not in (self._policy, folder):
            _remove(before)

    async def _update(self, replica: Replica, folder: Path, version: int) -> None:
        server = replica.server
        await server.pause()
        try:
            await server.reload(str(folder))
            replica.version = version
        finally:
            await server.resume()

    async def _agreed(self, replicas: Sequence[Replica]) -> str:
        """The checksum that all show. Raises `InfrastructureError`."""
        shown = {replica.server.url: await replica.server.digest() for replica in replicas}
        if len(set(shown.values())) != 1:
            raise InfrastructureError(f"vLLM servers of one engine hold different weights: {shown}")
        return next(iter(shown.values()))

    async def close(self) -> None:
        """End what runs, and the servers that are ours. Idempotent."""
        self._closed = True
        for session in list(self._requests):
            self.release(session)
        jobs: list[Awaitable[None]] = []
        for replica in self._replicas:
            if replica.repair is not None:
                replica.repair.cancel()
            jobs.append(replica.server.close())
            if replica.process is not None:
                jobs.append(replica.process.close())
        await asyncio.gather(*jobs)
        if self._folder != self._policy:
            _remove(self._folder)


def _copy(done: Completion) -> Completion:
    return Completion(
        list(done.token_ids), list(done.logprobs), list(done.policy_version), done.finish_reason
    )


def _finished(done: Completion, sampling: Sampling, limit: int) -> FinishReason | None:
    if done.token_ids and done.token_ids[-1] in sampling.stop_token_ids:
        return "stop"
    return "length" if len(done.token_ids) >= limit else None


def _check_file(path: Path, like: Path, version: int) -> None:
    """Refuse a damaged file and another model's before a server sees it. Raises `StateError`."""
    file = weights_file(path)
    found, written = _shapes(file)
    wanted, _ = _shapes(like)
    odd = sorted(n for n in {**found, **wanted} if found.get(n) != wanted.get(n))
    if odd:
        raise StateError(f"{file} holds the weights of another model: {odd[0]!r}")
    if written not in (None, str(version)):
        raise InfrastructureError(f"weights {file} hold version {written}, not {version}")


def _shapes(file: Path) -> tuple[dict[str, list[int]], str | None]:
    """Shapes by name, and the version, of a weights file; its header is checked against its length."""
    try:
        with safe_open(file, framework="pt") as opened:
            names = set(opened.keys()) - {"lm_head.weight"}
            shapes = {name: opened.get_slice(name).get_shape() for name in names}
            return shapes, (opened.metadata() or {}).get("version")
    except (OSError, SafetensorError) as error:
        raise StateError(f"cannot read the weights {file}: {error}") from None


def _policy_folder(policy: Path, weights: Path, out: Path) -> Path:
    """A folder as vLLM reads it: the policy's files, and a link to the new weights."""
    out.mkdir(parents=True, exist_ok=True)
    for file in policy.iterdir():
        target = weights_file(weights) if file == weights_file(policy) else file
        link = out / file.name
        link.unlink(missing_ok=True)
        link.symlink_to(target.resolve())
    return out


def _remove(folder: Path) -> None:
    for link in folder.iterdir():
        link.unlink()
    folder.rmdir()

"""The learner in a process of its own, behind an asynchronous interface.

Invariants: a step of training never holds up the event loop; requests are carried out one after
the other, also when the caller was cancelled; a dead child is an `InfrastructureError` at once,
never a hang; a child never outlives its parent, whatever killed it (11).

The child ignores SIGINT and SIGTERM: a signal to the process group is for the parent, which ends
the step, saves and closes (workflow.md §3).
"""

from __future__ import annotations

import asyncio
import atexit
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from agentrl import errors
from agentrl.config.models import Config
from agentrl.errors import AgentRLError, InfrastructureError
from agentrl.rollout.trajectory import Trajectory

if TYPE_CHECKING:  # it imports torch, which the parent may not need
    from agentrl.training.weights import WeightsRef

CLOSE_SECONDS = 10.0
"""How long an idle child may take to leave before it is killed."""


class AsyncLearner(Protocol):
    """What the pipeline sees of a learner, wherever it lives. Methods as in `Learner`."""

    async def train_step(self, trajectories: Sequence[Trajectory]) -> dict[str, float]: ...

    async def publish(self, folder: Path, version: int) -> WeightsRef: ...

    async def save(self, folder: Path) -> None: ...

    async def load(self, folder: Path) -> int: ...

    async def export_policy(self, path: Path) -> None: ...

    async def start_tracking(
        self, names: Sequence[str], run: str, settings: Mapping[str, Any]
    ) -> None: ...

    async def log(self, step: int, values: Mapping[str, float]) -> None: ...

    async def close(self) -> None: ...


class LearnerFailure(RuntimeError):
    """A bug in the learner's process; the message ends with the child's traceback."""


class _Learner:
    """The asynchronous methods over `_call(method, *arguments)`."""

    async def _call(self, method: str, *arguments: Any) -> Any:
        raise NotImplementedError

    async def train_step(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        # The texts are for people: the learner reads tokens only.
        lean = [replace(trajectory, opening=[], turns=[]) for trajectory in trajectories]
        metrics: dict[str, float] = await self._call("train_step", lean)
        return metrics

    async def publish(self, folder: Path, version: int) -> WeightsRef:
        reference: WeightsRef = await self._call("publish", folder, version)
        return reference

    async def save(self, folder: Path) -> None:
        await self._call("save", folder)

    async def load(self, folder: Path) -> int:
        step: int = await self._call("load", folder)
        return step

    async def export_policy(self, path: Path) -> None:
        await self._call("export_policy", path)

    async def start_tracking(
        self, names: Sequence[str], run: str, settings: Mapping[str, Any]
    ) -> None:
        await self._call("start_tracking", names, run, settings)

    async def log(self, step: int, values: Mapping[str, float]) -> None:
        await self._call("log", step, values)


Factory = Callable[[Path, Config, int], Any]


def create_learner(policy_path: Path, config: Config, seed: int) -> Any:
    """A `Learner` on the configured number of threads; torch is first imported here.

    Under `accelerate launch` it is that of rank 0, and speaks for the others.
    """
    import torch

    from agentrl.training.learner import Learner
    from agentrl.training.ranks import RankedLearner

    torch.set_num_threads(config.training.threads)
    learner = Learner.create(policy_path, config, seed)
    return RankedLearner(learner) if learner.ranks > 1 and learner.rank == 0 else learner


def launched_rank() -> int:
    """This process's rank, as `accelerate launch` tells it; 0 outside of one."""
    return int(os.environ.get("RANK", "0"))


def follow_launch(policy_path: Path, config: Config, seed: int) -> None:
    """What every rank but the first does in a training: hold a learner and do as the first one's."""
    from agentrl.training.ranks import follow

    follow(create_learner(policy_path, config, seed))


class LocalLearner(_Learner):
    """A learner in this process, for tests and debugging: blocks the event loop while it works."""

    def __init__(self, learner: Any) -> None:
        self._learner = learner

    @classmethod
    async def start(
        cls, policy_path: Path, config: Config, seed: int, *, factory: Factory = create_learner
    ) -> Self:
        return cls(factory(policy_path, config, seed))

    async def _call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._learner, method)(*arguments)

    async def close(self) -> None:
        self._learner.close()


class LearnerProcess(_Learner):
    """A learner in a spawned child. Make one with `start`; `close` may be called at any time."""

    def __init__(self, factory: Factory, arguments: tuple[Any, ...]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, factory, arguments), name="learner", daemon=True
        )
        self._process.start()
        theirs.close()  # or the child's death would never reach us as the end of the pipe
        # One thread waits on the pipe, so requests keep their order whatever happens to callers.
        self._thread = ThreadPoolExecutor(1, "learner pipe")
        self._busy = False
        self._closed = False
        # The child ignores SIGTERM, by which multiprocessing would end it when we exit unclosed.
        atexit.register(self._process.kill)

    @classmethod
    async def start(
        cls, policy_path: Path, config: Config, seed: int, *, factory: Factory = create_learner
    ) -> Self:
        """Spawn the child and wait until its learner is made.

        `factory` is importable by name and returns an object with the methods of `Learner`.
        """
        learner = cls(factory, (policy_path, config, seed))
        try:
            await learner._call("ready")
        except BaseException:
            await learner.close()
            raise
        return learner

    @property
    def pid(self) -> int | None:
        return self._process.pid

    async def _call(self, method: str, *arguments: Any) -> Any:
        if self._closed:
            raise RuntimeError(f"{method}() on a closed learner")
        future = self._thread.submit(self._exchange, method, arguments)
        return await asyncio.wrap_future(future)

    def _exchange(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Send one request and wait for its answer (in the pipe's thread)."""
        self._busy = True
        try:
            self._connection.send((method, arguments))
            kind, value = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(CLOSE_SECONDS)
            raise InfrastructureError(
                f"the learner's process died in {method}() (exit code {self._process.exitcode}); "
                "run again to go on from the last snapshot"
            ) from error
        finally:
            self._busy = False
        if kind == "error":
            _reraise(*value)
        return value

    async def close(self) -> None:
        """End the child: politely when it is idle, by SIGKILL when it is in the middle of work."""
        if self._closed:
            return
        self._closed = True
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._end))

    def _end(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._busy:
            self._process.kill()
        else:
            self._connection.close()  # the child reads the end of the pipe and leaves
        self._process.join(CLOSE_SECONDS)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._thread.shutdown()
        self._connection.close()
        atexit.unregister(self._process.kill)
        self._process.close()


def _reraise(name: str, message: str, trace: str) -> None:
    """The child's error: ours keep their type and one-line message, a bug shows its traceback."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, AgentRLError):
        error = kind(message)
        error.add_note(f"In the learner's process:\n{trace}")
        raise error
    raise LearnerFailure(f"in the learner's process:\n{trace}")


def _serve(connection: Connection, factory: Factory, arguments: tuple[Any, ...]) -> None:
    """The child: make the learner, then answer requests until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    learner: Any = None
    failure: tuple[str, str, str] | None = None
    try:
        learner = factory(*arguments)
    except Exception as error:
        failure = _describe(error)
    while True:
        try:
            method, values = connection.recv()
        except (EOFError, OSError):
            break
        try:
            if failure is not None:
                answer: tuple[str, Any] = ("error", failure)
            else:
                answer = ("value", None if method == "ready" else getattr(learner, method)(*values))
        except Exception as error:
            answer = ("error", _describe(error))
        connection.send(answer)
    if learner is not None:
        learner.close()


def _describe(error: Exception) -> tuple[str, str, str]:
    return type(error).__name__, str(error), "".join(traceback.format_exception(error))


def _die_with_parent() -> None:
    """Leave at once when the parent is gone, even in the middle of a step."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)

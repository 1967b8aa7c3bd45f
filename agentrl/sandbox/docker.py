"""Sandboxes that a Docker daemon makes: containers without a network, kept warm in a pool.

Limits: memory without swap, programs, CPUs, size of one file; capabilities cut to those of a shell's user; the
daemon's own system-call filter. The root can be written, for that is what the problems are about; where the
daemon's storage knows quotas it is limited by one, elsewhere it is watched while a script runs, and a container
that outgrows it is killed. `no-new-privileges` is not set: `sudo` refuses to work under it, and programs are root
already.

Everything carries the label `LABEL`; what a killed process left is removed by the next one on the same host.
Calls of the SDK block, so they run in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound, NotFound

from agentrl.errors import InfrastructureError, UnavailableError
from agentrl.sandbox.base import (
    ENVIRONMENT,
    HOME,
    OUTPUT_LIMIT,
    BrokenSandbox,
    Limits,
    Ran,
    program,
)
from agentrl.sandbox.files import (
    MAX_BYTES,
    MAX_ENTRIES,
    Entry,
    File,
    TooLarge,
    outermost,
    pack,
    unpack,
)
from agentrl.sandbox.stream import FdStream

log = logging.getLogger(__name__)
T = TypeVar("T")
LABEL = "agentrl.sandbox"
CAPABILITIES = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"]
COMMAND = ["sleep", "21600"]
"""Process 1, beside the daemon's init: the longest that a forgotten container lives."""
API_SECONDS = 120.0
THREADS = 16
POLL_SECONDS = 0.25
WATCH_SECONDS = 1.0


class DockerProvider:
    name = "docker"

    def __init__(
        self, images: Mapping[str, str], limits: Limits, host: str | None = None, pool: int = 4
    ) -> None:
        self.images = dict(images)
        self.limits = limits
        self.host = host
        self.pool = pool
        self.owner = f"{socket.gethostname()}/{os.getpid()}"
        self.quota = False
        self._threads = ThreadPoolExecutor(THREADS, "docker")
        self._client: docker.DockerClient | None = None
        self._checking = asyncio.Lock()
        self._warm: list[Any] = []
        self._filling: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self._closed = False

    async def call(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Run one blocking call of the SDK; its errors become ours.

        That a container is gone or does not run is the doing of what ran in it.
        """
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, lambda: work(*arguments, **named))
        except (NotFound, APIError) as error:
            if error.status_code in (404, 409):
                raise BrokenSandbox(f"the container is gone: {error.explanation}") from None
            raise InfrastructureError(f"Docker: {error.explanation or error}") from None
        except (DockerException, requests.RequestException, OSError) as error:
            raise InfrastructureError(f"Docker: {error}") from None

    @property
    def client(self) -> docker.DockerClient:
        assert self._client is not None
        return self._client

    async def check(self) -> None:
        async with self._checking:
            if self._client is not None:
                return
            try:
                client = await asyncio.to_thread(self._connect)
            except (DockerException, requests.RequestException, OSError) as error:
                raise UnavailableError(
                    f"no Docker daemon answers at {self.host or os.environ.get('DOCKER_HOST', 'the usual socket')} "
                    f"({_short(error)}): start one, or set tasks.os_interaction.options.docker_host"
                ) from None
            image = self.image("default")
            try:
                await asyncio.to_thread(client.images.get, image)
            except ImageNotFound:
                client.close()
                raise UnavailableError(
                    f"Docker has no image {image!r}: build it with `agentrl images build`, or set "
                    "tasks.os_interaction.options.images"
                ) from None
            self._client = client
            self.quota = await self.call(self._knows_quota)
            await self.call(self._remove_abandoned)
            self._refill()

    def _connect(self) -> docker.DockerClient:
        arguments: dict[str, Any] = {"timeout": API_SECONDS, "max_pool_size": THREADS}
        client = (
            docker.DockerClient(base_url=self.host, **arguments)
            if self.host
            else docker.from_env(**arguments)
        )
        try:
            client.ping()
        except BaseException:
            client.close()
            raise
        return client

    def _knows_quota(self) -> bool:
        """Whether containers can be given a size: overlay2 on XFS with project quotas, and a few others."""
        try:
            probe = self.client.containers.create(
                self.image("default"), COMMAND, storage_opt={"size": str(self.limits.disk)}
            )
        except APIError:
            log.info("this Docker daemon has no disk quotas; containers are watched instead")
            return False
        probe.remove(force=True)
        return True

    def _remove_abandoned(self) -> None:
        """Containers of processes of this host that are no more."""
        host, _, _ = self.owner.partition("/")
        for container in self.client.containers.list(all=True, filters={"label": LABEL}):
            owner, _, pid = container.labels[LABEL].partition("/")
            if owner == host and pid.isdigit() and not Path(f"/proc/{pid}").exists():
                with contextlib.suppress(APIError):
                    container.remove(force=True)

    def image(self, name: str) -> str:
        return self.images.get(name) or self.images["default"]

    async def open(self, image: str = "default") -> DockerSandbox:
        await self.check()
        if self.image(image) == self.image("default") and self._warm:
            container = self._warm.pop()
            self._refill()
        else:
            container = await self.start(self.image(image))
        return DockerSandbox(self, container)

    async def start(self, image: str) -> Any:
        """A running container, which is removed again when its start is cancelled."""
        starting = asyncio.ensure_future(self.call(self._start, image))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(InfrastructureError, BrokenSandbox):
                await self.remove(await starting)
            raise
        except BrokenSandbox as error:
            raise InfrastructureError(f"no container could be started: {error}") from None

    def _start(self, image: str) -> Any:
        limits = self.limits
        ulimits = [
            docker.types.Ulimit(name="fsize", soft=limits.disk, hard=limits.disk),
            docker.types.Ulimit(name="core", soft=0, hard=0),
        ]
        container = self.client.containers.create(
            image, COMMAND, init=True, hostname="sandbox", network_mode="none", ipc_mode="private",
            mem_limit=limits.memory, memswap_limit=limits.memory, pids_limit=limits.processes,
            nano_cpus=int(limits.cpus * 1e9), cap_drop=["ALL"], cap_add=CAPABILITIES,
            ulimits=ulimits, shm_size=16 << 20, working_dir=HOME, labels={LABEL: self.owner},
            log_config=docker.types.LogConfig(type="none"),
            storage_opt={"size": str(limits.disk)} if self.quota else None,
        )  # fmt: skip
        try:
            container.start()
        except BaseException:
            container.remove(force=True)
            raise
        return container

    def _refill(self) -> None:
        missing = self.pool - len(self._warm) - len(self._filling)
        for _ in range(0 if self._closed else missing):
            task = asyncio.create_task(self._fill())
            self._filling.add(task)
            task.add_done_callback(self._filling.discard)

    async def _fill(self) -> None:
        try:
            container = await self.start(self.image("default"))
        except InfrastructureError as error:
            log.warning("no warm container: %s", error)
            return
        self._warm.append(container)

    async def remove(self, container: Any) -> None:
        try:
            await self.call(container.remove, force=True)
        except BrokenSandbox:
            pass  # it is gone already
        except InfrastructureError as error:
            log.warning("a container was not removed: %s", error)

    async def copy(self, container: Any) -> tuple[Any, str]:
        """A new container with the files of another, and the image that it is made from."""
        name = f"agentrl-copy-{os.getpid()}"
        tag = f"c{next(self._numbers)}"
        await self.call(
            container.commit, repository=name, tag=tag, changes=[f"LABEL {LABEL}={self.owner}"]
        )
        image = f"{name}:{tag}"
        try:
            return await self.start(image), image
        except BaseException:
            await self.remove_image(image)
            raise

    async def remove_image(self, image: str) -> None:
        with contextlib.suppress(BrokenSandbox, InfrastructureError):
            await self.call(self.client.images.remove, image, force=True)

    async def close(self) -> None:
        self._closed = True
        for task in list(self._filling):
            task.cancel()
        await asyncio.gather(*self._filling, return_exceptions=True)
        while self._warm:
            await self.remove(self._warm.pop())
        if self._client is not None:
            await asyncio.to_thread(self._client.close)
        self._threads.shutdown(wait=True)


class DockerSandbox:
    def __init__(self, provider: DockerProvider, container: Any, image: str | None = None) -> None:
        self.provider = provider
        self.container = container
        self.image = image
        """The image that was made for this one only."""
        self._over_disk = False
        self._closed = False

    async def _execute(
        self, argv: Sequence[str], environment: Mapping[str, str], terminal: bool
    ) -> tuple[str, FdStream]:
        api = self.provider.client.api

        def begin() -> tuple[str, int, bytes]:
            created = api.exec_create(
                self.container.id, list(argv), stdin=terminal, tty=terminal, user="root",
                workdir=HOME, environment=dict(environment),
            )  # fmt: skip
            try:
                reply = api.exec_start(created["Id"], tty=terminal, socket=True)
            except APIError as error:  # no room for one more program, or no shell any more
                raise BrokenSandbox(
                    f"no program starts in the container: {error.explanation}"
                ) from None
            try:
                return created["Id"], *_take_over(reply)
            finally:
                reply.close()

        if self._over_disk:
            raise BrokenSandbox("its disk was full")
        number, fd, first = await self.provider.call(begin)
        return number, FdStream(fd, first=first)

    async def _state(self, number: str) -> dict[str, Any]:
        state: dict[str, Any] = await self.provider.call(
            self.provider.client.api.exec_inspect, number
        )
        return state

    async def run(
        self,
        script: str,
        arguments: Sequence[str] = (),
        *,
        timeout: float = 30.0,
        language: str = "bash",
        environment: Mapping[str, str] = ENVIRONMENT,
    ) -> Ran:
        argv, environment = program(script, arguments, language, environment)
        number, stream = await self._execute(argv, environment, terminal=False)
        frames = _Frames()
        status: int | None = None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    status = await self._follow(number, stream, frames)
        finally:
            await stream.close()
        output, errors = (
            text.decode("utf-8", "replace") for text in (frames.output, frames.errors)
        )
        return Ran(status, output, errors)

    async def _follow(self, number: str, stream: FdStream, frames: _Frames) -> int:
        """Read until the program has exited; others that it left may hold its output open."""
        exited: int | None = None
        while True:
            try:
                data = await stream.read(POLL_SECONDS)
            except TimeoutError:
                if exited is not None:  # what it had written by then has been read
                    return exited
                data = None
            if data:
                frames.feed(data)
                continue
            if data == b"" and exited is not None:
                return exited
            state = await self._state(number)
            if not state["Running"]:
                exited = int(state["ExitCode"])
            elif data == b"":
                await asyncio.sleep(POLL_SECONDS / 10)

    async def terminal(self) -> DockerTerminal:
        number, stream = await self._execute(
            ["/bin/bash", "--login", "--noediting"], ENVIRONMENT, terminal=True
        )
        return DockerTerminal(self, number, stream)

    async def put(self, files: Sequence[File]) -> None:
        if not await self.provider.call(self.container.put_archive, "/", pack(files)):
            raise BrokenSandbox("files could not be written")

    async def get(self, paths: Sequence[str]) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for path in outermost(paths):
            data = await self.provider.call(self._archive, path)
            if data is not None:
                entries.update(unpack(data, path.rstrip("/").rpartition("/")[0]))
        return entries

    def _archive(self, path: str) -> bytes | None:
        try:
            stream, _ = self.container.get_archive(path)
        except NotFound:
            return None
        data = bytearray()
        for part in stream:
            data += part
            if len(data) > MAX_BYTES:
                stream.close()
                raise TooLarge(f"more than {MAX_BYTES} bytes")
        return bytes(data)

    async def changed(self) -> tuple[str, ...]:
        found = await self.provider.call(self.container.diff) or []
        if len(found) > MAX_ENTRIES:
            raise TooLarge(f"more than {MAX_ENTRIES} files changed")
        return tuple(sorted(entry["Path"] for entry in found))

    async def count(self) -> int:
        listed = await self.provider.call(self.container.top)
        return len(listed["Processes"]) - 2

    async def clear(self) -> None:
        """Programs of the container cannot be trusted to kill each other: it is started anew."""
        try:
            await self.provider.call(self.container.restart, timeout=0)
        except InfrastructureError as error:
            raise BrokenSandbox(str(error)) from None

    async def stop(self) -> None:
        with contextlib.suppress(BrokenSandbox):  # it does not run any more
            await self.provider.call(self.container.kill)
        await self.provider.call(self.container.wait)

    async def copy(self) -> DockerSandbox:
        return DockerSandbox(self.provider, *await self.provider.copy(self.container))

    async def check_disk(self) -> None:
        """Kill a container that has written more than it may, where the daemon does not prevent it."""
        if self.provider.quota or self._over_disk:
            return
        with contextlib.suppress(BrokenSandbox, InfrastructureError):
            size = await self.provider.call(self._size)
            if size > self.provider.limits.disk:
                self._over_disk = True
                await self.provider.call(self.container.kill)

    def _size(self) -> int:
        api = self.provider.client.api
        reply = api._result(  # the SDK has no public call for it
            api._get(api._url("/containers/{0}/json", self.container.id), params={"size": True}),
            json=True,
        )
        return int(reply.get("SizeRw") or 0)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self.provider.remove(self.container)
        if self.image is not None:
            await self.provider.remove_image(self.image)


class DockerTerminal:
    """A shell's terminal; ends when the shell has exited, whoever else holds it open."""

    def __init__(self, sandbox: DockerSandbox, number: str, stream: FdStream) -> None:
        self.sandbox = sandbox
        self.number = number
        self.stream = stream
        self._watched = 0.0
        self._ended = False

    async def read(self, timeout: float) -> bytes:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            left = deadline - loop.time()
            if left <= 0:
                raise TimeoutError
            if loop.time() - self._watched > WATCH_SECONDS:
                self._watched = loop.time()
                await self.sandbox.check_disk()
            try:
                return await self.stream.read(min(left, POLL_SECONDS))
            except TimeoutError:
                if self._ended:  # and nothing came since that was known
                    return b""
                self._ended = not (await self.sandbox._state(self.number))["Running"]

    async def write(self, data: bytes, timeout: float) -> None:
        await self.stream.write(data, timeout)

    async def close(self) -> None:
        await self.stream.close()


def _take_over(reply: Any) -> tuple[int, bytes]:
    """The connection of an exec, and what of its output was already read along with the answer's head.

    The SDK gives the bare socket and would lose those bytes.
    """
    connection = reply._sock
    connection.setblocking(False)
    first = reply._response.raw._fp.fp.peek(1 << 16)
    return os.dup(connection.fileno()), bytes(first)


class _Frames:
    """Takes the daemon's multiplexed output apart: 8 bytes of header, then so many of one of two streams."""

    def __init__(self) -> None:
        self.output, self.errors = bytearray(), bytearray()
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        self._rest += data
        while len(self._rest) >= 8:
            size = int.from_bytes(self._rest[4:8], "big")
            if len(self._rest) < 8 + size:
                return
            into = self.errors if self._rest[0] == 2 else self.output
            into += self._rest[8 : 8 + min(size, OUTPUT_LIMIT - len(into))]
            del self._rest[: 8 + size]


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__

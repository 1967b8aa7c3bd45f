"""Sandboxes of the kernel's namespaces, without any daemon: the side that asks; `launcher` does it.

Needs Linux 5.11 or later (overlay in a user namespace; from 6.6 on also a deleted folder of the base tree can
be made again), and either root or a kernel that lets users make user namespaces. With root, ids 0-65535 of a
sandbox are `BASE` and up outside, and control groups bound memory, programs and CPU. Without root there is one
id (`su` and `chown` fail inside), and memory is bounded for each program, not for all together.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.errors import InfrastructureError, UnavailableError
from agentrl.sandbox import linux
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
from agentrl.sandbox.stream import FdStream, collect, ready, rest
from agentrl.sandbox.trees import BASE, COUNT, Tree

_LAUNCH = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r}); "
    "from agentrl.sandbox.launcher import main; main()"
)
"""Isolated from the user's Python settings, and yet this very package."""
MESSAGE = 1 << 16
ANSWER_SECONDS = 120.0
LAUNCH_SECONDS, END_SECONDS = 60.0, 60.0


@dataclass(frozen=True, slots=True)
class Child:
    """A process that the launcher started; `exited` is its exit status, negative for a signal."""

    pid: int
    exited: asyncio.Future[int]


class LauncherClient:
    """The connection to one launcher process. Lost connections fail everything that waits."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket) -> None:
        self.process = process
        self.channel = channel
        self.loop = asyncio.get_running_loop()
        self.limits: tuple[str, ...] = ()
        self._numbers = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._exits: dict[int, asyncio.Future[int]] = {}
        self._lock = asyncio.Lock()
        self.lost = False
        channel.setblocking(False)
        self.loop.add_reader(channel, self._receive)

    async def ask(self, operation: str, fds: Sequence[int] = (), **fields: Any) -> dict[str, Any]:
        self._numbers += 1
        return await self._ask(self._numbers, operation, fds, fields)

    async def _ask(
        self, number: int, operation: str, fds: Sequence[int], fields: Mapping[str, Any]
    ) -> dict[str, Any]:
        future: asyncio.Future[dict[str, Any]] = self.loop.create_future()
        self._waiting[number] = future
        try:
            await self._send({"id": number, "op": operation, **fields}, fds)
            answer = await asyncio.wait_for(future, ANSWER_SECONDS)
        except TimeoutError:
            raise InfrastructureError(
                f"the sandbox launcher does not answer ({operation})"
            ) from None
        finally:
            self._waiting.pop(number, None)
        if "error" in answer:
            raise OSError(answer["error"])
        return answer

    async def start(self, operation: str, fds: Sequence[int], **fields: Any) -> Child:
        """Ask for a child process."""
        self._numbers += 1
        number = self._numbers
        exited: asyncio.Future[int] = self.loop.create_future()
        self._exits[number] = exited
        exited.add_done_callback(lambda _: self._exits.pop(number, None))
        try:
            answer = await self._ask(number, operation, fds, fields)
        except BaseException:
            exited.cancel()
            raise
        return Child(answer["pid"], exited)

    async def _send(self, request: dict[str, Any], fds: Sequence[int]) -> None:
        data = json.dumps(request).encode()
        if len(data) > MESSAGE:
            raise OSError(f"the request takes {len(data)} bytes, more than {MESSAGE}")
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        async with self._lock:
            while not self.lost:
                try:
                    self.channel.sendmsg([data], rights)
                    return
                except BlockingIOError:
                    await asyncio.sleep(0.005)
                except OSError:
                    self._lose()
        raise InfrastructureError("the sandbox launcher is gone")

    def _receive(self) -> None:
        while True:
            try:
                data = self.channel.recv(MESSAGE)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lose()
                return
            answer = json.loads(data)
            if "exit" in answer:
                exited = self._exits.get(answer["exit"])
                if exited is not None and not exited.done():
                    exited.set_result(answer["status"])
            elif (waiting := self._waiting.get(answer.get("id"))) and not waiting.done():
                waiting.set_result(answer)

    def _lose(self) -> None:
        if not self.lost:
            self.lost = True
            self.loop.remove_reader(self.channel)
            everything: list[asyncio.Future[Any]] = [*self._waiting.values(), *self._exits.values()]
            for future in everything:
                if not future.done():
                    future.set_exception(InfrastructureError("the sandbox launcher is gone"))
                    future.exception()  # nobody may be waiting for an exit

    async def end(self) -> None:
        """Close, without holding up the loop while the launcher ends its sandboxes."""
        self._lose()
        self.channel.close()
        handle = os.pidfd_open(self.process.pid)
        try:
            async with asyncio.timeout(END_SECONDS):
                await ready(handle)
        except TimeoutError:
            pass
        finally:
            os.close(handle)
        self.close()

    def close(self) -> None:
        """The launcher ends its sandboxes when the socket closes."""
        if not self.loop.is_closed():
            self._lose()
        self.lost = True
        self.channel.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class NamespaceProvider:
    name = "namespaces"

    def __init__(self, tree: Tree, limits: Limits) -> None:
        self.tree = tree
        self.limits = limits
        self._client: LauncherClient | None = None
        self._starting = asyncio.Lock()
        self._names = 0

    async def check(self) -> None:
        await self._ensure()

    async def open(self, image: str = "default") -> NamespaceSandbox:
        client = await self._ensure()
        return await self._make(client, None)

    async def _make(
        self, client: LauncherClient, parent: NamespaceSandbox | None
    ) -> NamespaceSandbox:
        self._names += 1
        sandbox = NamespaceSandbox(self, client, f"s{self._names}")
        opening = asyncio.ensure_future(
            client.ask("open", name=sandbox.name, parent=parent.name if parent else None)
        )
        try:
            # Shielded: a cancelled start must not leave a sandbox that nobody knows.
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError, InfrastructureError):
                await opening
                await sandbox.close()
            raise
        except OSError as error:
            if parent is not None:  # its disk is full, say
                raise BrokenSandbox(f"it cannot be copied: {error}") from None
            raise InfrastructureError(f"no sandbox could be made: {error}") from None
        return sandbox

    async def _ensure(self) -> LauncherClient:
        async with self._starting:
            client, loop = self._client, asyncio.get_running_loop()
            if client is not None and client.loop is not loop:
                client.close()  # of a loop that has ended
                client = None
            if client is None or client.lost:
                client = self._client = await self._launch()
            return client

    async def _launch(self) -> LauncherClient:
        problem = unavailable()
        if problem:
            raise UnavailableError(problem)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            client = LauncherClient(_start_launcher(theirs), ours)
        first: asyncio.Future[dict[str, Any]] = client.loop.create_future()
        client._waiting[0] = first
        settings = {
            "root": str(self.tree.root), "binds": [list(pair) for pair in self.tree.binds],
            "memory": self.limits.memory, "disk": self.limits.disk, "base": BASE, "count": COUNT,
            "processes": self.limits.processes, "cpus": self.limits.cpus,
        }  # fmt: skip
        try:
            await client._send(settings, ())
            answer = await asyncio.wait_for(first, LAUNCH_SECONDS)
            if "error" in answer:
                raise UnavailableError(_explain(answer["error"]))
            client.limits = tuple(answer["limits"])
            await self._probe(client)
        except BaseException:
            client.close()
            raise
        return client

    async def _probe(self, client: LauncherClient) -> None:
        """Make one sandbox and run a program in it, before any episode depends on it."""
        sandbox = NamespaceSandbox(self, client, "probe")
        try:
            await client.ask("open", name=sandbox.name, parent=None)
            ran = await sandbox.run("echo ready")
        except (OSError, BrokenSandbox) as error:
            raise UnavailableError(_explain(str(error))) from None
        if ran.output != "ready\n":
            raise UnavailableError(_explain(f"bash does not run in {self.tree.root}: {ran.errors}"))
        await sandbox.close()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.end()


class NamespaceSandbox:
    def __init__(self, provider: NamespaceProvider, client: LauncherClient, name: str) -> None:
        self.provider = provider
        self.client = client
        self.name = name
        self._closed = False

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
        pipes = [os.pipe(), os.pipe()]
        kept = (bytearray(), bytearray())
        readers: list[asyncio.Task[None]] = []
        try:
            try:
                child = await self._spawn([end for _, end in pipes], False, argv, environment)
            finally:
                for _, end in pipes:
                    os.close(end)
            readers = [
                asyncio.create_task(collect(start, into, OUTPUT_LIMIT))
                for (start, _), into in zip(pipes, kept, strict=True)
            ]
            status: int | None
            try:
                status = await asyncio.wait_for(asyncio.shield(child.exited), timeout)
            except TimeoutError:
                await self.client.ask("kill", box=self.name, pid=child.pid)
                await child.exited
                status = None
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            for (start, _), into in zip(pipes, kept, strict=True):
                rest(start, into, OUTPUT_LIMIT)
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            for start, _ in pipes:
                os.close(start)
        output, errors = (text.decode("utf-8", "replace") for text in kept)
        return Ran(status, output, errors)

    async def _spawn(
        self,
        fds: Sequence[int],
        terminal: bool,
        argv: Sequence[str],
        environment: Mapping[str, str],
    ) -> Child:
        try:
            return await self.client.start(
                "spawn", fds, box=self.name, terminal=terminal, folder=HOME,
                command=list(argv), environment=dict(environment),
            )  # fmt: skip
        except OSError as error:
            raise BrokenSandbox(f"no program starts in the sandbox: {error}") from None

    async def terminal(self) -> FdStream:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                child = await self._spawn(
                    [theirs.fileno()], True, ["/bin/bash", "--login", "--noediting"], ENVIRONMENT
                )
            ours.setblocking(False)
            async with asyncio.timeout(ANSWER_SECONDS):
                text, fds = await _receive_fds(ours)
        if not fds:
            raise BrokenSandbox(f"no terminal in the sandbox: {text.decode('utf-8', 'replace')}")
        return FdStream(fds[0], child.exited)

    async def put(self, files: Sequence[File]) -> None:
        start, end = os.pipe()
        stream = FdStream(end)
        try:
            try:
                child = await self._child("put", [start])
            finally:
                os.close(start)
            await stream.write(pack(files), ANSWER_SECONDS)
        finally:
            await stream.close()
        if await child.exited != 0:
            raise BrokenSandbox("files could not be written: no space left, or no such folder")

    async def get(self, paths: Sequence[str]) -> dict[str, Entry]:
        wanted = outermost(paths)
        if sum(map(len, wanted)) > MESSAGE // 4:
            raise TooLarge(f"{len(wanted)} paths at once")
        return unpack(await self._read("get", MAX_BYTES, paths=wanted))

    async def changed(self) -> tuple[str, ...]:
        names = (await self._read("changed", MAX_BYTES)).split(b"\0")[:-1]
        if len(names) > MAX_ENTRIES:
            raise TooLarge(f"more than {MAX_ENTRIES} files changed")
        return tuple(sorted(name.decode("utf-8", "surrogateescape") for name in names))

    async def count(self) -> int:
        return int(await self._read("count", 64))

    async def _read(self, operation: str, limit: int, **fields: Any) -> bytes:
        start, end = os.pipe()
        stream, data = FdStream(start), bytearray()
        try:
            try:
                child = await self._child(operation, [end], **fields)
            finally:
                os.close(end)
            while part := await stream.read(ANSWER_SECONDS):
                data += part
                if len(data) > limit:
                    raise TooLarge(f"more than {limit} bytes")
        finally:
            await stream.close()
        if await child.exited != 0:
            raise BrokenSandbox("the files of the sandbox cannot be read")
        return bytes(data)

    async def clear(self) -> None:
        await (await self._child("clear", ())).exited

    async def _child(self, operation: str, fds: Sequence[int], **fields: Any) -> Child:
        try:
            return await self.client.start(operation, fds, box=self.name, **fields)
        except OSError as error:
            raise BrokenSandbox(str(error)) from None

    async def stop(self) -> None:
        try:
            await self.client.ask("stop", box=self.name)
        except OSError as error:
            raise BrokenSandbox(str(error)) from None

    async def copy(self) -> NamespaceSandbox:
        return await self.provider._make(self.client, self)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            with contextlib.suppress(OSError, InfrastructureError):
                await self.client.ask("close", box=self.name)


def _start_launcher(channel: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-c", _LAUNCH],
        stdin=channel.fileno(),
        stdout=subprocess.DEVNULL,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        cwd="/",
        start_new_session=True,
    )


async def _receive_fds(channel: socket.socket) -> tuple[bytes, list[int]]:
    while True:
        try:
            data, fds, _, _ = socket.recv_fds(channel, 1024, 1)
            return data, list(fds)
        except BlockingIOError:
            await ready(channel.fileno())


def unavailable() -> str | None:
    """Why this machine can make no namespace sandbox, as far as can be told without trying."""
    if not linux.supported():
        return "namespace sandboxes need Linux on x86_64 or aarch64; use a machine with Docker"
    return None


def _explain(problem: str) -> str:
    hint = (
        "run as root, or let users make user namespaces (sysctl user.max_user_namespaces > 0; on Ubuntu also "
        "kernel.apparmor_restrict_unprivileged_userns=0), or install Docker"
    )
    if "mount overlay" in problem:
        hint = "overlay file systems in user namespaces need Linux 5.11 or later; or install Docker"
    elif "mount proc" in problem:
        hint = "in a container, start it with --privileged; or give it the Docker socket"
    return f"namespace sandboxes do not work here ({problem}): {hint}"

"""A stand-in for a sandbox, for tests that need no root: a folder, and bash on a real terminal. It holds nothing in."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentrl.sandbox.base import ENVIRONMENT, BrokenSandbox, Ran, program
from agentrl.sandbox.files import Entry, File
from agentrl.sandbox.stream import FdStream


def _hear_interrupts() -> None:
    # What runs in the background of a script has SIGINT ignored, and a shell cannot undo that for its children.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class LocalSandbox:
    """`root` takes the place of `/` for files; programs see the machine as it is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.shells: list[subprocess.Popen[bytes]] = []
        self.clears = 0
        self.closed = 0
        self.stopped = False
        self.broken = False

    def _environment(self, environment: Mapping[str, str] = ENVIRONMENT) -> dict[str, str]:
        return {**environment, "HOME": str(self.root)}

    async def run(
        self,
        script: str,
        arguments: Sequence[str] = (),
        *,
        timeout: float = 30.0,
        language: str = "bash",
        environment: Mapping[str, str] = ENVIRONMENT,
    ) -> Ran:
        argv, environment = program(script, arguments, language, self._environment(environment))
        done = await asyncio.to_thread(
            subprocess.run, argv, env=environment, cwd=self.root, capture_output=True, text=True,
            timeout=timeout, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout, done.stderr)

    async def terminal(self) -> FdStream:
        if self.broken:
            raise BrokenSandbox("no terminal")
        master, terminal = os.openpty()
        shell = subprocess.Popen(  # noqa: ASYNC220
            ["/usr/bin/setsid", "--ctty", "/bin/bash", "--noprofile", "--norc", "--noediting", "-i"],
            stdin=terminal, stdout=terminal, stderr=terminal, env=self._environment(), cwd=self.root,
            preexec_fn=_hear_interrupts,
        )  # fmt: skip
        os.close(terminal)
        self.shells.append(shell)
        ended = asyncio.get_running_loop().run_in_executor(None, shell.wait)
        return FdStream(master, ended)

    async def put(self, files: Sequence[File]) -> None:
        for file in files:
            path = self.root / file.path.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            if file.target is not None:
                path.symlink_to(file.target)
                continue
            if file.content is None:
                path.mkdir(exist_ok=True)
            else:
                path.write_bytes(file.content)
            path.chmod(file.mode)
            os.utime(path, (file.modified, file.modified))

    async def get(self, paths: Sequence[str]) -> dict[str, Entry]:
        out: dict[str, Entry] = {}
        for name in paths:
            top = self.root / name.lstrip("/")
            found = [top, *top.rglob("*")] if top.is_dir() and not top.is_symlink() else [top]
            for path in filter(os.path.lexists, found):
                out["/" + str(path.relative_to(self.root))] = self._entry(path)
        return out

    def _entry(self, path: Path) -> Entry:
        info = path.lstat()
        known = (info.st_mode & 0o7777, 0, 0, int(info.st_mtime))
        if path.is_symlink():
            return Entry("link", *known, target=str(path.readlink()))
        if path.is_dir():
            return Entry("folder", *known)
        return Entry("file", *known, content=path.read_bytes())

    async def changed(self) -> tuple[str, ...]:
        return ()

    async def count(self) -> int:
        return 0

    async def clear(self) -> None:
        self.clears += 1
        for shell in self.shells:
            self._kill(shell)

    def _kill(self, shell: subprocess.Popen[bytes]) -> None:
        """Everything in the shell's session."""
        listed = subprocess.run(
            ["ps", "-o", "pid=", "-s", str(shell.pid)], capture_output=True, text=True
        )
        for pid in listed.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        shell.wait()

    async def stop(self) -> None:
        self.stopped = True
        await self.clear()

    async def copy(self) -> LocalSandbox:
        folder = self.root.with_name(self.root.name + "-copy")
        shutil.copytree(self.root, folder, symlinks=True)
        return LocalSandbox(folder)

    async def close(self) -> None:
        self.closed += 1
        for shell in self.shells:
            self._kill(shell)


class LocalProvider:
    name = "local"

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[LocalSandbox] = []
        self.closed = False

    async def check(self) -> None:
        pass

    async def open(self, image: str = "default") -> LocalSandbox:
        folder = self.root / f"s{len(self.made)}"
        folder.mkdir()
        self.made.append(LocalSandbox(folder))
        return self.made[-1]

    async def close(self) -> None:
        self.closed = True

"""What a sandbox offers to a task, whatever makes it.

Invariants: whatever a program in a sandbox does, every call here ends in bounded time and memory; what it
broke by itself is a `BrokenSandbox`, for the task to judge, and never an infrastructure failure, else an agent
could dodge a zero (invariant 4). A sandbox is given back by `close`, on every path (invariant 11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentrl.sandbox.files import Entry, File

HOME = "/root"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {
    "HOME": HOME, "PATH": PATH, "USER": "root", "LOGNAME": "root", "SHELL": "/bin/bash",
    "TERM": "dumb", "LANG": "C.UTF-8", "PAGER": "cat", "DEBIAN_FRONTEND": "noninteractive",
}  # fmt: skip
OUTPUT_LIMIT = 1 << 20
"""Bytes of output that are kept of a program; the rest is read and thrown away."""


class BrokenSandbox(Exception):
    """Programs in the sandbox made it unusable: no shell starts, or it had to be ended."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What all programs of one sandbox may use together."""

    memory: int = 512 << 20
    """Bytes; the files that they write count too, where those lie in memory."""
    disk: int = 256 << 20
    """Bytes of new and changed files."""
    processes: int = 128
    cpus: float = 1.0


@dataclass(frozen=True, slots=True)
class Ran:
    """What a program did. `status` is its exit status, negative for a signal, None at a time-out."""

    status: int | None
    output: str
    errors: str


class Stream(Protocol):
    """Both directions of a terminal."""

    async def read(self, timeout: float) -> bytes:
        """Some bytes; b"" at the end. Raises `TimeoutError`."""
        ...

    async def write(self, data: bytes, timeout: float) -> None:
        """All of `data`. Raises `TimeoutError` where nobody reads it, `BrokenSandbox` at the end."""
        ...

    async def close(self) -> None: ...


class Sandbox(Protocol):
    async def run(
        self,
        script: str,
        arguments: Sequence[str] = (),
        *,
        timeout: float = 30.0,
        language: str = "bash",
        environment: Mapping[str, str] = ENVIRONMENT,
    ) -> Ran:
        """Run a script as root, without a terminal, in the home folder. Programs that it leaves in the background go on."""
        ...

    async def terminal(self) -> Stream:
        """A login shell of root on a terminal of its own."""
        ...

    async def put(self, files: Sequence[File]) -> None:
        """Write files (and folders, links) as they are described; missing folders are made."""
        ...

    async def get(self, paths: Sequence[str]) -> dict[str, Entry]:
        """What lies at `paths` and below, read without any program of the sandbox; absent where nothing does.

        Raises `TooLarge`.
        """
        ...

    async def changed(self) -> tuple[str, ...]:
        """Paths that differ from the file tree that every sandbox starts with."""
        ...

    async def count(self) -> int:
        """How many programs run in it, besides its process 1."""
        ...

    async def clear(self) -> None:
        """Kill every program in it; it can be used on."""
        ...

    async def stop(self) -> None:
        """Kill every program in it, for good; files can still be read and copied."""
        ...

    async def copy(self) -> Sandbox:
        """A new sandbox with the same files and no programs. This one must not write meanwhile."""
        ...

    async def close(self) -> None:
        """Give everything back. Idempotent."""
        ...


class Provider(Protocol):
    """Makes sandboxes for many episodes at once."""

    name: str

    async def check(self) -> None:
        """Try it out: raises `UnavailableError` where it does not work."""
        ...

    async def open(self, image: str = "default") -> Sandbox:
        """Raises `UnavailableError` where this machine has none, `InfrastructureError` when one fails."""
        ...

    async def close(self) -> None:
        """Give back what is held for all of them. Idempotent."""
        ...


_CODE = "AGENTRL_CODE"
LANGUAGES = {
    # The code is not on the command line, where `ps | grep` would find it.
    "bash": ["/bin/bash", "-c", f'code=${_CODE}; unset {_CODE}; eval "$code"', "bash"],
    "python": [
        "/usr/bin/python3",
        "-c",
        f"import os\nexec(compile(os.environ.pop({_CODE!r}), 'script', 'exec'))",
    ],
}


def program(
    script: str, arguments: Sequence[str], language: str, environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Command line and environment that run a script."""
    return [*LANGUAGES[language], *arguments], {**environment, _CODE: script}

"""Memory, process and CPU limits of a sandbox by control groups, version 1 or 2, where they can be written.

A launcher makes one group of its own below the group that it runs in, so the limits that it is itself under
hold for all its sandboxes; each sandbox has a group in it. Groups that a killed launcher left are removed by
the next one. Paths are used through folder descriptors: the launcher gives up the host's file tree afterwards.
Standard library only: `launcher` runs it.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

PREFIX = "agentrl-"
CONTROLLERS = ("memory", "pids", "cpu")
_PERIOD = 100_000
"""Microseconds."""


@dataclass(frozen=True)
class Folder:
    """One hierarchy: the launcher's group in it, open, and what it limits there."""

    fd: int
    parent: int
    controllers: tuple[str, ...]
    version: int


class Cgroups:
    """`controllers` says which limits hold; the others are left to rlimits."""

    def __init__(self, root: str = "/", pid: int | None = None) -> None:
        self.name = f"{PREFIX}{pid or os.getpid()}"
        self.folders = [
            folder
            for path, controllers, version in _places(Path(root))
            if (folder := _claim(path, self.name, controllers, version)) is not None
        ]
        self.controllers = tuple(c for folder in self.folders for c in folder.controllers)

    def make(self, name: str, memory: int, processes: int, cpus: float) -> None:
        """A group for one sandbox; `memory` in bytes."""
        for folder in self.folders:
            os.mkdir(name, 0o755, dir_fd=folder.fd)
            for file, value in _settings(folder, memory, processes, cpus):
                _write(folder.fd, f"{name}/{file}", value)

    def join(self, name: str) -> None:
        """Put the calling process into the group."""
        for folder in self.folders:
            _write(folder.fd, f"{name}/cgroup.procs", "0")

    def remove(self, name: str) -> bool:
        """Whether the group is gone; it cannot go while a process is in it."""
        gone = [_remove(name, folder.fd) for folder in self.folders]
        return all(gone)

    def close(self) -> None:
        for folder in self.folders:
            _sweep(folder.fd)
            _remove(self.name, folder.parent)
            os.close(folder.fd)
            os.close(folder.parent)
        self.folders = []


def _places(root: Path) -> list[tuple[Path, tuple[str, ...], int]]:
    """The folders of the calling process's own groups, with the controllers that each has."""
    own: dict[str, str] = {}
    for line in _lines(root / "proc/self/cgroup"):
        _, names, path = line.split(":", 2)
        own.update(dict.fromkeys(names.split(","), path.lstrip("/")))
    out = []
    for line in _lines(root / "proc/self/mountinfo"):
        fields = line.split()
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        mounted = root / fields[4].lstrip("/")
        if kind == "cgroup":
            found = tuple(c for c in CONTROLLERS if c in options)
            if found:
                out.append((mounted / own.get(found[0], ""), found, 1))
        elif kind == "cgroup2":
            place = mounted / own.get("", "")
            offered = " ".join(_lines(place / "cgroup.controllers")).split()
            found = tuple(c for c in CONTROLLERS if c in offered)
            if found:
                out.append((place, found, 2))
    seen: set[str] = set()
    places = []
    for found_place in out:
        if not seen & set(found_place[1]):
            seen.update(found_place[1])
            places.append(found_place)
    return places


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _claim(path: Path, name: str, controllers: tuple[str, ...], version: int) -> Folder | None:
    """The launcher's group below `path`; None where this user may not make one."""
    try:
        parent = os.open(path, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        _remove_stale(path)
        if version == 2:
            _delegate(parent, "", controllers)
        os.mkdir(name, 0o755, dir_fd=parent)
        fd = os.open(name, os.O_PATH | os.O_DIRECTORY, dir_fd=parent)
        if version == 2:
            _delegate(fd, "", controllers)
        return Folder(fd, parent, controllers, version)
    except OSError:
        os.close(parent)
        return None


def _delegate(fd: int, name: str, controllers: tuple[str, ...]) -> None:
    wanted = " ".join(f"+{controller}" for controller in controllers)
    _write(fd, f"{name}cgroup.subtree_control", wanted)


def _settings(folder: Folder, memory: int, processes: int, cpus: float) -> list[tuple[str, str]]:
    quota = int(cpus * _PERIOD)
    v1 = {
        "memory": [("memory.limit_in_bytes", str(memory))],
        "pids": [("pids.max", str(processes))],
        "cpu": [("cpu.cfs_period_us", str(_PERIOD)), ("cpu.cfs_quota_us", str(quota))],
    }
    v2 = {
        "memory": [("memory.max", str(memory)), ("memory.swap.max", "0")],
        "pids": [("pids.max", str(processes))],
        "cpu": [("cpu.max", f"{quota} {_PERIOD}")],
    }
    files = v1 if folder.version == 1 else v2
    return [setting for controller in folder.controllers for setting in files[controller]]


def _write(folder: int, name: str, value: str) -> None:
    try:
        fd = os.open(name, os.O_WRONLY, dir_fd=folder)
    except FileNotFoundError:
        if name.endswith(("swap.max", "cfs_period_us", "cfs_quota_us")):
            return  # kernels without swap accounting or CFS bandwidth
        raise
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def _remove(name: str, folder: int) -> bool:
    try:
        os.rmdir(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _sweep(folder: int) -> None:
    """Remove every group in a folder that was opened as a path."""
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
    try:
        for entry in os.scandir(fd):
            if entry.is_dir():
                _remove(entry.name, folder)
    finally:
        os.close(fd)


def _remove_stale(path: Path) -> None:
    """Groups of launchers that are no more."""
    for group in path.glob(f"{PREFIX}*"):
        pid = group.name.removeprefix(PREFIX)
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            fd = os.open(group, os.O_PATH | os.O_DIRECTORY)
            _sweep(fd)
            os.close(fd)
            with contextlib.suppress(OSError):  # another launcher was quicker
                group.rmdir()

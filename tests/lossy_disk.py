"""A disk that loses what was not synced: records what a program does to a folder, and makes of it
whatever a power cut could leave there.

The weakest file system that POSIX allows (as in Pillai et al., OSDI 2014): what a file holds lasts from its
`fsync` on, a name from the `fsync` of its folder on. Until then each written piece and each change of a
name may be lost, in any combination and any order; only a rename is one change, both names or none.

`Recorder` stands between the program and the system's calls that matter (names, syncs, opening to write) and
looks at the folder around each, so writes of libraries in other languages are seen too.
"""

from __future__ import annotations

import io
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = 0
CHANGING = (
    "mkdir", "open", "fsync", "fdatasync", "rename", "replace", "unlink", "remove", "rmdir",
    "truncate", "ftruncate", "link", "symlink",
)  # fmt: skip
CLOCK_TICK = 50_000_000
"""Nanoseconds within which two writes may have the same time."""


@dataclass(frozen=True)
class Wrote:
    """A file has other content than before."""

    node: int
    content: bytes


@dataclass(frozen=True)
class Named:
    """Names now stand for other nodes, or for none: (folder, name, node); all of them or none."""

    changes: tuple[tuple[int, str, int | None], ...]


@dataclass(frozen=True)
class Synced:
    """A file's content, or a folder's names, are on the disk."""

    node: int


@dataclass(frozen=True)
class Mark:
    """A word of the test: `name` was true from here on."""

    name: Any


Event = Wrote | Named | Synced | Mark


class Recorder:
    """Use as a context manager; `events` are what was done to `root` since, in order.

    Args:
        before: called before every call that changes something; may raise, as a cut of the power does.
    """

    def __init__(self, root: Path, before: Callable[[Recorder], object] = lambda _: None) -> None:
        self.root, self.before = root, before
        self.events: list[Event] = []
        self.folders: set[int] = {ROOT}
        self._nodes: dict[int, int] = {root.stat().st_ino: ROOT}
        self._next = ROOT + 1
        self._tree: dict[int, dict[str, int]] = {ROOT: {}}
        self._seen: dict[int, tuple[int, int]] = {}
        self._content: dict[int, bytes] = {}
        self._lock = threading.RLock()
        self._real: dict[str, Any] = {}
        self._open = io.open

    def __enter__(self) -> Recorder:
        self._look(together=False)
        for node in [*self._content, *self._tree]:  # what was there before is on the disk
            self.events.append(Synced(node))
        for name in CHANGING:
            self._real[name] = getattr(os, name)
            setattr(os, name, self._wrapped(name, self._real[name]))
        io.open = self._wrapped_open(self._open)  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)
        io.open = self._open
        self._look(together=False)

    def mark(self, name: Any) -> None:
        with self._lock:
            self._look(together=False)
            self.events.append(Mark(name))

    def _wrapped(self, name: str, real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if name == "open" and not _writes(arguments, options):
                return real(*arguments, **options)
            with self._lock:
                self._look(together=False)
                self.before(self)
                if name in (
                    "fsync",
                    "fdatasync",
                ):  # what a real one does takes long and shows nothing
                    node = self._nodes.get(os.fstat(arguments[0]).st_ino)
                    if node is not None:
                        self.events.append(Synced(node))
                    return None
                result = real(*arguments, **options)
                self._look(together=name in ("rename", "replace"))
                return result

        return call

    def _wrapped_open(self, real: Any) -> Any:
        def call(path: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            if not set(mode) & set("wax+"):
                return real(path, mode, *arguments, **options)
            with self._lock:
                self._look(together=False)
                self.before(self)
                file = real(path, mode, *arguments, **options)
                self._look(together=False)
                return file

        return call

    def _look(self, *, together: bool) -> None:
        """Note what is new since the last look; `together`: changed names are one change."""
        while True:
            try:
                return self._look_once(together)
            except FileNotFoundError:  # of a thread that is in the middle of something
                continue

    def _look_once(self, together: bool) -> None:
        tree: dict[int, dict[str, int]] = {}
        inodes: dict[int, int] = {}
        changes: list[tuple[int, str, int | None]] = []
        files: list[tuple[int, os.stat_result, str]] = []
        waiting = [(ROOT, str(self.root))]
        while waiting:
            folder, path = waiting.pop(0)
            tree[folder] = {}
            for entry in sorted(os.scandir(path), key=lambda e: e.name):
                found = entry.stat(follow_symlinks=False)
                node = self._nodes.get(found.st_ino)
                if node is None:
                    node, self._next = self._next, self._next + 1
                    self._nodes[found.st_ino] = node
                inodes[found.st_ino] = node
                tree[folder][entry.name] = node
                if stat.S_ISDIR(found.st_mode):
                    self.folders.add(node)
                    waiting.append((node, entry.path))
                else:
                    files.append((node, found, entry.path))
            old = self._tree.get(folder, {})
            for name in sorted(old.keys() | tree[folder].keys()):
                if old.get(name) != tree[folder].get(name):
                    changes.append((folder, name, tree[folder].get(name)))
        now = time.time_ns()
        written, contents = [], {}
        for node, found, path in files:
            signature = (found.st_size, found.st_mtime_ns)
            if self._seen.get(node) != signature or now - found.st_mtime_ns < CLOCK_TICK:
                with self._open(path, "rb") as file:
                    content = file.read()
                contents[node] = (signature, content)
        for node, (signature, content) in contents.items():
            self._seen[node] = signature
            if self._content.get(node, b"") != content:
                self._content[node] = content
                written.append(Wrote(node, content))
        if together and changes:
            self.events.append(Named(tuple(changes)))
        else:
            self.events += [Named((change,)) for change in changes]
        self.events += written
        self._tree = tree
        self._nodes = {self.root.stat().st_ino: ROOT, **inodes}


def _writes(arguments: Sequence[Any], options: Any) -> bool:
    flags = arguments[1] if len(arguments) > 1 else options.get("flags", 0)
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))


@dataclass
class Disk:
    """What is on the disk after some events, and what may or may not be."""

    names: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    pending: list[Named] = field(default_factory=list)
    """Changes of names that may be lost, oldest first."""
    content: dict[int, bytes] = field(default_factory=dict)
    dirty: dict[int, list[bytes]] = field(default_factory=dict)
    """Contents of a file since its last sync, oldest first."""
    marks: list[Any] = field(default_factory=list)
    folders: set[int] = field(default_factory=set)
    """Which nodes are folders."""

    def apply(self, event: Event) -> None:
        match event:
            case Wrote(node, content):
                self.dirty.setdefault(node, []).append(content)
            case Named():
                self.pending.append(event)
            case Synced(node) if node in self.folders:
                for change in [p for p in self.pending if any(f == node for f, _, _ in p.changes)]:
                    self.pending.remove(change)
                    _rename(self.names, change)
            case Synced(node):
                if node in self.dirty:
                    self.content[node] = self.dirty.pop(node)[-1]
            case Mark(name):
                self.marks.append(name)

    def survivors_of(self, node: int) -> list[bytes]:
        """What a file may hold: an old content, a newer one, or a newer one in part, what is missing
        left out or zero. Bytes that were synced and never changed since are safe."""
        old, new = self.content.get(node, b""), self.dirty[node]
        safe = min(_common(old, content) for content in new)
        out = [old, *new]
        for content in new:
            rest = content[safe:]
            for kept in {0, len(rest) // 2, max(len(rest) - 1, 0)}:
                out.append(content[: safe + kept])
                out.append(content[: safe + kept] + bytes(len(rest) - kept))
        return list(dict.fromkeys(out))

    def left(self, kept: Sequence[bool], contents: dict[int, bytes]) -> dict[str, bytes | None]:
        """What is left when of `pending` those are lost that are not `kept`: content of every file by
        its path, None for folders.

        `contents`: of dirty files; the synced one where nothing is said.
        """
        names = {folder: dict(entries) for folder, entries in self.names.items()}
        for change, keep in zip(self.pending, kept, strict=True):
            if keep:
                _rename(names, change)
        out: dict[str, bytes | None] = {}
        waiting = [(ROOT, "")]
        while waiting:
            folder, path = waiting.pop()
            for name, node in names.get(folder, {}).items():
                if node in self.folders:
                    out[path + name] = None
                    waiting.append((node, f"{path}{name}/"))
                else:
                    out[path + name] = contents.get(node, self.content.get(node, b""))
        return out


def write_tree(target: Path, tree: Mapping[str, bytes | None]) -> None:
    """Make the folder `target` hold what `Disk.left` says."""
    target.mkdir(parents=True)
    for path, content in sorted(tree.items()):
        if content is None:
            (target / path).mkdir()
        else:
            (target / path).write_bytes(content)


def _common(one: bytes, other: bytes) -> int:
    """Length of the beginning that both have."""
    places = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(places, min(len(one), len(other)))


def _rename(names: dict[int, dict[str, int]], change: Named) -> None:
    for folder, name, node in change.changes:
        if node is None:
            names.setdefault(folder, {}).pop(name, None)
        else:
            names.setdefault(folder, {})[name] = node


def disks(events: Sequence[Event], folders: set[int]) -> Iterator[Disk]:
    """The disk after each event, one object that changes; the first is that of the beginning."""
    disk = Disk(folders=folders)
    yield disk
    for event in events:
        disk.apply(event)
        yield disk


def disk_after(events: Sequence[Event], folders: set[int]) -> Disk:
    *_, last = disks(events, folders)
    return last


def plain_cuts(disk: Disk, event: Event | None) -> Iterator[tuple[list[bool], dict[int, bytes]]]:
    """The cuts right after `event` that find most, as arguments of `Disk.left`: all lost, nothing lost, all
    names or all contents lost; the newest name kept alone; after the rename of a folder, each other name
    lost alone; after a write, that file in every state."""
    count = len(disk.pending)
    newest = {node: versions[-1] for node, versions in disk.dirty.items()}
    yield [False] * count, {}
    yield [True] * count, newest
    yield [True] * count, {}
    yield [False] * count, newest
    match event:
        case Named(changes):
            yield [False] * (count - 1) + [True], newest
            whole = len(changes) > 1 and any(node in disk.folders for _, _, node in changes)
            for place in range(count - 1) if whole else ():
                yield [place != other for other in range(count)], newest
        case Wrote(node):
            for content in disk.survivors_of(node):
                yield [True] * count, {**newest, node: content}

"""Snapshots of a run in a folder that survives crashes, power cuts and a full disk.

Invariants: a snapshot appears whole or not at all - written under another name, every file synced
and listed with its sha256, then renamed - so a cut between any two operations leaves the one before
it valid; a damaged snapshot is never loaded; one trainer at a time holds the folder; the history
up to a snapshot is on the disk before the snapshot is, and a resumed run cuts it back to exactly
that point (invariant 9).

A folder holds `snapshot-<step>/` (a second one of the same step: `snapshot-<step>.1/`),
`history.jsonl`, `lock`, and whatever else the run keeps there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from agentrl.errors import StateError
from agentrl.training.files import FileMark, reason, sha256, sync, sync_changed, sync_names

MANIFEST = "manifest.json"
_NAME = re.compile(r"snapshot-(\d{8,})(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A valid snapshot on disk."""

    step: int
    path: Path
    fingerprint: str
    history_bytes: int
    """Length of `history.jsonl` when it was taken."""


def settings_fingerprint(settings: Mapping[str, Any]) -> str:
    """A digest of everything that decides the numbers of a run (settings, seed, source digests)."""
    text = json.dumps(settings, sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _warn(line: str) -> None:
    logging.getLogger(__name__).warning("%s", line)


def read_snapshot(path: Path) -> Snapshot:
    """Check every file of a snapshot against its manifest. Raises `StateError`."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        files: dict[str, str] = manifest["files"]
        found = Snapshot(manifest["step"], path, manifest["fingerprint"], manifest["history_bytes"])
        for name, digest in files.items():
            if sha256(path / name) != digest:
                raise StateError(f"{path / name} is not as it was saved")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(f"{path} is damaged: {error!r}") from error
    return found


def latest(state_dir: Path, say: Callable[[str], None] = _warn) -> Snapshot | None:
    """The newest valid snapshot; one warning line for each damaged one that is passed over.

    None where there never was any; `StateError` where all that there are are damaged.
    """
    paths = _snapshot_paths(state_dir)
    for path in reversed(paths):
        try:
            return read_snapshot(path)
        except StateError as error:
            say(f"warning: {error}; trying the snapshot before it")
    if paths:
        raise StateError(
            f"no snapshot in {state_dir} is valid ({len(paths)} damaged); delete the folder to "
            "start afresh"
        )
    return None


def _snapshot_paths(state_dir: Path) -> list[Path]:
    """Oldest first, by step and then by revision."""
    found = []
    for path in state_dir.iterdir() if state_dir.is_dir() else ():
        if match := _NAME.fullmatch(path.name):
            found.append((int(match[1]), int(match[2] or 0), path))
    return [path for _, _, path in sorted(found)]


class StateFolder:
    """The saved state of one run, locked while it is open. Use as a context manager.

    Args:
        fingerprint: digest of the settings; state of another one is deleted at opening, and the
            run starts afresh and says so (workflow.md §3).
        keep: how many snapshots stay.
        say: takes the lines that a person should see.
    """

    def __init__(
        self,
        path: Path,
        fingerprint: str,
        keep: int = 2,
        say: Callable[[str], None] = _warn,
    ) -> None:
        self.path, self.fingerprint, self.keep, self._say = path, fingerprint, keep, say
        self.history = path / "history.jsonl"
        self.resumed: Snapshot | None = None
        """The snapshot to go on from, if any; set at opening."""
        self._lock: int | None = None
        self._synced: dict[Path, FileMark] = {}

    def __enter__(self) -> Self:
        with self._disk("open"):
            self.path.mkdir(parents=True, exist_ok=True)
            sync_names(self.path)
            try:
                self._take_lock()
                self._open()
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the lock back. Idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one line to the history. It lasts from the next snapshot on."""
        with self._disk("write the history"), self.history.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def records(self) -> list[dict[str, Any]]:
        """The history so far."""
        if not self.history.exists():
            return []
        return [json.loads(line) for line in self.history.read_text(encoding="utf-8").splitlines()]

    @contextmanager
    def snapshot(self, step: int) -> Iterator[Path]:
        """Yields an empty folder to fill; it becomes the snapshot of `step` when the block ends.

        An exception in the block, or `StateError` for a disk that refuses, leaves no trace and the
        snapshots before it intact. Old ones beyond `keep` are deleted afterwards.
        """
        aside = self.path / f".partial-{step:08d}"
        try:
            with self._disk(f"write the snapshot of step {step}"):
                shutil.rmtree(aside, ignore_errors=True)
                aside.mkdir()
                yield aside
                self._seal(aside, step)
                aside.rename(self._free_name(step))
                sync(self.path)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        with self._disk("delete old snapshots"):
            for path in _snapshot_paths(self.path)[: -self.keep]:
                self._delete(path)

    def remove(self) -> None:
        """Delete the folder with all that is in it, once the run's outputs are in place.

        It is gone in one operation: a kill leaves either the whole state or none.
        """
        with self._disk("delete the state"):
            self.path.rename(self._grave)
            sync(self.path.parent)
            shutil.rmtree(self._grave)

    @property
    def _grave(self) -> Path:
        return self.path.with_name(f".{self.path.name}.deleted")

    def _take_lock(self) -> None:
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._lock, 32).decode(errors="replace").strip() or "unknown"
            raise StateError(
                f"another trainer (pid {holder}) is using this state: {self.path}"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)

    def _open(self) -> None:
        for leftover in (self._grave, *self.path.glob(".*-*")):  # of a run that was cut off
            shutil.rmtree(leftover, ignore_errors=True)
        found = latest(self.path, self._say)
        if found is not None and found.fingerprint != self.fingerprint:
            self._say(
                f"{self.path}: the settings are not those of the saved state "
                f"({self.fingerprint[:12]}, saved {found.fingerprint[:12]}); starting afresh"
            )
            found = None
        paths = _snapshot_paths(self.path)
        for stale in paths[paths.index(found.path) + 1 :] if found else paths:
            self._delete(stale)
        if found is None:
            self._clear()
        else:
            self._cut_history(found.history_bytes)
        self.resumed = found

    def _clear(self) -> None:
        """Delete what an earlier run left beside its snapshots."""
        for path in self.path.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "lock":
                path.unlink()

    def _cut_history(self, size: int) -> None:
        have = self.history.stat().st_size if self.history.exists() else 0
        if have < size:
            raise StateError(
                f"{self.history} has {have} bytes, {size} when its snapshot was taken; delete "
                f"{self.path} to start afresh"
            )
        if have > size:
            os.truncate(self.history, size)
            sync(self.history)

    def _seal(self, folder: Path, step: int) -> None:
        """Sync the history and every file, and list the files with their checksums."""
        history_bytes = self.history.stat().st_size if self.history.exists() else 0
        self._sync_beside()
        files = {}
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            sync(path)
            files[str(path.relative_to(folder))] = sha256(path)
        manifest = {
            "step": step,
            "fingerprint": self.fingerprint,
            "history_bytes": history_bytes,
            "files": files,
        }
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        sync(folder / MANIFEST)
        for path in sorted(path for path in folder.rglob("*") if path.is_dir()):
            sync(path)
        sync(folder)

    def _sync_beside(self) -> None:
        """Sync what the run keeps beside its snapshots, and all names."""
        beside = [
            path
            for path in self.path.iterdir()
            if not path.name.startswith(".") and not _NAME.fullmatch(path.name)
        ]
        self._synced = sync_changed(beside, self._synced)
        sync(self.path)

    def _free_name(self, step: int) -> Path:
        """A folder cannot be replaced in one operation, so a second snapshot gets a new name."""
        path = self.path / f"snapshot-{step:08d}"
        revision = 0
        while path.exists():
            revision += 1
            path = self.path / f"snapshot-{step:08d}.{revision}"
        return path

    def _delete(self, path: Path) -> None:
        """Out of sight in one operation, so that a cut leaves no half-deleted snapshot."""
        gone = self.path / f".deleted-{path.name}"
        path.rename(gone)
        sync(self.path)
        shutil.rmtree(gone)

    @contextmanager
    def _disk(self, what: str) -> Iterator[None]:
        try:
            yield
        except (ConnectionError, TimeoutError):  # of whatever else a snapshot's block does
            raise
        except OSError as error:
            where = error.filename or self.path
            raise StateError(
                f"{self.path}: cannot {what}: {reason(error)} ({where}); the snapshots there are "
                "intact"
            ) from error

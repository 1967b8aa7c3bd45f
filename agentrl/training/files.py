"""Files that survive a power cut: written aside, synced, then renamed into place.

Invariant: at every moment a reader sees the old file or the new one, whole (the base of 9).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from agentrl.errors import StateError


def sync(path: Path) -> None:
    """Force a file, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """Force a folder, all that is in it, and its own name to the disk."""
    found = sorted(path.rglob("*"))
    for part in (*found, path):
        sync(part)
    sync_names(path)


FileMark = tuple[int, int, int]
"""Inode, size and time of a file: another one where it was written since."""


def sync_changed(paths: Iterable[Path], known: Mapping[Path, FileMark]) -> dict[Path, FileMark]:
    """Force files and folders with all that is in them to the disk, except for files that are as
    `known`; returns what is known now."""
    out = {}
    for path in paths:
        for part in (*path.rglob("*"), path):
            if part.is_dir():
                sync(part)
                continue
            found = part.stat()
            out[part] = (found.st_ino, found.st_size, found.st_mtime_ns)
            if known.get(part) != out[part]:
                sync(part)
    return out


def sync_names(path: Path) -> None:
    """Force the names that lead to `path` to the disk: of folders that may just have been made."""
    for folder in path.absolute().parents:
        try:
            sync(folder)
        except PermissionError:  # not ours, so it was there before
            return


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, then put it in place.

    Raises `StateError` when the disk refuses (full, read-only); what was at `path` stays.
    """
    aside = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(aside)
        sync(aside)
        aside.replace(path)
        sync(path.parent)
    except (OSError, SafetensorError) as error:
        aside.unlink(missing_ok=True)
        raise StateError(
            f"cannot write {path}: {reason(error)}; the file before it is intact"
        ) from error


def reason(error: Exception) -> str:
    """The words of an error of the operating system, without path and number."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def write_json(path: Path, value: Any) -> None:
    """One JSON value as a file, atomically. Raises `StateError`."""
    text = json.dumps(value)
    replace_file(path, lambda aside: aside.write_text(text, encoding="utf-8"))

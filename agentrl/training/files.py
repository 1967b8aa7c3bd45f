"""Files that survive a power cut: written aside, synced, then renamed into place.

Invariant: at every moment a reader sees the old file or the new one, whole (the base of 9).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
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

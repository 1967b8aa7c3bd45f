"""Files on their way into a sandbox and out of it, as tar streams with bounds."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["file", "folder", "link"]
MAX_ENTRIES = 20_000
MAX_BYTES = 32 << 20


class TooLarge(Exception):
    """More files or bytes than are read from a sandbox."""


@dataclass(frozen=True, slots=True)
class File:
    """One file, folder (`content` None) or symbolic link (`target`) to write."""

    path: str
    content: bytes | None = b""
    mode: int = 0o644
    user: int = 0
    group: int = 0
    modified: int = 1_700_000_000
    """Seconds since 1970; never the clock, so that a sample is the same every time."""
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, folder or link as it was found. Devices, pipes and sockets are not reported."""

    kind: Kind
    mode: int
    user: int
    group: int
    modified: int
    content: bytes = b""
    target: str = ""


def pack(files: Iterable[File]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in files:
            member = tarfile.TarInfo(file.path.lstrip("/"))
            member.mode, member.uid, member.gid = file.mode, file.user, file.group
            member.mtime = file.modified
            if file.target is not None:
                member.type, member.linkname = tarfile.SYMTYPE, file.target
            elif file.content is None:
                member.type = tarfile.DIRTYPE
            else:
                member.size = len(file.content)
            archive.addfile(member, io.BytesIO(file.content or b""))
    return out.getvalue()


def unpack(data: bytes, prefix: str = "") -> dict[str, Entry]:
    """Entries by absolute path; `prefix` is the folder that the names are relative to."""
    entries: dict[str, Entry] = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in archive:
            if len(entries) >= MAX_ENTRIES:
                raise TooLarge(f"more than {MAX_ENTRIES} files")
            if (entry := _entry(archive, member, entries, prefix)) is not None:
                entries[f"{prefix}/{member.name.strip('/')}"] = entry
    return entries


def _entry(
    archive: tarfile.TarFile, member: tarfile.TarInfo, entries: dict[str, Entry], prefix: str
) -> Entry | None:
    known = (member.mode & 0o7777, member.uid, member.gid, int(member.mtime))
    if member.isreg():
        stream = archive.extractfile(member)
        return Entry("file", *known, content=stream.read() if stream else b"")
    if member.islnk():  # a second name of a file that came before
        first = entries.get(f"{prefix}/{member.linkname.strip('/')}")
        return Entry("file", *known, content=first.content if first else b"")
    if member.isdir():
        return Entry("folder", *known)
    if member.issym():
        return Entry("link", *known, target=member.linkname)
    return None


def names_in(entries: Mapping[str, Entry], folder: str) -> list[str]:
    """What lies directly in `folder`."""
    start = folder.rstrip("/") + "/"
    return sorted(
        path[len(start) :]
        for path in entries
        if path.startswith(start) and "/" not in path[len(start) :]
    )


def outermost(paths: Sequence[str]) -> list[str]:
    """`paths` without those that lie below another of them."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not any(path.startswith(outer.rstrip("/") + "/") for outer in kept):
            kept.append(path)
    return kept

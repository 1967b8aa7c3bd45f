"""One file over HTTP, resumed where it was cut, and never taken for complete when it is not.

Invariants: `target` appears only whole and with the right checksum; what is half there lies beside it as
`.part`, with the server's mark of that version as `.part.version`, so that two versions are never mixed.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx

from agentrl.errors import AgentRLError, DataError

ATTEMPTS = 6
"""Requests without progress in a row."""
PAUSE = 2.0
"""Seconds before the second attempt; doubled for each further one."""
TIMEOUT = httpx.Timeout(60.0, connect=20.0)
CHUNK = 1 << 18
AGAIN = (408, 425, 429, 500, 502, 503, 504)
Progress = Callable[[int, int | None], None]
"""(bytes so far, bytes in all where that is known)"""


class NoNetworkError(AgentRLError):
    """The server cannot be reached from this machine."""


class _CutError(Exception):
    """The answer ended early, or was an error that may pass."""


def new_client() -> httpx.Client:
    # Without compression: a range of a compressed answer is of no use.
    return httpx.Client(
        follow_redirects=True, timeout=TIMEOUT, headers={"Accept-Encoding": "identity"}
    )


def fetch(
    client: httpx.Client,
    address: str,
    target: Path,
    sha256: str | None = None,
    progress: Progress = lambda done, total: None,
    pause: Callable[[float], None] = time.sleep,
) -> bool:
    """Get `address` into `target`; False where it was there already.

    Raises:
        NoNetworkError: no connection is possible.
        DataError: the server has no such file, or it is not the one that was published.
    """
    if target.exists():
        _check(target, target, sha256, "move it away to get the published one")
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    part = _Part(target)
    failures, furthest = 0, part.size
    while True:
        try:
            resumed = _receive(client, address, part, sha256 is not None, progress)
        except _CutError as error:
            failures = 1 if part.size > furthest else failures + 1
            furthest = max(furthest, part.size)
            if failures >= ATTEMPTS:
                raise DataError(
                    f"{address}: {error}, {ATTEMPTS} times in a row; try again later"
                ) from None
            pause(PAUSE * 2 ** (failures - 1))
            continue
        try:
            _check(part.path, target, sha256, "it was deleted; the publisher may have changed it")
        except DataError:
            part.delete()
            if not resumed:
                raise
            continue  # perhaps the half that was here was wrong: once more, from its start
        part.finish()
        return True


def _receive(
    client: httpx.Client, address: str, part: _Part, trusted: bool, progress: Progress
) -> bool:
    """Receive what is missing of `part`; whether something of it was here already."""
    start = part.size if trusted or part.version else 0
    headers = {"Range": f"bytes={start}-"} if start else {}
    if start and part.version:
        headers["If-Range"] = part.version
    try:
        with client.stream("GET", address, headers=headers) as answer:
            if answer.status_code == 416 and start:
                if answer.headers.get("content-range", "").endswith(f"*/{start}"):
                    return True  # it was complete
                part.delete()
                raise _CutError("the file has become shorter")
            if answer.status_code in AGAIN:
                raise _CutError(f"HTTP {answer.status_code} {answer.reason_phrase}")
            if answer.status_code not in (200, 206):
                raise DataError(f"{address}: HTTP {answer.status_code} {answer.reason_phrase}")
            if "text/html" in answer.headers.get("content-type", ""):
                raise DataError(f"{address}: answers with a web page instead of the file")
            if answer.status_code == 206 and not _continues(answer, start):
                part.delete()
                raise _CutError("the server sent another part than was asked for")
            if answer.status_code == 200:
                start = 0
                part.begin(answer.headers)
            done, total = start, _total(answer.headers, start)
            with part.path.open("ab" if start else "wb") as file:
                for chunk in answer.iter_raw(CHUNK):
                    file.write(chunk)
                    done += len(chunk)
                    progress(done, total)
            if total is not None and done != total:
                raise _CutError(f"ended after {done:,} of {total:,} bytes")
            return start > 0
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise NoNetworkError(f"cannot reach {httpx.URL(address).host} ({error})") from None
    except httpx.TransportError as error:
        raise _CutError(f"the connection was lost ({error})") from None


class _Part:
    """The half of a file that is here."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(target.name + ".part")
        self._mark = target.with_name(target.name + ".part.version")

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def version(self) -> str:
        """A validator for If-Range; empty where the server gave none that is exact."""
        return self._mark.read_text(encoding="utf-8") if self._mark.exists() else ""

    def begin(self, headers: Mapping[str, str]) -> None:
        tag = headers.get("etag", "")
        version = headers.get("last-modified", "") if not tag or tag.startswith("W/") else tag
        self.path.write_bytes(b"")
        self._mark.write_text(version, encoding="utf-8")

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)
        self._mark.unlink(missing_ok=True)

    def finish(self) -> None:
        self.path.replace(self.target)
        self._mark.unlink(missing_ok=True)


def _continues(answer: httpx.Response, start: int) -> bool:
    return str(answer.headers.get("content-range", "")).startswith(f"bytes {start}-")


def _total(headers: Mapping[str, str], start: int) -> int | None:
    length = headers.get("content-length")
    return None if length is None else start + int(length)


def _check(path: Path, target: Path, sha256: str | None, then: str) -> None:
    if sha256 is None:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise DataError(
            f"{target}: is not the published file (sha256 {found}, not {sha256}); {then}"
        )

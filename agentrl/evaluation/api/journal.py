"""The finished episodes of an evaluation, one JSON object a line: what a second start goes on from,
what the table's rows are made of, and what a person reads.

Invariants: an episode stands here as soon as it has ended, and on the disk, so that none is paid
for twice (3, 9); a journal of another evaluation is refused; one process writes.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agentrl.errors import StateError
from agentrl.evaluation.api.usage import Tally

FORMAT = 1


class Journal:
    """Opened for one evaluation; `identity` says which, in JSON."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path, self._identity = path, json.loads(json.dumps(identity))
        self.episodes: dict[tuple[Any, ...], dict[str, Any]] = {}
        """The last record of each episode, by its key."""
        self.spent: dict[str, Tally] = {}
        """By model, all tries and abandoned episodes included."""
        self.served: dict[str, str] = {}
        """By model, who the endpoint says has answered."""

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a+b")
        try:
            self._lock()
            self._read()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, record: Mapping[str, Any]) -> None:
        """A finished episode (`key`, …), or, without a key, what an abandoned one has cost."""
        self._take(dict(record))
        self._write(record)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StateError(
                f"{self.path} is being written by another process; wait for it, or give another --output"
            ) from None

    def _read(self) -> None:
        self._file.seek(0)
        content = self._file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):  # a line that a kill has cut off
            self._file.truncate(whole)
        lines = content[:whole].splitlines()
        for number, line in enumerate(lines):
            try:
                record = json.loads(line)
                if number:
                    self._take(record)
            except (ValueError, KeyError, TypeError) as error:
                raise StateError(
                    f"{self.path}, line {number + 1} is damaged ({error}); delete the line, or the file"
                ) from None
            if not number:
                self._check(record)
        if not lines:
            self._write({"format": FORMAT, "evaluation": self._identity})

    def _check(self, header: Any) -> None:
        known = header.get("evaluation") if isinstance(header, dict) else None
        if not isinstance(known, dict) or header.get("format") != FORMAT:
            raise StateError(f"{self.path} is no journal of an evaluation; give another --output")
        for key in [*self._identity, *known]:
            if known.get(key) != self._identity.get(key):
                raise StateError(
                    f"{self.path} belongs to another evaluation: {key} was {known.get(key)!r} and is "
                    f"{self._identity.get(key)!r}; delete it, or give another --output"
                )

    def _take(self, record: dict[str, Any]) -> None:
        for model, tally in record["spent"].items():
            self.spent.setdefault(model, Tally()).add(Tally.from_dict(tally))
        self.served |= record["served"]
        if "key" in record:
            self.episodes[tuple(record["key"])] = record

    def _write(self, record: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(record).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

"""Whose tokens stand in which row of a cache.

Invariant: who gets which row depends on the set of sessions that ask, never on the order in which
they came (8); a session keeps its row until it ends, or until another needs it more.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Slot:
    """A row of the cache, and what is in it."""

    row: int
    session: int | None = None
    ids: list[int] = field(default_factory=list)
    used: int = 0
    """Step of its last use."""

    def shared(self, ids: list[int]) -> int:
        """How many of `ids` stand in the row already: the length of the common prefix."""
        if ids[: len(self.ids)] == self.ids:
            return len(self.ids)
        pairs = enumerate(zip(self.ids, ids, strict=False))
        return next((i for i, (held, wanted) in pairs if held != wanted), len(ids))


class SlotTable:
    """All rows of a cache."""

    def __init__(self, rows: int) -> None:
        self._slots = [Slot(row) for row in range(rows)]

    def place(self, waiting: Iterable[int], active: Container[int]) -> dict[int, Slot]:
        """A slot for as many of the `waiting` sessions as possible, in the order of sessions.

        A session that still has its row gets that one; slots of `active` sessions are taken.
        """
        asking = sorted(waiting)
        held = {slot.session: slot for slot in self._slots if slot.session is not None}
        placed: dict[int, Slot] = {}
        for session in asking:
            slot = held.get(session)
            if slot is None:
                free = [
                    s for s in self._slots if s.session not in active and s.session not in placed
                ]
                if not free:
                    continue
                slot = min(free, key=lambda s: _worth(s, asking))
                if slot.session is not None:
                    del held[slot.session]
                slot.session, slot.ids = session, []
            placed[session] = slot
        return placed

    def release(self, session: int) -> None:
        for slot in self._slots:
            if slot.session == session:
                slot.session, slot.ids = None, []

    def clear(self) -> None:
        """Forget everything, as after new weights."""
        for slot in self._slots:
            slot.session, slot.ids, slot.used = None, [], 0


def _worth(slot: Slot, asking: Container[int]) -> tuple[bool, bool, int, int]:
    """Least for a free row, then for the session that has been idle longest."""
    if slot.session is None:
        return (False, False, 0, slot.row)
    return (True, slot.session in asking, slot.used, slot.session)

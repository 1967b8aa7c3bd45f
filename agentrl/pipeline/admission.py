"""How far generation may run ahead of training: staleness is bounded here, never by discarding.

A group of step s may start once the engines hold version s - max_staleness or newer. Versions only
grow, so every token of the current policy in step s is at most `max_staleness` versions old when it
is trained (6); 0 is the synchronous trainer. The stale role of cross-policy sampling is older by
design, by at most its refresh interval.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Admission:
    """The rule as a pure function of what is known."""

    max_staleness: int
    concurrency: int
    steps: int

    def allows(self, step: int, version: int, live: int) -> bool:
        """May an episode of `step` start, with `live` episodes under way at engine `version`?"""
        return (
            step < self.steps and live < self.concurrency and step <= version + self.max_staleness
        )

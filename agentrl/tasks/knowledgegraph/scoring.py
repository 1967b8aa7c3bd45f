"""When an answer counts: the reward is 1 for exactly the expected set, the F1 is for information."""

from __future__ import annotations

from collections.abc import Iterable


def same_set(answer: Iterable[str], gold: Iterable[str]) -> bool:
    return set(answer) == set(gold)


def f1(answer: Iterable[str], gold: Iterable[str]) -> float:
    """Harmonic mean of precision and recall; 0 where nothing is shared."""
    found, wanted = set(answer), set(gold)
    return 2 * len(found & wanted) / (len(found) + len(wanted)) if found & wanted else 0.0

"""When an answer counts: AgentBench's comparison, kept exactly but for its `eval`.

Rules (`spec/tasks.md` §2, each verified against the reference): both sides become lists of
normalised strings; one value each is compared as zero, as a number within 0.01, or as text with
case; several are compared as numbers one to one, else as sets. Whatever goes wrong is a wrong answer.

The reference passes a string that looks like `[...]` to Python's eval, which is remote code
execution by the model (invariant 10). Here such a string is read as a literal, by a parser that
knows values only, up to `MAX_LITERAL` characters; what is no literal is one plain string.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import Any

TOLERANCE = 0.01
MAX_LITERAL = 10_000
ZERO_WORDS = frozenset({
    "none", "null", "undefined", "nan", "inf", "-inf", "+inf", "infinity", "-infinity",
    "+infinity", "",
})  # fmt: skip


def same_answer(answer: Any, label: Any) -> bool:
    """Whether `answer` (what the agent committed) is `label` (what the record expects)."""
    try:
        return _same(to_list(answer), to_list(label))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return False


def to_list(value: Any) -> list[str]:
    """One side of the comparison as normalised strings; None is `["0"]`."""
    if value is None:
        return ["0"]
    if isinstance(value, str) and value.strip().startswith("[") and value.strip().endswith("]"):
        value = read_literal(value.strip())
    if isinstance(value, (list, tuple, set)):
        return [normalise(item) for item in value]
    return [normalise(value)]


def read_literal(text: str) -> Any:
    """The list that `text` spells (`[('a',), (1,)]` gives its first columns), or the text itself."""
    if len(text) > MAX_LITERAL:
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text
    if not isinstance(value, list):
        return text
    return [item[0] if isinstance(item, tuple) and len(item) == 1 else item for item in value]


def normalise(value: Any) -> str:
    """Trimmed, without surrounding quotes, a trailing `%` and all commas; nothing-words are "0"."""
    if value is None:
        return "0"
    text = str(value).strip().strip("'\"").strip()
    text = text.removesuffix("%").replace(",", "").strip()
    return "0" if text.lower() in ZERO_WORDS else text


def _same(answer: Sequence[str], label: Sequence[str]) -> bool:
    if len(answer) == 1 and len(label) == 1:
        return _same_value(answer[0], label[0])
    left, right = [_number(item) for item in answer], [_number(item) for item in label]
    if None not in left and None not in right and left and right:
        return _match_numbers(
            [n for n in left if n is not None], [n for n in right if n is not None]
        )
    return set(answer) == set(label)


def _same_value(answer: str, label: str) -> bool:
    if answer == "0" and label == "0":
        return True
    a, b = _number(answer), _number(label)
    if a is not None and b is not None:
        return abs(a - b) <= TOLERANCE
    return answer == label


def _number(text: str) -> float | None:
    """The finite number that the whole text spells, as Python's float() reads it."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _match_numbers(left: list[float], right: list[float]) -> bool:
    """Same length, and every number finds a partner of its own within the tolerance, greedily."""
    if len(left) != len(right):
        return False
    free = list(right)
    for number in left:
        partner = next(
            (i for i, other in enumerate(free) if abs(number - other) <= TOLERANCE), None
        )
        if partner is None:
            return False
        free.pop(partner)
    return True

"""Aggregates that SQLite lacks or defines otherwise.

`my_min`/`my_max` do what MIN and MAX do but, unlike SQLite's own, do not steer which row a bare
column comes from. `my_one_row` turns a scalar subquery of two rows into error 1242.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cmp_to_key
from typing import Any, Protocol

from agentrl.tasks.dbbench.mysql_semantics.collation import compare, sort_key
from agentrl.tasks.dbbench.mysql_semantics.errors import SqlError
from agentrl.tasks.dbbench.mysql_semantics.meter import Meter, Value

GROUP_CONCAT_LIMIT = 1024
"""group_concat_max_len of MySQL, in bytes."""


class Aggregate(Protocol):
    def step(self, *arguments: Any) -> None: ...

    def finalize(self) -> Value: ...


class _Extreme:
    sign = 1

    def __init__(self, meter: Meter) -> None:
        self.best: Any = None

    def step(self, value: Any) -> None:
        if value is None:
            return
        if self.best is None or self.order(value, self.best) * self.sign > 0:
            self.best = value

    @staticmethod
    def order(a: Any, b: Any) -> int:
        return compare(a, b) if isinstance(a, str) else (a > b) - (a < b)

    def finalize(self) -> Value:
        return self.best  # type: ignore[no-any-return]


class _Least(_Extreme):
    sign = -1


class _OneRow:
    def __init__(self, meter: Meter) -> None:
        self.rows = 0
        self.value: Value = None

    def step(self, value: Value) -> None:
        self.rows += 1
        self.value = value
        if self.rows > 1:
            raise SqlError(1242, "Subquery returns more than 1 row")

    def finalize(self) -> Value:
        return self.value


class _CountDistinct:
    """COUNT(DISTINCT a, b): rows with a NULL do not count; text counts by collation."""

    def __init__(self, meter: Meter) -> None:
        self.seen: set[tuple[Any, ...]] = set()

    def step(self, *values: Any) -> None:
        if None not in values:
            self.seen.add(tuple(sort_key(v) if isinstance(v, str) else v for v in values))

    def finalize(self) -> int:
        return len(self.seen)


class _GroupConcat:
    """Arguments: text, separator, directions, distinct, keys…

    Directions are one letter a key: `a` or `d`, upper case where bytes are compared.
    """

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.rows: list[tuple[str, tuple[Any, ...]]] = []
        self.separator, self.directions, self.distinct = ",", "", 0

    def step(
        self, text: str | None, separator: str, directions: str, distinct: int, *keys: Any
    ) -> None:
        self.separator, self.directions, self.distinct = separator, directions, distinct
        if text is not None:
            self.meter.charge(len(text) + 1)
            self.rows.append((text, keys))

    def finalize(self) -> str | None:
        if not self.rows:
            return None
        rows = self.rows
        for i in reversed(range(len(self.directions))):
            letter = self.directions[i]
            rows = sorted(rows, key=_nth_key(i, letter.isupper()), reverse=letter in "dD")
        texts: list[str] = []
        seen: set[tuple[int, ...]] = set()
        for text, _ in rows:
            key = sort_key(text)
            if self.distinct and key in seen:
                continue
            seen.add(key)
            texts.append(text)
        joined = self.separator.join(texts).encode("utf-8", "replace")
        return joined[:GROUP_CONCAT_LIMIT].decode("utf-8", "ignore")


def _nth_key(i: int, binary: bool) -> Callable[[tuple[str, tuple[Any, ...]]], Any]:
    def order(a: Any, b: Any) -> int:
        if a is None or b is None:
            return (a is not None) - (b is not None)
        return (a > b) - (a < b) if binary else _Extreme.order(a, b)

    key = cmp_to_key(order)
    return lambda row: key(row[1][i])


class _Spread:
    """Population variance by Welford's recurrence; subclasses say what is reported."""

    sample, root = False, False

    def __init__(self, meter: Meter) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def step(self, value: float | None) -> None:
        if value is None:
            return
        self.count += 1
        delta = value - self.mean
        self.mean += delta / self.count
        self.squares += delta * (value - self.mean)

    def finalize(self) -> float | None:
        divisor = self.count - 1 if self.sample else self.count
        if divisor < 1:
            return None
        variance = self.squares / divisor
        return math.sqrt(variance) if self.root else variance


class _Deviation(_Spread):
    root = True


class _SampleVariance(_Spread):
    sample = True


class _SampleDeviation(_Spread):
    sample, root = True, True


class _Bits:
    start = 0

    def __init__(self, meter: Meter) -> None:
        self.value = self.start

    def step(self, value: int | None) -> None:
        if value is not None:
            self.value = self.join(self.value, value & (2**64 - 1))

    def join(self, a: int, b: int) -> int:
        return a | b

    def finalize(self) -> int:
        return self.value if self.value < 2**63 else self.value - 2**64


class _BitAnd(_Bits):
    start = 2**64 - 1

    def join(self, a: int, b: int) -> int:
        return a & b


class _BitXor(_Bits):
    def join(self, a: int, b: int) -> int:
        return a ^ b


AGGREGATES: dict[str, tuple[int, Callable[[Meter], Aggregate]]] = {
    "my_max": (1, _Extreme),
    "my_min": (1, _Least),
    "my_one_row": (1, _OneRow),
    "my_count_distinct": (-1, _CountDistinct),
    "my_group_concat": (-1, _GroupConcat),
    "my_variance": (1, _Spread),
    "my_deviation": (1, _Deviation),
    "my_sample_variance": (1, _SampleVariance),
    "my_sample_deviation": (1, _SampleDeviation),
    "my_bit_or": (1, _Bits),
    "my_bit_and": (1, _BitAnd),
    "my_bit_xor": (1, _BitXor),
}
"""name -> (number of arguments or -1, class made with the statement's meter)"""

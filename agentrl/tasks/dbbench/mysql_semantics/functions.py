"""The MySQL functions that SQLite lacks or defines otherwise, as Python functions of one connection.

Arguments arrive as SQLite values (None, int, float, str), already converted by the compiler to the
kind that the function wants. Unless named in `NULL_AWARE`, a function with a NULL argument is NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentrl.tasks.dbbench.mysql_semantics.aggregates import AGGREGATES
from agentrl.tasks.dbbench.mysql_semantics.date_functions import DATE_FUNCTIONS
from agentrl.tasks.dbbench.mysql_semantics.errors import SqlError
from agentrl.tasks.dbbench.mysql_semantics.meter import Meter, Value
from agentrl.tasks.dbbench.mysql_semantics.number_functions import NUMBER_FUNCTIONS
from agentrl.tasks.dbbench.mysql_semantics.numbers import is_number, number_prefix
from agentrl.tasks.dbbench.mysql_semantics.text_functions import TEXT_FUNCTIONS

NULL_AWARE = frozenset({"my_concat_ws", "my_field", "my_elt", "my_quote", "my_char"})
_PLAIN = {**NUMBER_FUNCTIONS, **DATE_FUNCTIONS}


def make_function(name: str, meter: Meter) -> tuple[int, Callable[..., Value]]:
    """(number of arguments or -1, function); text functions charge `meter` for what they read.

    SQLite reports no more than that a function raised: what it raised stays in `meter.error`.
    """
    if name == "my_number":
        return 1, _number_function(meter)
    if name in _PLAIN:
        arity, plain = _PLAIN[name]

        def call(*arguments: Any) -> Value:
            try:
                return None if None in arguments else plain(*arguments)
            except SqlError as error:
                meter.error = error
                raise

        return arity, call
    arity, function = TEXT_FUNCTIONS[name]
    null_aware = name in NULL_AWARE

    def call_metered(*arguments: Any) -> Value:
        if not null_aware and None in arguments:
            return None
        try:
            meter.charge(sum(len(a) for a in arguments if type(a) is str) + 1)
            return function(meter, *arguments)
        except SqlError as error:
            meter.error = error
            raise

    return arity, call_metered


def _number_function(meter: Meter) -> Callable[..., Value]:
    """Text to number; in a strict change of rows, text that is no number is error 1292."""

    def call(value: Any) -> Value:
        if type(value) is not str:
            return value  # type: ignore[no-any-return]
        if meter.strict and not is_number(value):
            meter.error = SqlError(1292, f"Truncated incorrect DOUBLE value: '{value[:64]}'")
            raise meter.error
        return number_prefix(value)

    return call


def make_aggregate(name: str, meter: Meter) -> tuple[int, type]:
    """(number of arguments or -1, class) of an aggregate whose objects charge `meter`."""
    arity, make = AGGREGATES[name]

    class Group:
        def __init__(self) -> None:
            self.inner = make(meter)

        def step(self, *arguments: Any) -> None:
            try:
                self.inner.step(*arguments)
            except SqlError as error:
                meter.error = error
                raise

        def finalize(self) -> Value:
            return self.inner.finalize()

    return arity, Group


def is_function(name: str) -> bool:
    return name == "my_number" or name in _PLAIN or name in TEXT_FUNCTIONS

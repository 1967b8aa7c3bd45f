"""MySQL's numeric functions on SQLite values."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from agentrl.tasks.dbbench.mysql_semantics import numbers
from agentrl.tasks.dbbench.mysql_semantics.collation import compare
from agentrl.tasks.dbbench.mysql_semantics.errors import out_of_range
from agentrl.tasks.dbbench.mysql_semantics.meter import Value


def _integer(value: str) -> int:
    return numbers.integer_prefix(value) if isinstance(value, str) else int(value)


def _whole(rounded: Callable[[float], float]) -> Callable[..., int]:
    def call(value: int | float) -> int:
        if isinstance(value, int):
            return value
        if abs(value) >= 2**63:
            return numbers.INTEGER_MAX if value > 0 else numbers.INTEGER_MIN
        return int(rounded(value))

    return call


def _cast_decimal(value: int | float, precision: int, scale: int) -> float:
    largest = float(10 ** (precision - scale)) - 10.0**-scale
    return max(-largest, min(largest, numbers.round_decimal(value, scale)))


def _round_double(value: float, digits: int) -> float:
    """ROUND of a DOUBLE: to the nearest, halves to even, as the C library's `rint` does it."""
    digits = max(-30, min(30, digits))
    factor = 10.0 ** abs(digits)
    scaled = value * factor if digits >= 0 else value / factor
    if not math.isfinite(scaled):
        return value
    rounded = float(round(scaled))
    return (rounded / factor if digits >= 0 else rounded * factor) + 0.0


def _truncate(value: int | float, digits: int) -> int | float:
    digits = max(-30, min(30, digits))
    if isinstance(value, int):
        step = 10 ** max(0, -digits)
        return int(math.copysign(abs(value) // step * step, value))
    exact = numbers.to_decimal(value, 30)
    factor = Decimal(10) ** digits
    return float(int(exact * factor) / factor) + 0.0 if exact.is_finite() else value


def _modulo(a: int | float, b: int | float) -> int | float | None:
    if b == 0:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return int(math.fmod(a, b)) if abs(a) < 2**52 else a - b * int(a / b)
    return math.fmod(a, b) + 0.0


def _int_divide(a: int | float, b: int | float) -> int | None:
    if b == 0:
        return None
    quotient = numbers.to_decimal(a, 30) / numbers.to_decimal(b, 30)
    if abs(quotient) >= 2**63:
        raise out_of_range("BIGINT", f"{a} DIV {b}")
    return int(quotient)


def _domain(function: Callable[..., float], name: str) -> Callable[..., Value]:
    """Mathematical domain errors are NULL, overflow is 1690."""

    def call(*arguments: float) -> Value:
        try:
            result = function(*map(float, arguments))
        except (ValueError, ZeroDivisionError):
            return None
        except OverflowError:
            raise out_of_range("DOUBLE", f"{name}()") from None
        if not isinstance(result, float) or not math.isfinite(result):
            raise out_of_range("DOUBLE", f"{name}()")
        return result + 0.0

    return call


def _extreme(sign: int, textual: bool) -> Callable[..., Value]:
    def call(*arguments: Any) -> Value:
        best = arguments[0]
        for other in arguments[1:]:
            order = compare(other, best) if textual else (other > best) - (other < best)
            best = other if order * sign > 0 else best
        return best  # type: ignore[no-any-return]

    return call


def _format(value: int | float, digits: int) -> str:
    return f"{numbers.to_decimal(value, max(0, min(30, digits))):,f}"


def _convert_base(text: str, source: int, target: int) -> str | None:
    if not (2 <= abs(source) <= 36 and 2 <= abs(target) <= 36):
        return None
    digits = ""
    for character in text.strip().lower().lstrip("+"):
        if not (character.isalnum() and character.isascii() and int(character, 36) < abs(source)):
            break
        digits += character
    value = int(digits or "0", abs(source)) & (2**64 - 1)
    out = ""
    while value:
        value, rest = divmod(value, abs(target))
        out = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[rest] + out
    return out or "0"


NUMBER_FUNCTIONS: dict[str, tuple[int, Callable[..., Value]]] = {
    "my_integer": (1, _integer),
    "my_double_integer": (1, _whole(round)),
    "my_decimal_integer": (1, _whole(lambda value: numbers.round_decimal(value, 0))),
    "my_decimal_text": (2, numbers.decimal_text),
    "my_double_text": (1, numbers.double_text),
    "my_decimal": (2, numbers.round_decimal),
    "my_cast_decimal": (3, _cast_decimal),
    "my_round_double": (2, _round_double),
    "my_truncate": (2, _truncate),
    "my_modulo": (2, _modulo),
    "my_int_divide": (2, _int_divide),
    "my_greatest": (-1, _extreme(1, textual=False)),
    "my_least": (-1, _extreme(-1, textual=False)),
    "my_greatest_text": (-1, _extreme(1, textual=True)),
    "my_least_text": (-1, _extreme(-1, textual=True)),
    "my_sqrt": (1, _domain(math.sqrt, "sqrt")),
    "my_power": (2, _domain(math.pow, "pow")),
    "my_exp": (1, _domain(math.exp, "exp")),
    "my_ln": (1, _domain(math.log, "ln")),
    "my_log10": (1, _domain(math.log10, "log10")),
    "my_log2": (1, _domain(math.log2, "log2")),
    "my_log": (2, _domain(lambda base, x: math.log(x) / math.log(base), "log")),
    "my_sin": (1, _domain(math.sin, "sin")),
    "my_cos": (1, _domain(math.cos, "cos")),
    "my_tan": (1, _domain(math.tan, "tan")),
    "my_radians": (1, _domain(math.radians, "radians")),
    "my_degrees": (1, _domain(math.degrees, "degrees")),
    "my_floor": (1, lambda value: type(value)(math.floor(value))),
    "my_ceil": (1, lambda value: type(value)(math.ceil(value))),
    "my_sign": (1, lambda value: (value > 0) - (value < 0)),
    "my_format": (2, _format),
    "my_conv": (3, _convert_base),
}
"""name -> (number of arguments or -1, function)"""

"""How MySQL turns text into numbers and numbers into text.

Text used as a number is its numeric prefix ("12abc" is 12, "abc" is 0, "1,234" is 1). DECIMAL
values travel through SQLite as doubles that are rounded to their scale after every operation,
which is exact up to 15 significant digits; halves round away from zero.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal

_PREFIX = re.compile(r"[ \t\n\v\f\r]*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_INTEGER = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]+)")
_CONTEXT = Context(prec=200)
_LARGEST = 1.7976931348623157e308
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1


def number_prefix(text: str) -> float:
    """The double at the start of `text`; 0.0 where there is none."""
    match = _PREFIX.match(text)
    if match is None:
        return 0.0
    return max(-_LARGEST, min(_LARGEST, float(match.group(1)))) + 0.0


def is_number(text: str) -> bool:
    """True where the whole text is a number, so that a conversion loses nothing."""
    match = _PREFIX.match(text)
    return match is not None and not text[match.end() :].strip(" ")


def integer_prefix(text: str) -> int:
    """CAST(text AS SIGNED): leading digits only, clamped to 64 bits."""
    match = _INTEGER.match(text)
    if match is None:
        return 0
    digits = match.group(1)
    if len(digits) > 20:
        return INTEGER_MIN if digits[0] == "-" else INTEGER_MAX
    return max(INTEGER_MIN, min(INTEGER_MAX, int(digits)))


def double_text(value: float) -> str:
    """A double as MySQL prints it: shortest digits; 1e15 and more, or 1e-16 and less, with `e`."""
    if value == 0:
        return "0"
    digits, _, exponent = f"{Decimal(repr(value)):e}".lower().partition("e")
    mantissa = digits.rstrip("0").rstrip(".") if "." in digits else digits
    if -16 < int(exponent) < 15:
        text = f"{Decimal(repr(value)):f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{mantissa}e{int(exponent)}"


def to_decimal(value: int | float, scale: int) -> Decimal:
    """The DECIMAL with `scale` digits after the point that a value stands for."""
    exact = Decimal(value) if isinstance(value, int) else Decimal(repr(value))
    if not exact.is_finite() or exact.adjusted() > 64:
        return exact
    rounded = exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _CONTEXT)
    return rounded if rounded else abs(rounded)


def round_decimal(value: int | float, scale: int) -> float:
    """`value` at `scale` digits after the point (before it, where negative), halves away from 0."""
    exact = Decimal(value) if isinstance(value, int) else Decimal(repr(value))
    if not exact.is_finite() or exact.adjusted() > 64:
        return float(exact)
    step = Decimal(1).scaleb(-scale)
    return float(exact.quantize(step, ROUND_HALF_UP, _CONTEXT)) + 0.0


def decimal_text(value: int | float, scale: int) -> str:
    return f"{to_decimal(value, scale):f}"

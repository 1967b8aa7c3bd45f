"""MySQL's static types and the conversions between them, as SQLite text.

MySQL decides the type of every expression before it runs, and with it how values are compared,
added and printed. `Expr` is one compiled expression: SQLite text plus that type. Names that start
with `my_` are Python functions (`functions.py`) or aggregates (`aggregates.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

MAX_SCALE = 30


class Kind(IntEnum):
    NULL = 0
    INT = 1
    DECIMAL = 2
    DOUBLE = 3
    TEXT = 4
    DATE = 5
    DATETIME = 6
    TIME = 7


class Type(NamedTuple):
    kind: Kind
    scale: int = 0
    """Digits after the point of a DECIMAL, or of a DOUBLE that ROUND made."""

    @property
    def numeric(self) -> bool:
        return self.kind in (Kind.INT, Kind.DECIMAL, Kind.DOUBLE)

    @property
    def temporal(self) -> bool:
        return self.kind >= Kind.DATE


FLOATING = 31
"""`scale` of a DOUBLE that is printed with as many digits as it has."""
NULL, INT, TEXT = Type(Kind.NULL), Type(Kind.INT), Type(Kind.TEXT)
DOUBLE = Type(Kind.DOUBLE, FLOATING)
DATE, DATETIME, TIME = Type(Kind.DATE), Type(Kind.DATETIME), Type(Kind.TIME)


def decimal(scale: int) -> Type:
    return Type(Kind.DECIMAL, min(max(scale, 0), MAX_SCALE))


def double(scale: int) -> Type:
    """A DOUBLE that shows `scale` digits; all it has from `FLOATING` on."""
    return Type(Kind.DOUBLE, min(max(scale, 0), FLOATING))


class Expr(NamedTuple):
    sql: str
    type: Type
    column: bool = False
    """A plain column, which carries the collation by itself."""
    spelling: str | None = None
    """A literal as text, so that 3.50 goes into a TEXT column as it was written."""
    binary: bool = False
    """Compared byte by byte (`BINARY x`, `COLLATE utf8mb4_bin`)."""
    as_number: str | None = None
    """SQLite text where a number is wanted, if that is not the text's own number (GREATEST)."""


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def quote(text: str) -> str:
    """A SQLite string literal of any text."""
    if "\0" in text:
        return f"CAST(x'{text.encode('utf-8', 'replace').hex()}' AS TEXT)"
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def number(expr: Expr) -> str:
    """The value as a number: text by its numeric prefix, a date by its digits."""
    kind = expr.type.kind
    if kind is Kind.TEXT:
        return expr.as_number or f"my_number({expr.sql})"
    if kind >= Kind.DATE:
        return f"my_date_number({expr.sql})"
    return expr.sql


def number_type(kind: Type) -> Type:
    """Type of the value that `number` gives."""
    if kind.kind is Kind.TEXT:
        return DOUBLE
    return INT if kind.temporal else kind


def text(expr: Expr) -> str:
    """The value as text, as CONCAT or a TEXT column would see it."""
    if expr.spelling is not None:
        return quote(expr.spelling)
    kind = expr.type.kind
    if kind is Kind.INT:
        return f"CAST({expr.sql} AS TEXT)"
    if kind is Kind.DECIMAL or (kind is Kind.DOUBLE and expr.type.scale != FLOATING):
        return f"my_decimal_text({expr.sql}, {expr.type.scale})"
    if kind is Kind.DOUBLE:
        return f"my_double_text({expr.sql})"
    return expr.sql


def stored(expr: Expr) -> str:
    """The value as a TEXT column takes it: a DOUBLE with the digits that it has."""
    if expr.type.kind is Kind.DOUBLE and expr.spelling is None:
        return f"my_double_text({expr.sql})"
    return text(expr)


def integer(expr: Expr) -> str:
    """The value as BIGINT: text by its leading digits, numbers rounded (doubles to even)."""
    kind = expr.type.kind
    if kind in (Kind.INT, Kind.NULL):
        return expr.sql
    if kind is Kind.TEXT:
        return f"my_integer({expr.sql})"
    if kind is Kind.DOUBLE:
        return f"my_double_integer({expr.sql})"
    return f"my_decimal_integer({number(expr)})"


def moment(expr: Expr) -> str:
    """The value as a DATETIME text; NULL where it is no date."""
    if expr.type.kind is Kind.DATETIME:
        return expr.sql
    return f"my_moment({expr.sql})"


def day(expr: Expr) -> str:
    """The value as a DATE text; NULL where it is no date."""
    return expr.sql if expr.type.kind is Kind.DATE else f"my_date({expr.sql})"


def truth(expr: Expr) -> str:
    """The value in a condition."""
    return number(expr)


def keyed(expr: Expr) -> str:
    """The value where rows are ordered, grouped or made distinct: with its collation."""
    if expr.type.kind is not Kind.TEXT:
        return expr.sql
    if expr.binary:
        return f"{expr.sql} COLLATE BINARY"
    return expr.sql if expr.column else f"{expr.sql} COLLATE mysql"


def comparable(left: Expr, right: Expr) -> tuple[str, str]:
    """Both sides as SQLite has to see them for MySQL's comparison."""
    a, b = left.type, right.type
    if Kind.NULL in (a.kind, b.kind):
        return left.sql, right.sql
    if a.kind is Kind.TEXT and b.kind is Kind.TEXT:
        collation = "BINARY" if left.binary or right.binary else "mysql"
        if collation == "mysql" and left.column:
            return left.sql, right.sql
        return left.sql, f"{right.sql} COLLATE {collation}"
    if a.temporal or b.temporal:
        return _comparable_dates(left, right)
    return number(left), number(right)


def _comparable_dates(left: Expr, right: Expr) -> tuple[str, str]:
    if left.type.numeric or right.type.numeric:
        return number(left), number(right)
    if Kind.TIME in (left.type.kind, right.type.kind):
        return left.sql, right.sql
    if left.type.kind == right.type.kind:
        return left.sql, right.sql
    return moment(left), moment(right)


def unify(types: Iterable[Type]) -> Type:
    """Type of CASE, IF, COALESCE, UNION: the narrowest that holds every branch."""
    out = NULL
    for other in types:
        if other.kind is Kind.NULL or other == out:
            continue
        if out.kind is Kind.NULL:
            out = other
        elif out.numeric and other.numeric:
            scale = max(out.scale, other.scale)
            floating = Kind.DOUBLE in (out.kind, other.kind)
            out = double(scale) if floating else decimal(scale)
        elif {out.kind, other.kind} == {Kind.DATE, Kind.DATETIME}:
            out = DATETIME
        else:
            out = TEXT
    return out


def convert(expr: Expr, target: Type) -> str:
    """The value as a branch of an expression of type `target` (the result of `unify`)."""
    if target.kind is Kind.TEXT:
        return text(expr)
    if target.kind is Kind.DATETIME and expr.type.kind is Kind.DATE:
        return moment(expr)
    return expr.sql

"""Conditions of a question: in words, in SQL, and as a test of a row here."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentrl.tasks.dbbench.mysql_semantics.collation import fold
from agentrl.tasks.dbbench.mysql_semantics.syntax import RESERVED
from agentrl.tasks.dbbench.sheets import Row, Sheet


@dataclass(frozen=True, slots=True)
class Condition:
    words: str
    sql: str
    holds: Callable[[Row], bool]


def quoted(value: str) -> str:
    """A value in SQL, and in the words of an easy question."""
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def name_of(name: str) -> str:
    """A table or column name in SQL: with backticks where it needs them."""
    plain = name.replace("_", "").isalnum() and name.isascii() and not name[0].isdigit()
    return name if plain and name.upper() not in RESERVED else f"`{name}`"


def said(sheet: Sheet, value: str) -> str:
    return quoted(value) if sheet.level.easy else f'"{value}"' if value else "empty"


def numeric(sheet: Sheet, column: str) -> str:
    """A number column in SQL where its size matters."""
    if sheet.level.easy:
        return name_of(column)
    if any("," in sheet.cell(row, column) for row in sheet.table.rows):
        return f"REPLACE({name_of(column)}, ',', '') + 0"
    return f"{name_of(column)} + 0"


def equals(sheet: Sheet, column: str, value: str) -> Condition:
    wanted = fold(value)
    return Condition(
        f"{column} is {said(sheet, value)}",
        f"{name_of(column)} = {quoted(value)}",
        lambda row: fold(sheet.cell(row, column)) == wanted,
    )


def differs(sheet: Sheet, column: str, value: str) -> Condition:
    inner = equals(sheet, column, value)
    return Condition(
        f"{column} is not {said(sheet, value)}",
        f"{name_of(column)} <> {quoted(value)}",
        lambda row: not inner.holds(row),
    )


def one_of(sheet: Sheet, column: str, values: Sequence[str]) -> Condition:
    wanted = {fold(value) for value in values}
    return Condition(
        f"{column} is one of {', '.join(said(sheet, value) for value in values)}",
        f"{name_of(column)} IN ({', '.join(quoted(value) for value in values)})",
        lambda row: fold(sheet.cell(row, column)) in wanted,
    )


def bound(sheet: Sheet, column: str, above: bool, limit: int) -> Condition:
    word, sign = ("above", ">") if above else ("below", "<")
    number = f"'{limit}'" if sheet.level.easy else str(limit)
    left = numeric(sheet, column)
    if sheet.level.easy or "REPLACE" not in left:
        left = name_of(column)
    else:
        left = left.removesuffix(" + 0")
    return Condition(
        f"{column} is {word} {number}",
        f"{left} {sign} {number}",
        lambda row: (
            (sheet.value(row, column) > limit) is above and sheet.value(row, column) != limit
        ),
    )


def draw_condition(sheet: Sheet, rng: random.Random, columns: Sequence[str]) -> Condition:
    """One condition on one of `columns`, true of at least one row."""
    column = rng.choice(columns)
    row = rng.choice(sheet.table.rows)
    if column in sheet.numbers:
        above = rng.random() < 0.5
        limit = int(sheet.value(row, column)) + (-1 if above else 1)
        if sheet.level.easy:
            limit = max(10, min(99, limit))  # two digits, so that text order is number order
        return bound(sheet, column, above, limit)
    value = sheet.cell(row, column)
    form = rng.random() if sheet.level.messy else 1.0
    if form < 0.15:
        return differs(sheet, column, value)
    if form < 0.3:
        return one_of(sheet, column, [value, rng.choice(sheet.values(column))])
    if form < 0.4 and value.isascii():
        return equals(sheet, column, value.upper())
    return equals(sheet, column, value)


def draw_conditions(
    sheet: Sheet, rng: random.Random, columns: Sequence[str], at_least: int = 1
) -> list[Condition]:
    """Between `at_least` and the level's number of conditions, on different columns."""
    count = min(len(columns), rng.randint(at_least, max(at_least, sheet.level.conditions)))
    left = list(columns)
    out = []
    for _ in range(count):
        column = rng.choice(left)
        left.remove(column)
        out.append(draw_condition(sheet, rng, [column]))
    return out


def chosen(sheet: Sheet, conditions: Sequence[Condition]) -> list[Row]:
    return [row for row in sheet.table.rows if all(c.holds(row) for c in conditions)]


def where(conditions: Sequence[Condition]) -> tuple[str, str]:
    """The conditions in words and in SQL."""
    if not conditions:
        return "", ""
    return (
        " where " + " and ".join(c.words for c in conditions),
        " WHERE " + " AND ".join(c.sql for c in conditions),
    )

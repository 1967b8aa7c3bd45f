"""Questions of every kind over a sheet, with the statement that answers them and what it must lead to."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentrl.tasks.dbbench import vocabulary as words
from agentrl.tasks.dbbench.conditions import (
    Condition,
    chosen,
    draw_condition,
    draw_conditions,
    name_of,
    numeric,
    quoted,
    said,
    where,
)
from agentrl.tasks.dbbench.mysql_semantics.collation import fold
from agentrl.tasks.dbbench.sheets import Row, Sheet


@dataclass(frozen=True, slots=True)
class Problem:
    question: str
    sql: str
    answers: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    """The table after a mutation."""


def number_text(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.4f}".rstrip("0")


def _other(sheet: Sheet, rng: random.Random) -> Problem | None:
    target, *columns = rng.sample(sheet.table.columns, len(sheet.table.columns))
    usable = [column for column in columns if column not in sheet.numbers]
    if not usable:
        return None
    conditions = draw_conditions(sheet, rng, usable)
    return _listing(sheet, rng, target, conditions, ("what is the {c}{w} ?", "give the {c}{w} ."))


def _comparison(sheet: Sheet, rng: random.Random) -> Problem | None:
    column = rng.choice(sheet.numbers)
    target = rng.choice([c for c in sheet.table.columns if c != column])
    conditions = [draw_condition(sheet, rng, [column])]
    rest = [c for c in sheet.categories if c != target]
    if sheet.level.conditions > 1 and rest and rng.random() < 0.6:
        conditions += draw_conditions(sheet, rng, rest)[: sheet.level.conditions - 1]
    forms = ("which {c} are there{w} ?", "list every {c}{w} .")
    return _listing(sheet, rng, target, conditions, forms)


def _listing(
    sheet: Sheet,
    rng: random.Random,
    target: str,
    conditions: list[Condition],
    forms: tuple[str, ...],
) -> Problem | None:
    rows = chosen(sheet, conditions)
    if not 1 <= len(rows) <= (3 if sheet.level.easy else 8):
        return None
    spoken, sql = where(conditions)
    return Problem(
        rng.choice(forms).format(c=target, w=spoken),
        f"SELECT {name_of(target)} FROM {name_of(sheet.table.name)}{sql}",
        tuple(sheet.cell(row, target) for row in rows),
    )


def _counting(sheet: Sheet, rng: random.Random) -> Problem | None:
    conditions = draw_conditions(sheet, rng, (*sheet.categories, *sheet.numbers))
    spoken, sql = where(conditions)
    table = name_of(sheet.table.name)
    if sheet.level.messy and rng.random() < 0.3 and sheet.categories:
        column = rng.choice(sheet.categories)
        different = {fold(sheet.cell(row, column)) for row in chosen(sheet, conditions)}
        return Problem(
            f"how many different {column} are there{spoken} ?",
            f"SELECT COUNT(DISTINCT {name_of(column)}) FROM {table}{sql}",
            (str(len(different)),),
        )
    form = rng.choice(("how many rows are there{w} ?", "count the rows{w} ."))
    return Problem(
        form.format(w=spoken),
        f"SELECT COUNT(*) FROM {table}{sql}",
        (str(len(chosen(sheet, conditions))),),
    )


def _ranking(sheet: Sheet, rng: random.Random) -> Problem | None:
    number, highest = rng.choice(sheet.numbers), rng.random() < 0.5
    target = rng.choice((sheet.key, *sheet.categories))
    conditions: list[Condition] = []
    if not sheet.level.easy and rng.random() < 0.5 and sheet.categories:
        conditions = draw_conditions(sheet, rng, sheet.categories)
    rows = sorted(chosen(sheet, conditions), key=lambda r: sheet.value(r, number), reverse=highest)
    place = rng.randint(2, 3) if sheet.level.messy and rng.random() < 0.4 else 1
    if len(rows) <= place:
        return None
    sizes = [sheet.value(row, number) for row in rows[: place + 1]]
    if len(set(sizes)) != len(sizes):
        return None
    spoken, sql = where(conditions)
    superlative = "highest" if highest else "lowest"
    rank = ("", "", "second ", "third ")[place]
    forms = ("which {c} has the {s} {n}{w} ?", "give the {c} with the {s} {n}{w} .")
    offset = f" OFFSET {place - 1}" if place > 1 else ""
    return Problem(
        rng.choice(forms).format(c=target, s=rank + superlative, n=number, w=spoken),
        f"SELECT {name_of(target)} FROM {name_of(sheet.table.name)}{sql} ORDER BY "
        f"{numeric(sheet, number)}{' DESC' if highest else ''} LIMIT 1{offset}",
        (sheet.cell(rows[place - 1], target),),
    )


_AGGREGATES: dict[str, tuple[tuple[str, ...], Callable[[list[float]], float]]] = {
    "SUM": (("sum", "total"), sum),
    "MIN": (("smallest", "lowest"), min),
    "MAX": (("largest", "highest"), max),
    "AVG": (("average", "mean"), lambda values: sum(values) / len(values)),
}


def _aggregation(function: str) -> Callable[[Sheet, random.Random], Problem | None]:
    names, compute = _AGGREGATES[function]

    def build(sheet: Sheet, rng: random.Random) -> Problem | None:
        column = rng.choice(sheet.numbers)
        conditions: list[Condition] = []
        if sheet.categories and rng.random() < 0.7:
            conditions = draw_conditions(sheet, rng, sheet.categories)
        values = [sheet.value(row, column) for row in chosen(sheet, conditions)]
        if not values:
            return None
        result = compute(values)
        if sheet.level.easy and (result * 2) % 1:
            return None  # an average with a long tail of digits
        spoken, sql = where(conditions)
        word = rng.choice(names)
        of = f"{word} of {column}" if function == "SUM" else f"{word} {column}"
        form = rng.choice(("what is the {o}{w} ?", "give the {o}{w} ."))
        argument = numeric(sheet, column)
        return Problem(
            form.format(o=of, w=spoken),
            f"SELECT {function}({argument}) FROM {name_of(sheet.table.name)}{sql}",
            (number_text(result),),
        )

    return build


def _new_value(sheet: Sheet, column: str, rng: random.Random) -> str:
    level = sheet.level
    if column in sheet.numbers:
        return str(rng.randint(10, 99) if level.easy else rng.randint(1, 5_000))
    if column == sheet.key:
        pool: Sequence[str] = words.EASY_NAMES if level.easy else words.RICH_KEYS
        taken = {fold(value) for value in sheet.values(column)}
        return rng.choice([value for value in pool if fold(value) not in taken] or ["zz"])
    return rng.choice((words.EASY_CATEGORIES if level.easy else words.RICH_CATEGORIES)[column])


def _insert(sheet: Sheet, rng: random.Random) -> Problem | None:
    columns = list(sheet.table.columns)
    if not sheet.level.easy and rng.random() < 0.4:
        columns = [c for c in columns if c == sheet.key or rng.random() < 0.7]
    values = {column: _new_value(sheet, column, rng) for column in columns}
    pairs = " , ".join(f"{column} {said(sheet, value)}" for column, value in values.items())
    form = rng.choice(("insert a row with {p} .", "add a row with {p} ."))
    table = name_of(sheet.table.name)
    if sheet.level.easy:
        # As in the question, each value stands behind its column: a small policy can copy that,
        # while the n-th of a list of values takes counting.
        listed = ", ".join(f"{name_of(c)} = {quoted(value)}" for c, value in values.items())
        sql = f"INSERT INTO {table} SET {listed}"
    else:
        named = ", ".join(name_of(column) for column in columns)
        listed = ", ".join(quoted(value) for value in values.values())
        sql = f"INSERT INTO {table} ({named}) VALUES ({listed})"
    new = tuple(values.get(column) for column in sheet.table.columns)
    return Problem(
        form.format(p=pairs),
        sql,
        rows=(*sheet.table.rows, new),  # type: ignore[arg-type]
    )


def _update(sheet: Sheet, rng: random.Random) -> Problem | None:
    columns = [*sheet.categories, *sheet.numbers]
    count = 1 if sheet.level.easy or len(columns) < 3 else rng.randint(1, 2)
    targets = rng.sample(columns, count)
    rest = [c for c in (sheet.key, *sheet.categories) if c not in targets]
    conditions = draw_conditions(sheet, rng, rest)
    rows = chosen(sheet, conditions)
    new = {target: _new_value(sheet, target, rng) for target in targets}
    spoken, sql = where(conditions)
    if not rows or all(sheet.cell(row, t) == v for row in rows for t, v in new.items()):
        return None
    form = rng.choice(("set {p}{w} .", "change {p}{w} ."))
    pairs = " and ".join(f"{target} to {said(sheet, value)}" for target, value in new.items())
    assignments = ", ".join(f"{name_of(t)} = {quoted(v)}" for t, v in new.items())
    return Problem(
        form.format(p=pairs, w=spoken),
        f"UPDATE {name_of(sheet.table.name)} SET {assignments}{sql}",
        rows=tuple(
            tuple(new.get(c, cell) for c, cell in zip(sheet.table.columns, row, strict=True))
            if row in rows else row
            for row in sheet.table.rows
        ),
    )  # fmt: skip


def _delete(sheet: Sheet, rng: random.Random) -> Problem | None:
    conditions = draw_conditions(sheet, rng, (sheet.key, *sheet.categories, *sheet.numbers))
    rows = chosen(sheet, conditions)
    if not 1 <= len(rows) < len(sheet.table.rows):
        return None
    spoken, sql = where(conditions)
    form = rng.choice(("delete the rows{w} .", "remove the rows{w} ."))
    return Problem(
        form.format(w=spoken),
        f"DELETE FROM {name_of(sheet.table.name)}{sql}",
        rows=tuple(row for row in sheet.table.rows if row not in rows),
    )


BUILDERS: dict[str, Callable[[Sheet, random.Random], Problem | None]] = {
    "INSERT": _insert,
    "UPDATE": _update,
    "DELETE": _delete,
    "other": _other,
    "counting": _counting,
    "comparison": _comparison,
    "ranking": _ranking,
    **{f"aggregation-{function}": _aggregation(function) for function in _AGGREGATES},
}

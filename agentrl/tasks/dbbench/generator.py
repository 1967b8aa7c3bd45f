"""Seeded tables and questions of every kind, in the shape of the official records.

Invariants: a sample is a function of (seed, level, split, index) alone (invariant 8). A table's
content decides by hash which split may hold it, so no table is in two splits; all splits share
one vocabulary. The label comes from the meaning of the question, computed on the rows here, never
from running the gold statement: that both agree is a test. The label is not part of the prompt.

Level `easy` writes values in quotes everywhere (question, SQL, result and answer), with numbers of
two digits, so that text order is number order and every name is the same token wherever it stands.
`medium` has numbers of any width, which MySQL compares as text unless told otherwise, names with
spaces and two conditions; `hard` adds thousands separators, accents, quotes in values, missing values,
ties, three conditions and statements of other forms.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from agentrl.errors import ConfigError
from agentrl.randomness import stream
from agentrl.tasks.dbbench import vocabulary as words
from agentrl.tasks.dbbench.backend import hash_rows
from agentrl.tasks.dbbench.mysql_semantics.collation import fold
from agentrl.tasks.dbbench.mysql_semantics.syntax import RESERVED
from agentrl.tasks.dbbench.records import Record, Table

Row = tuple[str, ...]
KINDS = (
    "INSERT", "UPDATE", "DELETE", "other", "counting", "comparison", "ranking",
    "aggregation-SUM", "aggregation-MIN", "aggregation-MAX", "aggregation-AVG",
)  # fmt: skip
BUCKETS = {"train": range(0, 80), "dev": range(80, 90), "std": range(90, 100)}
"""Hundredths of all tables that belong to each split."""


@dataclass(frozen=True, slots=True)
class Level:
    rows: tuple[int, int]
    columns: tuple[int, int]
    conditions: int
    easy: bool = False
    messy: bool = False


LEVELS = {
    "easy": Level(rows=(5, 12), columns=(3, 5), conditions=1, easy=True),
    "medium": Level(rows=(10, 20), columns=(4, 6), conditions=2),
    "hard": Level(rows=(20, 40), columns=(6, 9), conditions=3, messy=True),
}


def check_level(name: str) -> Level:
    if name not in LEVELS:
        raise ConfigError(
            f"config key 'tasks.dbbench.level': {name!r} is no level; choose one of {', '.join(LEVELS)}"
        )
    return LEVELS[name]


@lru_cache(maxsize=1024)
def generate(level_name: str, split: str, index: int, seed: int = 0) -> Record:
    """The record of one sample."""
    level = check_level(level_name)
    kind = stream(seed, "dbbench-kind", level_name, split, index).choice(KINDS)
    rng = stream(seed, "dbbench", level_name, split, index)
    while True:
        sheet = make_sheet(level, rng)
        if bucket(sheet.table) not in BUCKETS[split]:
            continue
        problem = _BUILDERS[kind](sheet, rng)
        if problem is not None:
            return _record(kind, sheet, problem)


def bucket(table: Table) -> int:
    """0-99 by the table's content, whatever the order of its rows."""
    parts = [table.name, "\x1f".join(table.columns), *sorted("\x1f".join(r) for r in table.rows)]
    digest = hashlib.blake2b("\x1e".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % 100


# -- tables


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table and what its columns are for."""

    level: Level
    table: Table
    key: str
    """Column without two equal values."""
    categories: tuple[str, ...]
    numbers: tuple[str, ...]

    def cell(self, row: Row, column: str) -> str:
        return row[self.table.columns.index(column)]

    def value(self, row: Row, column: str) -> float:
        """A number cell as the number that it writes."""
        return float(self.cell(row, column).replace(",", ""))

    def values(self, column: str) -> list[str]:
        """Distinct values of a column, in the order of the rows."""
        return list(dict.fromkeys(self.cell(row, column) for row in self.table.rows))


def make_sheet(level: Level, rng: random.Random) -> Sheet:
    count = rng.randint(*level.rows)
    width = rng.randint(*level.columns)
    pool: dict[str, tuple[str, ...]]
    numbers_pool: tuple[str, ...]
    if level.easy:
        name, key = rng.choice(words.EASY_TABLES), "name"
        pool, numbers_pool = words.EASY_CATEGORIES, words.EASY_NUMBERS
    else:
        name, key = rng.choice(words.RICH_TABLES), rng.choice(words.RICH_KEY_COLUMNS)
        pool, numbers_pool = words.RICH_CATEGORIES, words.RICH_NUMBERS
    number_count = rng.randint(1, max(1, (width - 1) // 2))
    numbers = tuple(rng.sample(numbers_pool, number_count))
    categories = tuple(rng.sample(sorted(pool), width - 1 - number_count))
    others = [*categories, *numbers]
    rng.shuffle(others)
    columns = (key, *others)
    cells = {key: _keys(level, count, rng)}
    for column in categories:
        few = rng.sample(pool[column], min(len(pool[column]), rng.randint(2, 4)))
        cells[column] = [rng.choice(few) for _ in range(count)]
        if level.messy and rng.random() < 0.5:
            cells[column] = [
                rng.choice(words.MISSING) if rng.random() < 0.1 else value
                for value in cells[column]
            ]
    for column in numbers:
        cells[column] = _numbers(level, column, count, rng)
    rows = tuple(tuple(cells[column][i] for column in columns) for i in range(count))
    return Sheet(level, Table(name, columns, rows), key, categories, numbers)


def _keys(level: Level, count: int, rng: random.Random) -> list[str]:
    if level.easy:
        return rng.sample(words.EASY_NAMES, count)
    pool = words.RICH_KEYS + (words.MESSY_KEYS if level.messy else ())
    return rng.sample(pool, count)


def _numbers(level: Level, column: str, count: int, rng: random.Random) -> list[str]:
    if level.easy:
        return [str(n) for n in rng.sample(range(10, 100), count)]
    if column == "Year built":
        return [str(rng.randint(1850, 2020)) for _ in range(count)]
    largest = rng.choice((60, 2_000, 90_000))
    comma = level.messy and largest > 2_000
    return [f"{n:,}" if comma else str(n) for n in rng.choices(range(1, largest), k=count)]


# -- questions: conditions in words, in SQL and in Python


@dataclass(frozen=True, slots=True)
class Condition:
    words: str
    sql: str
    holds: Callable[[Row], bool]


@dataclass(frozen=True, slots=True)
class Problem:
    question: str
    sql: str
    answers: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    """The table after a mutation."""


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


def number_text(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.4f}".rstrip("0")


# -- the kinds


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


_BUILDERS: dict[str, Callable[[Sheet, random.Random], Problem | None]] = {
    "INSERT": _insert,
    "UPDATE": _update,
    "DELETE": _delete,
    "other": _other,
    "counting": _counting,
    "comparison": _comparison,
    "ranking": _ranking,
    **{f"aggregation-{function}": _aggregation(function) for function in _AGGREGATES},
}


def _record(kind: str, sheet: Sheet, problem: Problem) -> Record:
    mutates = not problem.answers
    headers = ",".join(sheet.table.columns)
    return Record(
        kind=kind,
        question=problem.question,
        hint=(
            f"The name of this table is {sheet.table.name}, and the headers of this table are "
            f"{headers}."
        ),
        tables=(sheet.table,),
        label=(problem.sql,) if mutates else problem.answers,
        answer_md5=hash_rows(problem.rows) if mutates else "",
        sql=problem.sql,
    )

"""Tables of the generator: their size and style by level, and what each column is for."""

from __future__ import annotations

import random
from dataclasses import dataclass

from agentrl.errors import ConfigError
from agentrl.tasks.dbbench import vocabulary as words
from agentrl.tasks.dbbench.records import Table

Row = tuple[str, ...]


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

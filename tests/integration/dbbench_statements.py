"""Random MySQL statements over a table of awkward values, for comparing back ends.

Left out is where MariaDB itself differs from MySQL 8 (reserved words, CAST AS INT, error 1093), what
is undefined (the order of ties), and the formatting of doubles that MariaDB derives from nested IFs.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from agentrl.tasks.dbbench.records import Table

COLUMNS = ("id", "name", "City", "qty", "price", "when", "x y")
VALUES: dict[str, tuple[str, ...]] = {
    "id": tuple(map(str, range(1, 31))),
    "name": (
        "Anna", "anna", "Éva", "eva", "bob ", "Bob", "Ømer", "straße", "STRASSE", "a_b", "a%b",
        "O'Neil", "Zoë", "10", "9", "—", "-", "",
    ),
    "City": ("Paris", "paris", "Rome", "São Paulo", "Sao Paulo", "New York", "N/A", ""),
    "qty": (
        "1", "2", "10", "9", "007", "3.5", "-4", "1,200", "12 kg", "abc", "", "1e2", " 5", "+7", ".5",
    ),
    "price": ("£8.5m", "8.50", "8.5", "100", "99.99", "0", "-1", "2500", "5%"),
    "when": (
        "2020-01-02", "2019-12-31", "2020-02-29", "January 5, 2020", "5 March 1999", "1999", "",
    ),
    "x y": ("a", "b", "c", "A", "B"),
}  # fmt: skip
LITERALS = (
    "'Anna'", "'anna'", "'10'", "'abc'", "''", "'2020-01-02'", "5", "10", "3.5", "0", "-2", "1e1",
    "NULL", "'12 kg'", "'%a%'", "100", "2.50", "'São Paulo'", "'rome'",
)  # fmt: skip


def random_table(rng: random.Random) -> Table:
    rows = tuple(
        tuple(rng.choice(VALUES[column]) for column in COLUMNS) for _ in range(rng.randint(4, 14))
    )
    return Table("T1", COLUMNS, rows)


class Statements:
    """One statement a call; the same seed gives the same statements."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def pick(self, *forms: Callable[[], str]) -> str:
        return self.rng.choice(forms)()

    def column(self) -> str:
        return f"`{self.rng.choice(COLUMNS)}`"

    def literal(self) -> str:
        return self.rng.choice(LITERALS)

    def leaf(self) -> str:
        return self.pick(self.column, self.column, self.literal)

    def number(self, depth: int) -> str:
        if depth <= 0 or self.rng.random() < 0.25:
            return self.leaf()

        def part() -> str:
            return self.number(depth - 1)

        return self.pick(
            lambda: f"({part()} + {part()})", lambda: f"({part()} - {part()})",
            lambda: f"({part()} * {part()})", lambda: f"({part()} / {part()})",
            lambda: f"({part()} DIV {part()})", lambda: f"({part()} % {part()})",
            lambda: f"ROUND({part()}, {self.rng.randint(0, 2)})", lambda: f"ABS({part()})",
            lambda: f"FLOOR({part()})", lambda: f"CEIL({part()})", lambda: f"TRUNCATE({part()}, 1)",
            lambda: f"SIGN({part()})", lambda: f"CAST({part()} AS SIGNED)",
            lambda: f"CAST({part()} AS DECIMAL(10,2))", lambda: f"LENGTH({self.text(depth - 1)})",
            lambda: f"CHAR_LENGTH({self.text(depth - 1)})",
            lambda: f"LOCATE({self.literal()}, {self.text(depth - 1)})",
            lambda: f"IFNULL({self.column()}, {part()})",
        )  # fmt: skip

    def text(self, depth: int) -> str:
        if depth <= 0 or self.rng.random() < 0.25:
            return self.leaf()

        def part() -> str:
            return self.text(depth - 1)

        return self.pick(
            lambda: f"CONCAT({part()}, {part()})", lambda: f"UPPER({part()})",
            lambda: f"LOWER({part()})", lambda: f"LEFT({part()}, {self.rng.randint(0, 4)})",
            lambda: f"RIGHT({part()}, 2)", lambda: f"TRIM({part()})", lambda: f"REVERSE({part()})",
            lambda: f"SUBSTRING({part()}, {self.rng.randint(-3, 4)}, {self.rng.randint(1, 3)})",
            lambda: f"REPLACE({part()}, ',', '')", lambda: f"LPAD({part()}, 5, '*')",
            lambda: f"SUBSTRING_INDEX({part()}, ' ', {self.rng.choice((1, -1, 2))})",
            lambda: f"COALESCE({part()}, {part()})", lambda: f"CONCAT_WS('-', {part()}, {part()})",
            lambda: f"CASE WHEN {self.condition(depth - 1)} THEN {self.column()} ELSE {self.column()} END",
            lambda: f"NULLIF({self.column()}, {part()})", lambda: f"MD5({part()})",
        )  # fmt: skip

    def expression(self, depth: int) -> str:
        return self.number(depth) if self.rng.random() < 0.5 else self.text(depth)

    def condition(self, depth: int) -> str:
        def part() -> str:
            return self.expression(depth - 1)

        operator = self.rng.choice(("=", "<>", "<", ">", "<=", ">=", "<=>"))
        if depth <= 0 or self.rng.random() < 0.4:
            return f"{part()} {operator} {part()}"
        like = self.rng.choice(("%a%", "a_", "an%", "%", "_", "a\\_b", "10", "S%o", "%é%"))
        regexp = self.rng.choice(("^a", "[0-9]+$", "a|b", "^.{3}", "n+", "[[:alpha:]] "))
        return self.pick(
            lambda: f"({self.condition(depth - 1)} AND {self.condition(depth - 1)})",
            lambda: f"({self.condition(depth - 1)} OR {self.condition(depth - 1)})",
            lambda: f"NOT ({self.condition(depth - 1)})",
            lambda: f"{self.text(depth - 1)} LIKE '{like}'",
            lambda: f"{self.text(depth - 1)} REGEXP '{regexp}'",
            lambda: f"{part()} IN ({self.literal()}, {self.literal()}, {self.literal()})",
            lambda: f"{self.leaf()} NOT IN ({self.literal()}, {self.literal()})",
            lambda: f"{part()} IS {self.rng.choice(('', 'NOT '))}NULL",
            lambda: f"{part()} BETWEEN {self.literal()} AND {self.literal()}",
        )  # fmt: skip

    def aggregate(self) -> str:
        return self.pick(
            lambda: "COUNT(*)", lambda: f"COUNT({self.expression(1)})",
            lambda: f"SUM({self.number(1)})", lambda: f"AVG({self.number(1)})",
            lambda: f"MIN({self.expression(1)})", lambda: f"MAX({self.expression(1)})",
            lambda: f"COUNT(DISTINCT {self.text(1)})", lambda: f"SUM({self.column()})",
            lambda: f"AVG({self.column()})", lambda: f"SUM({self.condition(1)})",
        )  # fmt: skip

    def select(self) -> str:
        where = f" WHERE {self.condition(2)}" if self.rng.random() < 0.6 else ""
        column, every = self.column(), ", ".join(f"BINARY `{c}`" for c in COLUMNS)
        extreme = self.rng.choice(("MAX", "MIN", "AVG"))
        comparison = self.rng.choice("=<>")
        return self.pick(
            lambda: f"SELECT {self.expression(2)}, {self.expression(2)} FROM T1{where}",
            lambda: f"SELECT {self.aggregate()}, {self.aggregate()} FROM T1{where}",
            lambda: f"SELECT LOWER({column}) AS g, {self.aggregate()} FROM T1{where} GROUP BY {column} ORDER BY {column}",
            lambda: f"SELECT {column}, COUNT(*) AS c FROM T1 GROUP BY {column} HAVING c > 1 ORDER BY {column}",
            lambda: f"SELECT {self.column()} FROM T1{where} ORDER BY {column}, {every} LIMIT {self.rng.randint(1, 4)}",
            lambda: f"SELECT `id` FROM T1 ORDER BY {column} + 0 DESC, {every} LIMIT 2",
            lambda: f"SELECT COUNT(*) FROM T1 WHERE {column} {comparison} (SELECT {extreme}({column}) FROM T1)",
            lambda: f"SELECT COUNT(*) FROM T1 a JOIN T1 b ON a.{column} = b.{self.column()}",
            lambda: f"SELECT COUNT(*) FROM T1 WHERE {column} IN (SELECT {self.column()} FROM T1 WHERE {self.condition(1)})",
            lambda: f"SELECT COUNT(DISTINCT {column}) FROM (SELECT * FROM T1{where}) x",
        )  # fmt: skip

    def change(self) -> str:
        where = f" WHERE {self.condition(2)}" if self.rng.random() < 0.7 else ""
        return self.pick(
            lambda: f"UPDATE T1 SET {self.column()} = {self.expression(2)}{where}",
            lambda: f"UPDATE T1 SET `x y` = {self.text(1)}, `qty` = {self.number(1)}{where}",
            lambda: (
                f"INSERT INTO T1 (`name`, `qty`) VALUES ({self.literal()}, {self.literal()} + 1)"
            ),
            lambda: f"INSERT INTO T1 (`City`) VALUES (CONCAT({self.literal()}, {self.literal()}))",
            lambda: (
                f"DELETE FROM T1 WHERE {self.condition(2)} AND {self.column()} = {self.literal()}"
            ),
        )

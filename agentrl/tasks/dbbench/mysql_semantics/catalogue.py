"""What is stored: the tables of one database, and the statements that ask for them.

`SHOW`, `DESCRIBE`, `information_schema` and the statements without effect here (`USE`, `COMMIT`, …)
are answered from the catalogue alone. All columns are TEXT and may be NULL, as the task makes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentrl.tasks.dbbench.mysql_semantics.builtins import DATABASE
from agentrl.tasks.dbbench.mysql_semantics.errors import SqlError, unsupported
from agentrl.tasks.dbbench.mysql_semantics.scope import Column
from agentrl.tasks.dbbench.mysql_semantics.text_functions import like
from agentrl.tasks.dbbench.mysql_semantics.types import INT, TEXT, quote, words

CHARSET, COLLATION, ENGINE = "utf8mb4", "utf8mb4_0900_ai_ci", "InnoDB"
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class StoredTable:
    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The tables by name; names are case-sensitive, as on a Linux server."""

    tables: tuple[StoredTable, ...]

    def table(self, name: str) -> StoredTable:
        for table in self.tables:
            if table.name == name:
                return table
        raise SqlError(1146, f"Table '{DATABASE}.{name}' doesn't exist")


def column_rows(table: StoredTable) -> Rows:
    """Rows of DESCRIBE: Field, Type, Null, Key, Default, Extra."""
    return [(name, "text", "YES", "", None, "") for name in table.columns]


def create_statement(table: StoredTable) -> str:
    columns = ",\n".join(f"  `{name.replace('`', '``')}` text" for name in table.columns)
    quoted = table.name.replace("`", "``")
    return f"CREATE TABLE `{quoted}` (\n{columns}\n) ENGINE={ENGINE} DEFAULT CHARSET={CHARSET} COLLATE={COLLATION}"


# -- information_schema

_WHOLE_NUMBERS = words("VERSION TABLE_ROWS ORDINAL_POSITION CHARACTER_MAXIMUM_LENGTH")
_VIEWS = {
    "TABLES": """TABLE_CATALOG TABLE_SCHEMA TABLE_NAME TABLE_TYPE ENGINE VERSION ROW_FORMAT TABLE_ROWS
        TABLE_COLLATION TABLE_COMMENT""",
    "COLUMNS": """TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME ORDINAL_POSITION COLUMN_DEFAULT
        IS_NULLABLE DATA_TYPE CHARACTER_MAXIMUM_LENGTH CHARACTER_SET_NAME COLLATION_NAME
        COLUMN_TYPE COLUMN_KEY EXTRA COLUMN_COMMENT""",
    "SCHEMATA": """CATALOG_NAME SCHEMA_NAME DEFAULT_CHARACTER_SET_NAME DEFAULT_COLLATION_NAME
        SQL_PATH""",
}
_INFORMATION = {
    view: tuple(Column(name, INT if name in _WHOLE_NUMBERS else TEXT) for name in names.split())
    for view, names in _VIEWS.items()
}


def _information_rows(catalogue: Catalogue, view: str) -> Rows:
    if view == "SCHEMATA":
        return [("def", DATABASE, CHARSET, COLLATION, None)]
    if view == "TABLES":
        return [
            ("def", DATABASE, t.name, "BASE TABLE", ENGINE, 10, "Dynamic", None, COLLATION, "")
            for t in catalogue.tables
        ]
    return [
        ("def", DATABASE, table.name, name, i, None, "YES", "text", 65535, CHARSET, COLLATION,
         "text", "", "", "")
        for table in catalogue.tables
        for i, name in enumerate(table.columns, 1)
    ]  # fmt: skip


def information_schema(catalogue: Catalogue, name: str) -> tuple[tuple[Column, ...], str]:
    """(columns, SQLite query) of one view; 1109 where there is none of that name."""
    view = name.upper()
    if view not in _INFORMATION:
        raise SqlError(1109, f"Unknown table '{view}' in information_schema")
    columns = _INFORMATION[view]
    selects = []
    for row in _information_rows(catalogue, view):
        parts = (
            f'{_value(value)} AS "{column.name}"'
            for value, column in zip(row, columns, strict=True)
        )
        selects.append("SELECT " + ", ".join(parts))
    return columns, " UNION ALL ".join(selects)


def _value(value: str | int | None) -> str:
    if value is None:
        return "NULL"
    return quote(value) if isinstance(value, str) else str(value)


# -- statements answered from the catalogue

_NAME = r"(?:`((?:[^`]|``)+)`|([A-Za-z0-9_$]+))"
_FROM_DATABASE = rf"(?:\s+(?:FROM|IN)\s+{_NAME})?"
_FILTER = r"(?:\s+(LIKE)\s+(?:'([^']*)'|\"([^\"]*)\"))?"
Answer = Callable[[Catalogue, "re.Match[str]"], Rows]


def _named(match: re.Match[str], first: int = 1) -> str:
    quoted, plain = match.group(first), match.group(first + 1)
    return quoted.replace("``", "`") if quoted is not None else plain


def _table_argument(catalogue: Catalogue, match: re.Match[str]) -> StoredTable:
    """`t`, or `db.t` in groups 1 to 4."""
    if match.group(3) is not None or match.group(4) is not None:
        if _named(match) != DATABASE:
            raise SqlError(1049, f"Unknown database '{_named(match)}'")
        return catalogue.table(_named(match, 3))
    return catalogue.table(_named(match))


def _filtered(rows: Rows, match: re.Match[str], group: int) -> Rows:
    if match.group(group) is None:
        return rows
    pattern = match.group(group + 1)
    wanted = pattern if pattern is not None else match.group(group + 2)
    return [row for row in rows if like(str(row[0]), wanted)]


def _show_tables(catalogue: Catalogue, match: re.Match[str]) -> Rows:
    full = match.group(1) is not None
    names = sorted(table.name for table in catalogue.tables)
    rows = [(name, "BASE TABLE") if full else (name,) for name in names]
    return _filtered(rows, match, 4)


def _show_columns(catalogue: Catalogue, match: re.Match[str]) -> Rows:
    rows = _filtered(column_rows(catalogue.table(_named(match, 2))), match, 6)
    if match.group(1) is None:
        return rows
    privileges = "select,insert,update,delete"
    return [(r[0], r[1], COLLATION, *r[2:], privileges, "") for r in rows]


def _describe(catalogue: Catalogue, match: re.Match[str]) -> Rows:
    rows = column_rows(_table_argument(catalogue, match))
    wanted = match.group(5) if match.group(5) is not None else match.group(6)
    return [r for r in rows if wanted is None or r[0].lower() == wanted.lower()]


def _show_create(catalogue: Catalogue, match: re.Match[str]) -> Rows:
    table = _table_argument(catalogue, match)
    return [(table.name, create_statement(table))]


def _show_index(catalogue: Catalogue, match: re.Match[str]) -> Rows:
    catalogue.table(_named(match))
    return []


def _use(catalogue: Catalogue, match: re.Match[str]) -> Rows:
    if _named(match) != DATABASE:
        raise SqlError(
            1044, f"Access denied for user 'agent'@'localhost' to database '{_named(match)}'"
        )
    return []


def _nothing(catalogue: Catalogue, match: re.Match[str]) -> Rows:
    return []


def _denied(catalogue: Catalogue, match: re.Match[str]) -> Rows:
    raise SqlError(
        1142, f"{match.group(1).upper()} command denied to user 'agent'@'localhost' for table"
    )


def _unsupported(catalogue: Catalogue, match: re.Match[str]) -> Rows:
    raise unsupported(f"{match.group(1).upper()} in the embedded database")


_STATEMENTS: tuple[tuple[re.Pattern[str], Answer], ...] = tuple(
    (re.compile(rf"\s*{pattern}\s*;?\s*", re.IGNORECASE | re.DOTALL), answer)
    for pattern, answer in (
        (rf"SHOW\s+(FULL\s+)?TABLES{_FROM_DATABASE}{_FILTER}", _show_tables),
        (
            rf"SHOW\s+(FULL\s+)?(?:COLUMNS|FIELDS)\s+(?:FROM|IN)\s+{_NAME}{_FROM_DATABASE}{_FILTER}",
            _show_columns,
        ),
        (rf"SHOW\s+CREATE\s+TABLE\s+{_NAME}(?:\s*\.\s*{_NAME})?", _show_create),
        (r"SHOW\s+(?:DATABASES|SCHEMAS)", lambda c, m: [(DATABASE,), ("information_schema",)]),
        (rf"SHOW\s+(?:INDEX|INDEXES|KEYS)\s+(?:FROM|IN)\s+{_NAME}", _show_index),
        (r"SHOW\s+(?:WARNINGS|ERRORS)", _nothing),
        (r"(SHOW)\b.*", _unsupported),
        (
            r"(EXPLAIN|DESCRIBE|DESC)\s+(?:ANALYZE|EXTENDED|FORMAT|SELECT|INSERT|UPDATE|DELETE|WITH|"
            r"REPLACE|TABLE)\b.*",
            _unsupported,
        ),
        (rf"(?:DESCRIBE|DESC|EXPLAIN)\s+{_NAME}(?:\s*\.\s*{_NAME})?(?:\s+{_NAME})?", _describe),
        (r"(EXPLAIN|DESCRIBE|DESC|ANALYZE)\b.*", _unsupported),
        (rf"USE\s+{_NAME}", _use),
        (r"(?:COMMIT|ROLLBACK|BEGIN)(?:\s+WORK)?", _nothing),
        (r"START\s+TRANSACTION", _nothing),
        (
            r"(SET|PREPARE|EXECUTE|DEALLOCATE|HANDLER|DO|CALL|HELP|CHECK|OPTIMIZE|REPAIR)\b.*",
            _unsupported,
        ),
        (
            r"(CREATE|DROP|ALTER|RENAME|TRUNCATE|GRANT|REVOKE|LOAD|LOCK|UNLOCK|FLUSH|KILL|INSTALL|"
            r"UNINSTALL|RESET|SHUTDOWN|PURGE|CHANGE|SAVEPOINT|RELEASE|IMPORT|CLONE|RESTART|XA)\b.*",
            _denied,
        ),
    )
)
_FIRST_WORDS = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|REPLACE|\()", re.IGNORECASE)


def answer(catalogue: Catalogue, sql: str) -> Rows | None:
    """Rows of a statement that needs no table's content; None where it is not one of those."""
    if _FIRST_WORDS.match(sql):
        return None
    for pattern, respond in _STATEMENTS:
        match = pattern.fullmatch(sql)
        if match is not None:
            return respond(catalogue, match)
    return None

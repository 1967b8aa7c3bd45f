"""Names: which columns a clause can see, and of which type they are.

Column names ignore case, table names and aliases do not (MySQL on Linux). Errors 1052 and 1054 name
the clause as MySQL 8 does ("field list", "where clause", …).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agentrl.tasks.dbbench.mysql_semantics.errors import SqlError, unknown_column
from agentrl.tasks.dbbench.mysql_semantics.types import Expr, Type, identifier


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: Type
    base: bool = False
    """Of a stored table, so that SQLite knows its collation."""


@dataclass(frozen=True, slots=True)
class Query:
    """A compiled SELECT or set operation; its SQLite columns are named `names`."""

    sql: str
    columns: tuple[Column, ...]
    names: tuple[str, ...]
    single_row: bool = False
    limited: bool = False


@dataclass(slots=True)
class Source:
    """One item of FROM: its alias and its columns in order."""

    alias: str
    columns: tuple[Column, ...]
    database: str | None = None
    positions: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.positions = {}
        for i, column in enumerate(self.columns):
            self.positions.setdefault(column.name.lower(), i)

    def find(self, name: str) -> Expr | None:
        position = self.positions.get(name.lower())
        return None if position is None else self.at(position)

    def at(self, position: int) -> Expr:
        column = self.columns[position]
        sql = f"{identifier(self.alias)}.{identifier(column.name)}"
        return Expr(sql, column.type, column=column.base)


@dataclass(slots=True)
class Scope:
    """What one SELECT, UPDATE or DELETE can name."""

    outer: Scope | None = None
    sources: list[Source] = field(default_factory=list)
    merged: dict[str, Source] = field(default_factory=dict)
    """Columns joined by USING or NATURAL: name -> the source that an unqualified name means."""
    hidden: set[tuple[int, str]] = field(default_factory=set)
    """(source number, name) of the other half of a merged column: left out of `*`."""
    aliases: dict[str, list[Expr]] = field(default_factory=dict)
    """Names of the select list, lower case."""
    assigned: dict[str, Expr] = field(default_factory=dict)
    """New values of an UPDATE: MySQL lets later assignments see them."""
    named_windows: dict[str, Any] = field(default_factory=dict)
    clause: str = "field list"
    aggregates_allowed: bool = False
    inside_aggregate: bool = False
    aggregates: int = 0
    alias_first: bool = False
    """ORDER BY looks at aliases before columns, GROUP BY and HAVING after, the others never."""
    alias_last: bool = False

    def column(self, name: str, table: str | None, database: str | None) -> Expr:
        """Resolve a name here or in an enclosing query; 1052, 1054."""
        shown = ".".join(part for part in (database, table, name) if part)
        scope: Scope | None = self
        while scope is not None:
            found = scope._find(name, table)
            if found is not None:
                return found
            scope = scope.outer
        raise unknown_column(shown, self.clause)

    def _find(self, name: str, table: str | None) -> Expr | None:
        if table is None and name.lower() in self.assigned:
            return self.assigned[name.lower()]
        if table is None and self.alias_first:
            alias = self._alias(name)
            if alias is not None:
                return alias
        found = self._source_column(name, table)
        if found is None and table is None and self.alias_last:
            found = self._alias(name)
        return found

    def _alias(self, name: str) -> Expr | None:
        meanings = self.aliases.get(name.lower(), [])
        if len({meaning.sql for meaning in meanings}) > 1:
            raise SqlError(1052, f"Column '{name}' in {self.clause} is ambiguous")
        return meanings[0] if meanings else None

    def _source_column(self, name: str, table: str | None) -> Expr | None:
        if table is None and name.lower() in self.merged:
            return self.merged[name.lower()].find(name)
        matches = [
            found
            for source in self.sources
            if (table is None or source.alias == table) and (found := source.find(name)) is not None
        ]
        if len(matches) > 1:
            raise SqlError(1052, f"Column '{name}' in {self.clause} is ambiguous")
        return matches[0] if matches else None

    def star(self, table: str | None) -> Iterator[tuple[str, Expr]]:
        """(name, column) pairs that `*` or `table.*` stands for; 1051, 1096."""
        chosen = [(i, s) for i, s in enumerate(self.sources) if table is None or s.alias == table]
        if not chosen:
            if table is None:
                raise SqlError(1096, "No tables used")
            raise SqlError(1051, f"Unknown table '{table}'")
        for i, source in chosen:
            for position, column in enumerate(source.columns):
                if table is None and (i, column.name.lower()) in self.hidden:
                    continue
                yield column.name, source.at(position)

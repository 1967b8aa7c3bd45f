"""From one MySQL statement to a plan for SQLite: `plan(sql, catalogue)`.

What a plan may do is what an agent may do: read, and change rows. No statement of the agent reaches
SQLite as text of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlglot import exp

from agentrl.tasks.dbbench.mysql_semantics.builtins import DATABASE
from agentrl.tasks.dbbench.mysql_semantics.catalogue import Catalogue, StoredTable, answer
from agentrl.tasks.dbbench.mysql_semantics.errors import (
    SqlError,
    syntax_error,
    unknown_column,
    unsupported,
)
from agentrl.tasks.dbbench.mysql_semantics.queries import Queries
from agentrl.tasks.dbbench.mysql_semantics.scope import Column, Scope, Source
from agentrl.tasks.dbbench.mysql_semantics.syntax import check_name, parse, prepared
from agentrl.tasks.dbbench.mysql_semantics.types import (
    NULL,
    TEXT,
    Expr,
    Type,
    identifier,
    stored,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """`rows` is the answer itself; else run `sql`: its columns have `types`, or it changes rows."""

    sql: str = ""
    types: tuple[Type, ...] = ()
    changes: bool = False
    rows: tuple[tuple[Any, ...], ...] | None = None


@lru_cache(maxsize=2048)
def plan(sql: str, catalogue: Catalogue) -> Plan:
    """Compile one statement; raises `SqlError` with what MySQL would answer."""
    rows = answer(catalogue, sql)
    if rows is not None:
        return Plan(rows=tuple(rows))
    source = prepared(sql)
    try:
        return _Statements(source, catalogue).statement(parse(source))
    except RecursionError:
        raise SqlError(1436, "Thread stack overrun: statement is nested too deeply") from None


class _Statements(Queries):
    def statement(self, node: Any) -> Plan:
        if isinstance(node, exp.Insert):
            return self._insert(node)
        if isinstance(node, exp.Update):
            return self._update(node)
        if isinstance(node, exp.Delete):
            return self._delete(node)
        if isinstance(node, (exp.Select, exp.SetOperation, exp.Subquery)):
            query = self.query(node, None)
            return Plan(query.sql, tuple(column.type for column in query.columns))
        raise syntax_error(self.source)

    def _target(self, node: Any) -> tuple[StoredTable, str]:
        """The stored table that a change names, and its alias."""
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise self.not_understood(node)
        if node.args.get("joins"):
            raise unsupported("changes of several tables in the embedded database")
        database = node.args.get("db")
        if database is not None and database.name != DATABASE:
            raise SqlError(
                1142, f"UPDATE command denied to user 'agent'@'localhost' for table '{node.name}'"
            )
        name = check_name(node.this, self.source) if database is None else str(node.this.this)
        alias = node.args.get("alias")
        table = self.catalogue.table(name)
        return table, check_name(alias.this, self.source) if alias is not None else name

    def _refuse(self, node: Any, *keys: str) -> None:
        for key in keys:
            part = node.args.get(key)
            if part:
                raise self.not_understood(part[0] if isinstance(part, list) else part)

    # -- INSERT

    def _insert(self, node: Any) -> Plan:
        self._refuse(node, "returning", "overwrite", "by_name", "where", "partition", "with_")
        target = node.this
        named = target.expressions if isinstance(target, exp.Schema) else None
        table, _ = self._target(target.this if isinstance(target, exp.Schema) else target)
        columns = list(table.columns)
        if named:
            columns = [self._column_name(part, table) for part in named]
            for i, name in enumerate(columns):
                if name in columns[:i]:
                    raise SqlError(1110, f"Column '{name}' specified twice")
        head = f"INSERT INTO main.{identifier(table.name)}"
        listed = "(" + ", ".join(identifier(name) for name in columns) + ")"
        values = node.args.get("expression")
        if not isinstance(values, exp.Values):
            return Plan(f"{head} {listed} {self._selected(values, len(columns))}", changes=True)
        rows = [
            self._value_row(row, i, columns, table) for i, row in enumerate(values.expressions, 1)
        ]
        if rows == [""]:
            return Plan(f"{head} DEFAULT VALUES", changes=True)
        if "" in rows:
            everything = ", ".join(["NULL"] * len(columns))
            rows = [row or f"({everything})" for row in rows]
        return Plan(f"{head} {listed} VALUES {', '.join(rows)}", changes=True)

    def _column_name(self, node: Any, table: StoredTable) -> str:
        part = node.this if isinstance(node, exp.Column) else node
        if not isinstance(part, exp.Identifier):
            raise self.not_understood(node)
        name = check_name(part, self.source)
        for column in table.columns:
            if column.lower() == name.lower():
                return column
        raise unknown_column(name, "field list")

    def _value_row(self, node: Any, number: int, columns: list[str], table: StoredTable) -> str:
        items = node.expressions if isinstance(node, exp.Tuple) else [node]
        if not items and (number == 1 or len(columns) == len(table.columns)):
            return ""
        if len(items) != len(columns):
            raise SqlError(1136, f"Column count doesn't match value count at row {number}")
        scope = Scope(assigned={name.lower(): Expr("NULL", NULL) for name in table.columns})
        values = []
        for item, column in zip(items, columns, strict=True):
            value = self._assigned(item, scope)
            scope.assigned[column.lower()] = Expr(value, TEXT)
            values.append(value)
        return "(" + ", ".join(values) + ")"

    def _assigned(self, node: Any, scope: Scope) -> str:
        default = isinstance(node, exp.Var) or (
            isinstance(node, exp.Column) and not node.args.get("table")
            and isinstance(node.this, exp.Identifier) and not node.this.args.get("quoted")
        )  # fmt: skip
        if default and node.name.upper() == "DEFAULT":
            return "NULL"
        return stored(self.expression(node, scope))

    def _selected(self, node: Any, count: int) -> str:
        if node is None:
            raise syntax_error("")
        query = self.query(node, None)
        if len(query.columns) != count:
            raise SqlError(1136, "Column count doesn't match value count at row 1")
        values = ", ".join(
            stored(Expr(identifier(name), column.type))
            for name, column in zip(query.names, query.columns, strict=True)
        )
        return f"SELECT {values} FROM ({query.sql})"

    # -- UPDATE and DELETE

    def _update(self, node: Any) -> Plan:
        self._refuse(node, "from_", "returning", "with_")
        table, alias = self._target(node.this)
        self.tables.target = table.name
        scope = self._row_scope(table, alias)
        assignments: dict[str, str] = {}
        for part in node.expressions:
            if not isinstance(part, exp.EQ) or not isinstance(part.this, exp.Column):
                raise self.not_understood(part)
            qualifier = part.this.args.get("table")
            if qualifier is not None and qualifier.name != alias:
                raise unknown_column(f"{qualifier.name}.{part.this.name}", "field list")
            column = self._column_name(part.this, table)
            value = self._assigned(part.expression, scope)
            scope.assigned[column.lower()] = Expr(f"({value})", TEXT)
            assignments[column] = value
        listed = ", ".join(f"{identifier(c)} = {value}" for c, value in assignments.items())
        condition = self._condition(node, table, alias)
        head = f"UPDATE main.{identifier(table.name)} AS {identifier(alias)}"
        return Plan(f"{head} SET {listed}{condition}", changes=True)

    def _delete(self, node: Any) -> Plan:
        self._refuse(node, "returning", "with_", "using")
        table, alias = self._target(node.this)
        for named in node.args.get("tables") or ():
            if named.name not in (table.name, alias):
                raise SqlError(1109, f"Unknown table '{named.name}' in MULTI DELETE")
        self.tables.target = table.name
        condition = self._condition(node, table, alias)
        head = f"DELETE FROM main.{identifier(table.name)} AS {identifier(alias)}"
        return Plan(f"{head}{condition}", changes=True)

    def _row_scope(self, table: StoredTable, alias: str) -> Scope:
        columns = tuple(Column(name, TEXT, base=True) for name in table.columns)
        return Scope(sources=[Source(alias, columns)])

    def _condition(self, node: Any, table: StoredTable, alias: str) -> str:
        scope = self._row_scope(table, alias)
        where = self._where(node, scope)
        scope.aggregates_allowed = False
        order = self._order(node, scope, [])
        limit, _ = self._limit(node)
        clause = f" WHERE {where}" if where else ""
        if not limit:
            return clause
        taken = {name.lower() for name in table.columns}
        rowid = next(name for name in ("rowid", "oid", "_rowid_") if name not in taken)
        quoted = identifier(alias)
        return (
            f" WHERE {quoted}.{rowid} IN (SELECT {quoted}.{rowid} FROM "
            f"main.{identifier(table.name)} AS {quoted}{clause}{order}{limit})"
        )

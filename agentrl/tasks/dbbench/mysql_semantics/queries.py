"""SELECT, set operations and common table expressions.

Every output column gets a SQLite name (`c0`, `c1`, … or, where somebody outside names it, its own), so
nothing depends on how SQLite would name it. The order of name checks is MySQL's: tables, select
list, ON and WHERE, GROUP BY, HAVING, ORDER BY.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlglot import exp

from agentrl.tasks.dbbench.mysql_semantics.builtins import DATABASE
from agentrl.tasks.dbbench.mysql_semantics.catalogue import Catalogue, information_schema
from agentrl.tasks.dbbench.mysql_semantics.errors import (
    SqlError,
    syntax_error,
    unknown_column,
    unsupported,
)
from agentrl.tasks.dbbench.mysql_semantics.expressions import Expressions
from agentrl.tasks.dbbench.mysql_semantics.scope import Column, Query, Scope, Source
from agentrl.tasks.dbbench.mysql_semantics.syntax import check_name, near
from agentrl.tasks.dbbench.mysql_semantics.types import (
    TEXT,
    Expr,
    convert,
    identifier,
    keyed,
    truth,
    unify,
)

_SELECT_PARTS = frozenset({
    "expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset",
    "distinct", "with_", "windows", "locks", "hint", "operation_modifiers", "kind",
})  # fmt: skip
_BIGGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Item:
    """One column of the select list."""

    name: str
    value: Expr
    explicit: bool
    """Named by AS (or a plain column), so that other clauses can refer to it."""


@dataclass(slots=True)
class _Tables:
    """Common table expressions in sight, and how deep in derived tables we are."""

    ctes: dict[str, Query] = field(default_factory=dict)
    derived: int = 0
    target: str | None = None
    """Table that the statement changes: a subquery may not read it directly (1093)."""


class _Joined(NamedTuple):
    join: Any
    sql: str
    merged: str


class Queries(Expressions):
    def __init__(self, sql: str, catalogue: Catalogue) -> None:
        super().__init__(sql)
        self.catalogue = catalogue
        self.tables = _Tables()

    def query(self, node: Any, outer: Scope | None, named: bool = False) -> Query:
        """Compile a query expression; `named` keeps the columns' own names (1060 if two agree)."""
        ctes = dict(self.tables.ctes)
        try:
            prefix = self._with(node.args.get("with_"), outer)
            if isinstance(node, exp.Select):
                query = self._select(node, outer, named)
            elif isinstance(node, exp.SetOperation):
                query = self._set_operation(node, outer, named)
            elif isinstance(node, exp.Subquery):
                query = self._parenthesised(node, outer, named)
            else:
                raise self.not_understood(node)
        finally:
            self.tables.ctes = ctes
        if not prefix:
            return query
        return Query(
            prefix + query.sql, query.columns, query.names, query.single_row, query.limited
        )

    # -- WITH

    def _with(self, node: Any, outer: Scope | None) -> str:
        if node is None:
            return ""
        recursive = bool(node.args.get("recursive"))
        parts = []
        for cte in node.expressions:
            alias = cte.args["alias"]
            name = check_name(alias.this, self.source)
            wanted = [column.name for column in alias.args.get("columns") or ()]
            self.tables.derived += 1
            if recursive and isinstance(cte.this, exp.Union):
                query = self._recursive(cte.this, name, wanted)
            else:
                query = self._renamed(self.query(cte.this, outer, named=not wanted), wanted)
            self.tables.derived -= 1
            self.tables.ctes[name] = query
            columns = ", ".join(identifier(column.name) for column in query.columns)
            parts.append(f"{identifier(name)}({columns}) AS ({query.sql})")
        return f"WITH {'RECURSIVE ' if recursive else ''}{', '.join(parts)} "

    def _recursive(self, union: Any, name: str, wanted: list[str]) -> Query:
        """Anchor and step as they are: SQLite wants the table's own name in the step's FROM."""
        anchor = self._renamed(self.query(union.this, None, named=not wanted), wanted)
        self.tables.ctes[name] = anchor
        step = self.query(union.expression, None)
        if len(step.columns) != len(anchor.columns):
            raise SqlError(1222, "The used SELECT statements have a different number of columns")
        word = "UNION" if union.args.get("distinct") else "UNION ALL"
        return Query(f"{anchor.sql} {word} {step.sql}", anchor.columns, anchor.names)

    def _renamed(self, query: Query, names: list[str]) -> Query:
        if not names:
            return query
        if len(names) != len(query.columns):
            raise SqlError(
                1353, "In definition of view, derived table or common table expression, SELECT "
                "list and column names list have different column counts"
            )  # fmt: skip
        columns = tuple(Column(n, c.type) for n, c in zip(names, query.columns, strict=True))
        return Query(query.sql, columns, query.names, query.single_row, query.limited)

    # -- SELECT

    def _select(self, node: Any, outer: Scope | None, named: bool) -> Query:
        for key, part in node.args.items():
            if part and key not in _SELECT_PARTS:
                raise self.not_understood(part[0] if isinstance(part, list) else part)
        if not node.expressions:
            raise near(self.source, self.source.upper().find("SELECT") + 6)
        scope = Scope(outer=outer, aggregates_allowed=True)
        joins = self._from(node, scope)
        for window in node.args.get("windows") or ():
            scope.named_windows[str(window.name).lower()] = window
        items = self._items(node.expressions, scope, named)
        from_sql = self._join(joins, scope)
        where = self._where(node, scope)
        scope.aliases = {}
        for item in items:
            if item.explicit:
                scope.aliases.setdefault(item.name.lower(), []).append(item.value)
        group = self._group(node, scope, items)
        having = self._having(node, scope)
        order = self._order(node, scope, items)
        limit, single = self._limit(node)
        if having and not group and not scope.aggregates:
            where, having = f"{where} AND {having}" if where else having, ""

        names = self._names(items, named)
        distinct = bool(node.args.get("distinct"))
        columns = ", ".join(
            f"{keyed(item.value) if distinct else item.value.sql} AS {identifier(name)}"
            for item, name in zip(items, names, strict=True)
        )
        sql = "".join((
            "SELECT DISTINCT " if distinct else "SELECT ", columns, from_sql,
            f" WHERE {where}" if where else "",
            f" GROUP BY {group}" if group else "",
            f" HAVING {having}" if having else "",
            order, limit,
        ))  # fmt: skip
        return Query(
            sql,
            tuple(Column(item.name, item.value.type) for item in items),
            tuple(names),
            single_row=single or (scope.aggregates > 0 and not group),
            limited=bool(limit),
        )

    def _names(self, items: list[_Item], named: bool) -> list[str]:
        if not named:
            return [f"c{i}" for i in range(len(items))]
        names = [item.name for item in items]
        seen: set[str] = set()
        for name in names:
            if name.lower() in seen:
                raise SqlError(1060, f"Duplicate column name '{name}'")
            seen.add(name.lower())
        return names

    def _items(self, nodes: list[Any], scope: Scope, named: bool) -> list[_Item]:
        scope.clause = "field list"
        items: list[_Item] = []
        for i, node in enumerate(nodes):
            if isinstance(node, exp.Star):
                if i > 0 or node.args.get("except_") or node.args.get("replace"):
                    raise near(self.source, max(0, self.source.find("*", 1)))
                items += [_Item(name, value, True) for name, value in scope.star(None)]
            elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
                table = node.args["table"].name
                items += [_Item(name, value, True) for name, value in scope.star(table)]
            elif isinstance(node, exp.Alias):
                alias = node.args["alias"]
                items.append(
                    _Item(check_name(alias, self.source), self.expression(node.this, scope), True)
                )
            else:
                value = self.expression(node, scope)
                if isinstance(node, exp.Column):
                    items.append(_Item(str(node.this.this), value, True))
                else:
                    items.append(_Item(_text_of(node) if named else "", value, False))
        return items

    # -- FROM

    def _from(self, node: Any, scope: Scope) -> list[_Joined]:
        """Fill the scope's sources, with the columns that USING and NATURAL merge."""
        source = node.args.get("from_")
        if source is None:
            return []
        if isinstance(source.this, exp.Table) and source.this.name.upper() == "DUAL":
            return []
        out: list[_Joined] = []
        nodes = [(None, source.this), *((join, join.this) for join in node.args.get("joins") or ())]
        for join, item in nodes:
            compiled, sql = self._source(item)
            if any(other.alias == compiled.alias for other in scope.sources):
                raise SqlError(1066, f"Not unique table/alias: '{compiled.alias}'")
            scope.sources.append(compiled)
            merged = self._merge(join, scope) if join is not None else ""
            out.append(_Joined(join, sql, merged))
            for nested in item.args.get("joins") or ():
                nodes.append((nested, nested.this))
        return out

    def _merge(self, join: Any, scope: Scope) -> str:
        """The condition that USING or NATURAL stands for."""
        *earlier, source = scope.sources
        names = [column.name for column in join.args.get("using") or ()]
        if str(join.args.get("method") or "").upper() == "NATURAL":
            names = [
                c.name for c in source.columns if any(s.find(c.name) is not None for s in earlier)
            ]
        conditions = []
        for name in names:
            left_source = next((s for s in earlier if s.find(name) is not None), None)
            left = left_source.find(name) if left_source is not None else None
            right = source.find(name)
            if left_source is None or left is None or right is None:
                raise unknown_column(name, "from clause")
            conditions.append(f"{keyed(left)} = {right.sql}")
            kept = source if _side(join) == "RIGHT" else left_source
            dropped = left_source if kept is source else source
            scope.merged[name.lower()] = kept
            scope.hidden.add((scope.sources.index(dropped), name.lower()))
        return " AND ".join(conditions)

    def _source(self, node: Any) -> tuple[Source, str]:
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            return self._table(node)
        if isinstance(node, exp.Subquery):
            if isinstance(node.this, exp.Table):
                if node.this.args.get("joins"):
                    raise unsupported("joins in parentheses in the embedded database")
                return self._table(node.this)
            return self._derived(node)
        raise self.not_understood(node)

    def _table(self, node: Any) -> tuple[Source, str]:
        database = node.args.get("db")
        name = check_name(node.this, self.source) if database is None else str(node.this.this)
        alias_node = node.args.get("alias")
        alias = check_name(alias_node.this, self.source) if alias_node is not None else name
        if database is not None and database.name.lower() == "information_schema":
            columns, sql = information_schema(self.catalogue, name)
            return Source(alias, columns), f"({sql}) AS {identifier(alias)}"
        if database is not None and database.name != DATABASE:
            raise SqlError(
                1142, f"SELECT command denied to user 'agent'@'localhost' for table '{name}'"
            )
        if database is None and name in self.tables.ctes:
            query = self.tables.ctes[name]
            return Source(alias, query.columns), f"{identifier(name)} AS {identifier(alias)}"
        if name == self.tables.target and not self.tables.derived:
            raise SqlError(
                1093, f"You can't specify target table '{name}' for update in FROM clause"
            )
        stored = self.catalogue.table(name)
        columns = tuple(Column(column, TEXT, base=True) for column in stored.columns)
        return Source(alias, columns), f"main.{identifier(name)} AS {identifier(alias)}"

    def _derived(self, node: Any) -> tuple[Source, str]:
        alias = node.args.get("alias")
        if alias is None or alias.this is None:
            raise SqlError(1248, "Every derived table must have its own alias")
        name = check_name(alias.this, self.source)
        wanted = [column.name for column in alias.args.get("columns") or ()]
        self.tables.derived += 1
        query = self._renamed(self.query(node.this, None, named=not wanted), wanted)
        self.tables.derived -= 1
        sql = query.sql
        if wanted:
            picked = ", ".join(
                f"{identifier(old)} AS {identifier(column.name)}"
                for old, column in zip(query.names, query.columns, strict=True)
            )
            sql = f"SELECT {picked} FROM ({sql})"
        return Source(name, query.columns), f"({sql}) AS {identifier(name)}"

    def _join(self, joins: list[_Joined], scope: Scope) -> str:
        if not joins:
            return ""
        parts = [f" FROM {joins[0].sql}"]
        scope.clause, scope.aggregates_allowed = "on clause", False
        sources = scope.sources
        for i, (join, sql, merged) in enumerate(joins[1:], 1):
            method = str(join.args.get("method") or "").upper()
            kind = str(join.args.get("kind") or "").upper()
            if _side(join) not in ("", "LEFT", "RIGHT") or method not in ("", "NATURAL") or kind not in (
                "", "CROSS", "INNER", "OUTER", "STRAIGHT_JOIN", "STRAIGHT"
            ):  # fmt: skip
                raise self.not_understood(join)
            scope.sources = sources[: i + 1]
            on = join.args.get("on")
            condition = truth(self.expression(on, scope)) if on is not None else merged
            if _side(join) and not condition and method != "NATURAL":
                raise syntax_error("")
            parts.append(f" {_side(join)} JOIN {sql}" + (f" ON {condition}" if condition else ""))
        scope.sources, scope.aggregates_allowed = sources, True
        return "".join(parts)

    # -- the other clauses

    def _where(self, node: Any, scope: Scope) -> str:
        where = node.args.get("where")
        if where is None:
            return ""
        scope.clause, scope.aggregates_allowed = "where clause", False
        sql = truth(self.expression(where.this, scope))
        scope.aggregates_allowed = True
        return sql

    def _group(self, node: Any, scope: Scope, items: list[_Item]) -> str:
        group = node.args.get("group")
        if group is None:
            return ""
        if any(part for key, part in group.args.items() if key not in ("expressions", "all")):
            raise unsupported("GROUP BY … WITH ROLLUP in the embedded database")
        scope.clause, scope.alias_last, scope.aggregates_allowed = "group statement", True, False
        keys = [keyed(self._positioned(part, scope, items)) for part in group.expressions]
        scope.alias_last, scope.aggregates_allowed = False, True
        return ", ".join(keys)

    def _having(self, node: Any, scope: Scope) -> str:
        having = node.args.get("having")
        if having is None:
            return ""
        scope.clause, scope.alias_last = "having clause", True
        sql = truth(self.expression(having.this, scope))
        scope.alias_last = False
        return sql

    def _order(self, node: Any, scope: Scope, items: list[_Item]) -> str:
        order = node.args.get("order")
        if order is None:
            return ""
        scope.clause, scope.alias_first = "order clause", True
        keys = []
        for part in order.expressions:
            key = self._positioned(part.this, scope, items)
            keys.append(keyed(key) + (" DESC" if part.args.get("desc") else ""))
        scope.alias_first = False
        return " ORDER BY " + ", ".join(keys)

    def _positioned(self, node: Any, scope: Scope, items: list[_Item]) -> Expr:
        """A key of GROUP BY or ORDER BY; a whole number is a position in the select list."""
        if isinstance(node, exp.Literal) and str(node.this).isdecimal() and not node.is_string:
            written = str(node.this)
            if not 1 <= int(written) <= len(items):
                raise unknown_column(written, scope.clause)
            value = items[int(written) - 1].value
        else:
            value = self.expression(node, scope)
        # a number that stands alone would be a position to SQLite
        alone = value.sql.strip("()+- ").isdecimal()
        return value._replace(sql=f"({value.sql} + 0)") if alone else value

    def _limit(self, node: Any) -> tuple[str, bool]:
        limit, offset = node.args.get("limit"), node.args.get("offset")
        if limit is None:
            if offset is not None:
                raise self.not_understood(offset.expression)
            return "", False
        if not isinstance(limit, exp.Limit):
            raise self.not_understood(limit)
        count = self._count(limit.expression)
        sql = f" LIMIT {count}"
        if offset is not None:
            sql += f" OFFSET {self._count(offset.expression)}"
        return sql, count <= 1

    def _count(self, node: Any) -> int:
        if not isinstance(node, exp.Literal) or node.is_string or not str(node.this).isdecimal():
            raise self.not_understood(node)
        return min(int(node.this), _BIGGEST)

    # -- parentheses and set operations

    def _parenthesised(self, node: Any, outer: Scope | None, named: bool) -> Query:
        inner = self.query(node.this, outer, named)
        return self._ordered(node, inner)

    def _ordered(self, node: Any, inner: Query) -> Query:
        """ORDER BY and LIMIT around a whole query: they see its output columns only."""
        columns = tuple(
            Column(name, column.type)
            for name, column in zip(inner.names, inner.columns, strict=True)
        )
        values = [Expr(identifier(c.name), c.type) for c in columns]
        items = [
            _Item(column.name, value, True)
            for column, value in zip(inner.columns, values, strict=True)
        ]
        scope = Scope()
        for item in items:
            scope.aliases.setdefault(item.name.lower(), []).append(item.value)
        order = self._order(node, scope, items)
        limit, single = self._limit(node)
        if not order and not limit:
            return inner
        listed = ", ".join(value.sql for value in values)
        sql = f"SELECT {listed} FROM ({inner.sql}){order}{limit}"
        return Query(sql, inner.columns, inner.names, single or inner.single_row, bool(limit))

    def _set_operation(self, node: Any, outer: Scope | None, named: bool) -> Query:
        word = {exp.Union: "UNION", exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}.get(
            type(node)
        )
        if word is None:
            raise self.not_understood(node)
        distinct = bool(node.args.get("distinct"))
        if word == "UNION":
            word = "UNION ALL"
        elif not distinct:
            raise unsupported(f"{word} ALL in the embedded database")
        left = self.query(node.this, outer, named)
        right = self.query(node.expression, outer)
        if len(left.columns) != len(right.columns):
            raise SqlError(1222, "The used SELECT statements have a different number of columns")
        kinds = [unify((a.type, b.type)) for a, b in zip(left.columns, right.columns, strict=True)]
        sql = f"{_branch(left, kinds, left.names)} {word} {_branch(right, kinds, left.names)}"
        if word == "UNION ALL" and distinct:
            # keeps the first of equal rows, where SQLite's UNION keeps any
            listed = ", ".join(
                keyed(Expr(identifier(n), k)) + f" AS {identifier(n)}"
                for n, k in zip(left.names, kinds, strict=True)
            )
            sql = f"SELECT DISTINCT {listed} FROM ({sql})"
        columns = tuple(Column(c.name, k) for c, k in zip(left.columns, kinds, strict=True))
        return self._ordered(node, Query(sql, columns, left.names))


def _text_of(node: Any) -> str:
    """Name of an expression without AS: its own text."""
    return str(node.this) if isinstance(node, exp.Literal) else str(node.sql(dialect="mysql"))


def _side(join: Any) -> str:
    return str(join.args.get("side") or "").upper()


def _branch(query: Query, kinds: list[Any], names: tuple[str, ...]) -> str:
    parts = []
    for old, column, kind, name in zip(query.names, query.columns, kinds, names, strict=True):
        converted = convert(Expr(identifier(old), column.type), kind)
        parts.append(f"{keyed(Expr(converted, kind))} AS {identifier(name)}")
    return f"SELECT {', '.join(parts)} FROM ({query.sql})"

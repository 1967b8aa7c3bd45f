"""Comparisons, IN, LIKE and subqueries in conditions: MySQL compares by the types of both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from agentrl.tasks.dbbench.mysql_semantics import types
from agentrl.tasks.dbbench.mysql_semantics.errors import (
    SqlError,
    unsupported,
)
from agentrl.tasks.dbbench.mysql_semantics.scope import Query, Scope
from agentrl.tasks.dbbench.mysql_semantics.types import (
    INT,
    TEXT,
    Expr,
    Kind,
    comparable,
    number,
    number_type,
    quote,
    text,
    truth,
)

if TYPE_CHECKING:
    from agentrl.tasks.dbbench.mysql_semantics.expressions import Expressions

COMPARISONS: dict[type, str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "IS",
}  # fmt: skip


def comparison(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    operator = COMPARISONS[type(node)]
    other = node.expression
    if isinstance(other, (exp.Any, exp.All)):
        return quantified(compiler, node.this, operator, other, scope)
    if isinstance(node.this, exp.Tuple) or isinstance(node.expression, exp.Tuple):
        return row_comparison(compiler, node, operator, scope)
    left = compiler.expression(node.this, scope)
    right = compiler.expression(node.expression, scope)
    return compare(left, operator, right)


def row_comparison(compiler: Expressions, node: Any, operator: str, scope: Scope) -> Expr:
    left, right = row(compiler, node.this, scope), row(compiler, node.expression, scope)
    if len(left) != len(right):
        raise _column_count(len(left))
    if operator not in ("=", "<>", "IS"):
        raise unsupported("ordering of rows in the embedded database")
    same = " AND ".join(
        compare(a, "IS" if operator == "IS" else "=", b).sql
        for a, b in zip(left, right, strict=True)
    )
    return Expr(f"(NOT ({same}))" if operator == "<>" else f"({same})", INT)


def row(compiler: Expressions, node: Any, scope: Scope) -> list[Expr]:
    if not isinstance(node, exp.Tuple):
        raise _column_count(1)
    return [compiler.expression(item, scope) for item in node.expressions]


def quantified(
    compiler: Expressions, left_node: Any, operator: str, node: Any, scope: Scope
) -> Expr:
    """`x > ALL (…)`, `x = ANY (…)`, with SQL's three-valued logic."""
    left = compiler.expression(left_node, scope)
    query = compiler.query(_inner(node.this), scope)
    _one_column(query)
    _no_limit(query)
    other = Expr(types.identifier(query.names[0]), query.columns[0].type)
    holds = compare(left, operator, other).sql
    null = f"count({other.sql}) < count(*) OR {left.sql} IS NULL"
    if isinstance(node, exp.All):
        case = f"WHEN sum(NOT {holds}) > 0 THEN 0 WHEN {null} THEN NULL ELSE 1"
        empty = 1
    else:
        case = f"WHEN sum({holds}) > 0 THEN 1 WHEN {null} THEN NULL ELSE 0"
        empty = 0
    return Expr(f"(SELECT CASE WHEN count(*) = 0 THEN {empty} {case} END FROM ({query.sql}))", INT)


def is_(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    inner = compiler.expression(node.this, scope)
    if isinstance(node.expression, exp.Null):
        return Expr(f"({inner.sql} IS NULL)", INT)
    if isinstance(node.expression, exp.Boolean):
        word = "TRUE" if node.expression.this else "FALSE"
        return Expr(f"({truth(inner)} IS {word})", INT)
    raise compiler.not_understood(node.expression)


def between(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    value, low, high = (
        compiler.expression(part, scope)
        for part in (node.this, node.args["low"], node.args["high"])
    )
    kinds = {value.type.kind, low.type.kind, high.type.kind}
    if Kind.TEXT in kinds and kinds & {Kind.INT, Kind.DECIMAL, Kind.DOUBLE}:
        value, low, high = (Expr(number(e), number_type(e.type)) for e in (value, low, high))
    return Expr(f"({compare(value, '>=', low).sql} AND {compare(value, '<=', high).sql})", INT)


def in_(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    if node.args.get("query") is not None:
        return in_query(compiler, node, scope)
    if not node.expressions:
        raise compiler.not_understood(node)
    if isinstance(node.this, exp.Tuple):
        left = row(compiler, node.this, scope)
        options = []
        for item in node.expressions:
            right = row(compiler, item, scope)
            if len(right) != len(left):
                raise _column_count(len(left))
            pairs = zip(left, right, strict=True)
            options.append("(" + " AND ".join(compare(a, "=", b).sql for a, b in pairs) + ")")
        return Expr("(" + " OR ".join(options) + ")", INT)
    value = compiler.expression(node.this, scope)
    items = [compiler.expression(item, scope) for item in node.expressions]
    if all(item.type.kind in (value.type.kind, Kind.NULL) and not item.binary for item in items):
        listed = ", ".join(item.sql for item in items)
        return Expr(f"({types.keyed(value)} IN ({listed}))", INT)
    return Expr("(" + " OR ".join(compare(value, "=", item).sql for item in items) + ")", INT)


def in_query(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    query = compiler.query(_inner(node.args["query"]), scope)
    _no_limit(query)
    if isinstance(node.this, exp.Tuple):
        values = row(compiler, node.this, scope)
    else:
        values = [compiler.expression(node.this, scope)]
    if len(values) != len(query.columns):
        raise _column_count(len(values))
    left_sides, right_sides = [], []
    for value, column, name in zip(values, query.columns, query.names, strict=True):
        other = Expr(types.identifier(name), column.type)
        left, right = comparable(value, other)
        if value.type.kind is Kind.TEXT and column.type.kind is Kind.TEXT:
            left, right = types.keyed(value), other.sql
        left_sides.append(left)
        right_sides.append(right)
    left_sql = left_sides[0] if len(left_sides) == 1 else f"({', '.join(left_sides)})"
    return Expr(f"({left_sql} IN (SELECT {', '.join(right_sides)} FROM ({query.sql})))", INT)


def exists(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    return Expr(f"EXISTS ({compiler.query(_inner(node.this), scope).sql})", INT)


def scalar_query(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    """A subquery used as a value; two rows are error 1242, which SQLite would not notice."""
    query = compiler.query(_inner(node), scope)
    _one_column(query)
    kind = query.columns[0].type
    if query.single_row:
        return Expr(f"({query.sql})", kind)
    name = types.identifier(query.names[0])
    return Expr(f"(SELECT my_one_row({name}) FROM ({query.sql}))", kind)


def like(compiler: Expressions, node: Any, scope: Scope, escape: str = "\\") -> Expr:
    value = compiler.expression(node.this, scope)
    pattern = compiler.expression(node.expression, scope)
    binary = int(value.binary or pattern.binary)
    sql = f"my_like({text(value)}, {text(pattern)}, {quote(escape)}, {binary})"
    return Expr(f"(NOT {sql})" if node.args.get("negate") else sql, INT)


def escaped_like(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    if not isinstance(node.this, exp.Like) or not node.expression.is_string:
        raise compiler.not_understood(node)
    escape = str(node.expression.this)
    if len(escape) > 1:
        raise SqlError(1210, "Incorrect arguments to ESCAPE")
    return like(compiler, node.this, scope, escape)


def regexp(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    value, pattern = (
        compiler.expression(node.this, scope),
        compiler.expression(node.expression, scope),
    )
    sql = f"my_regexp({text(value)}, {text(pattern)})"
    return Expr(f"(NOT {sql})" if node.args.get("negate") else sql, INT)


def soundex(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    return Expr(f"my_soundex({text(compiler.expression(node.this, scope))})", TEXT)


def _inner(node: Any) -> Any:
    while isinstance(node, exp.Subquery) and not _has_modifiers(node):
        node = node.this
    return node


def _has_modifiers(node: Any) -> bool:
    return any(node.args.get(key) is not None for key in ("order", "limit", "offset", "with_"))


def compare(left: Expr, operator: str, right: Expr) -> Expr:
    a, b = comparable(left, right)
    return Expr(f"({a} {operator} {b})", INT)


def _one_column(query: Query) -> None:
    if len(query.columns) != 1:
        raise _column_count(1)


def _column_count(count: int) -> SqlError:
    return SqlError(1241, f"Operand should contain {count} column(s)")


def _no_limit(query: Query) -> None:
    if query.limited:
        raise unsupported("LIMIT & IN/ALL/ANY/SOME subquery")

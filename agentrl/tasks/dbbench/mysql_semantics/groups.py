"""Aggregates and window functions: their types, and where MySQL allows them.

SUM and AVG of text are DOUBLE, of whole numbers DECIMAL (AVG with four more digits), as MySQL's
result types say. An aggregate in WHERE, or inside another, is error 1111.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from agentrl.tasks.dbbench.mysql_semantics import types
from agentrl.tasks.dbbench.mysql_semantics.errors import (
    SqlError,
    syntax_error,
    unsupported,
    wrong_arguments,
    wrong_group_function,
)
from agentrl.tasks.dbbench.mysql_semantics.types import (
    DOUBLE,
    INT,
    TEXT,
    Expr,
    Kind,
    decimal,
    double,
    keyed,
    number,
    number_type,
    quote,
    text,
)

if TYPE_CHECKING:
    from agentrl.tasks.dbbench.mysql_semantics.expressions import Expressions
    from agentrl.tasks.dbbench.mysql_semantics.scope import Scope

_SPREADS = {
    "STD": "my_deviation", "STDDEV": "my_deviation", "STDDEV_POP": "my_deviation",
    "STDDEV_SAMP": "my_sample_deviation", "VARIANCE": "my_variance", "VAR_POP": "my_variance",
    "VAR_SAMP": "my_sample_variance",
}  # fmt: skip
_BITS = {"BIT_AND": "my_bit_and", "BIT_OR": "my_bit_or", "BIT_XOR": "my_bit_xor"}
AGGREGATES = frozenset({"COUNT", "SUM", "AVG", "MIN", "MAX", *_SPREADS, *_BITS})
WINDOW_FUNCTIONS = frozenset({
    "ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST", "NTILE", "LAG", "LEAD",
    "FIRST_VALUE", "LAST_VALUE", "NTH_VALUE",
})  # fmt: skip


def aggregate(compiler: Expressions, name: str, nodes: list[Any], scope: Scope) -> Expr:
    """An aggregate over the rows of the group."""
    if not scope.aggregates_allowed or scope.inside_aggregate:
        raise wrong_group_function()
    scope.aggregates += 1
    scope.inside_aggregate = True
    try:
        return _aggregate(compiler, name, nodes, scope, windowed=False)
    finally:
        scope.inside_aggregate = False


def _aggregate(
    compiler: Expressions, name: str, nodes: list[Any], scope: Scope, windowed: bool
) -> Expr:
    distinct = len(nodes) == 1 and isinstance(nodes[0], exp.Distinct)
    if distinct:
        nodes = nodes[0].expressions
    if name == "COUNT":
        return _count(compiler, nodes, scope, distinct)
    if len(nodes) != 1 or isinstance(nodes[0], exp.Star):
        raise syntax_error(f"{name}(…)")
    value = compiler.expression(nodes[0], scope)
    word = "DISTINCT " if distinct else ""
    kind = number_type(value.type)
    if name in ("MIN", "MAX"):
        if windowed:
            return Expr(f"{name.lower()}({keyed(value)})", value.type)
        return Expr(f"my_{name.lower()}({value.sql})", value.type, binary=value.binary)
    if name in ("SUM", "AVG"):
        inner = f"{name.lower()}({word}{number(value)})"
        if kind.kind is Kind.DOUBLE:
            return Expr(inner, double(kind.scale + 4) if name == "AVG" else kind)
        result = decimal(kind.scale + 4) if name == "AVG" else decimal(kind.scale)
        if kind.kind is Kind.NULL:
            return Expr(inner, DOUBLE)
        return Expr(inner, result) if result.scale == 0 else Expr(
            f"my_decimal({inner}, {result.scale})", result
        )  # fmt: skip
    if name in _BITS:
        return Expr(f"coalesce({_BITS[name]}({types.integer(value)}), {-(name == 'BIT_AND')})", INT)
    return Expr(f"{_SPREADS[name]}({number(value)})", DOUBLE)


def _count(compiler: Expressions, nodes: list[Any], scope: Scope, distinct: bool) -> Expr:
    if len(nodes) == 1 and isinstance(nodes[0], exp.Star) and not distinct:
        return Expr("count(*)", INT)
    if not nodes or any(isinstance(node, exp.Star) for node in nodes):
        raise syntax_error(")")
    values = [compiler.expression(node, scope) for node in nodes]
    if distinct and len(values) > 1:
        return Expr(f"coalesce(my_count_distinct({', '.join(v.sql for v in values)}), 0)", INT)
    if len(values) > 1:
        raise syntax_error(", ".join(str(node) for node in nodes[1:]))
    return Expr(
        f"count(DISTINCT {keyed(values[0])})" if distinct else f"count({values[0].sql})", INT
    )


def group_concat(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    if not scope.aggregates_allowed or scope.inside_aggregate:
        raise wrong_group_function()
    scope.aggregates += 1
    scope.inside_aggregate = True
    try:
        value, orders = node.this, []
        if isinstance(value, exp.Order):
            value, orders = value.this, value.expressions
        distinct = isinstance(value, exp.Distinct)
        nodes = value.expressions if distinct or isinstance(value, exp.Concat) else [value]
        parts = [text(compiler.expression(part, scope)) for part in nodes]
        if not parts:
            raise syntax_error(")")
        joined = parts[0] if len(parts) == 1 else f"({' || '.join(parts)})"
        keys = [compiler.expression(order.this, scope) for order in orders]
        directions = "".join(
            letter.upper() if key.binary else letter
            for key, order in zip(keys, orders, strict=True)
            for letter in ("d" if order.args.get("desc") else "a")
        )
        separator = node.args.get("separator")
        quoted = quote(str(separator.this)) if separator is not None else "','"
        arguments = ", ".join([joined, quoted, f"'{directions}'", str(int(distinct))])
        arguments = ", ".join([arguments, *(key.sql for key in keys)])
        return Expr(f"my_group_concat({arguments})", TEXT)
    finally:
        scope.inside_aggregate = False


# -- windows


def window(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    if not scope.aggregates_allowed or scope.clause not in ("field list", "order clause"):
        raise SqlError(3593, "You cannot use the window function in this context.")
    function = node.this
    if not isinstance(function, exp.Anonymous):
        raise unsupported("this window function in the embedded database")
    name = str(function.this).upper()
    if name in AGGREGATES and name not in _SPREADS and name not in _BITS:
        inner = _aggregate(compiler, name, function.expressions, scope, windowed=True)
    elif name in WINDOW_FUNCTIONS:
        inner = _window_function(compiler, name, function.expressions, scope)
    else:
        raise unsupported(f"{name}() OVER in the embedded database")
    definition = _definition(compiler, node, scope)
    wrapped = _over(inner.sql, definition)
    return Expr(wrapped, inner.type)


def _over(sql: str, definition: str) -> str:
    """Put OVER behind the aggregate, inside the rounding that may stand around it."""
    if sql.startswith("my_decimal("):
        call, _, scale = sql.removeprefix("my_decimal(").rpartition(", ")
        return f"my_decimal({call} OVER ({definition}), {scale}"
    return f"{sql} OVER ({definition})"


def _window_function(compiler: Expressions, name: str, nodes: list[Any], scope: Scope) -> Expr:
    arguments = [compiler.expression(node, scope) for node in nodes]
    low, high = {
        "NTILE": (1, 1), "LAG": (1, 3), "LEAD": (1, 3), "FIRST_VALUE": (1, 1),
        "LAST_VALUE": (1, 1), "NTH_VALUE": (2, 2),
    }.get(name, (0, 0))  # fmt: skip
    if not low <= len(arguments) <= high:
        raise wrong_arguments(name)
    inner = ", ".join(argument.sql for argument in arguments)
    if name in ("LAG", "LEAD", "FIRST_VALUE", "LAST_VALUE", "NTH_VALUE"):
        kind = arguments[0].type
    else:
        kind = DOUBLE if name in ("PERCENT_RANK", "CUME_DIST") else INT
    return Expr(f"{name.lower()}({inner})", kind)


def _definition(compiler: Expressions, node: Any, scope: Scope) -> str:
    alias = node.args.get("alias")
    if alias is not None:
        named = scope.named_windows.get(str(alias.name).lower())
        if named is None:
            raise SqlError(3579, f"Window name '{alias.name}' is not defined.")
        return _definition(compiler, named, scope)
    parts: list[str] = []
    partition = [compiler.expression(item, scope) for item in node.args.get("partition_by") or ()]
    if partition:
        parts.append("PARTITION BY " + ", ".join(keyed(item) for item in partition))
    order = node.args.get("order")
    if order is not None:
        parts.append("ORDER BY " + ", ".join(
            keyed(compiler.expression(item.this, scope)) + (" DESC" if item.args.get("desc") else "")
            for item in order.expressions
        ))  # fmt: skip
    spec = node.args.get("spec")
    if spec is not None:
        parts.append(_frame(spec))
    return " ".join(parts)


def _frame(spec: Any) -> str:
    def bound(value: Any, side: Any) -> str:
        word = value.name if isinstance(value, exp.Expression) else str(value)
        if word not in ("UNBOUNDED", "CURRENT ROW") and not word.isdecimal():
            raise syntax_error(word)
        return f"{word} {side or ''}".strip()

    kind = str(spec.args.get("kind") or "ROWS")
    start = bound(spec.args.get("start"), spec.args.get("start_side"))
    if spec.args.get("end") is None:
        return f"{kind} {start}"
    return f"{kind} BETWEEN {start} AND {bound(spec.args['end'], spec.args.get('end_side'))}"

"""CASE, IF, CAST and COLLATE: expressions that choose or change a type."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from agentrl.tasks.dbbench.mysql_semantics import builtins, types
from agentrl.tasks.dbbench.mysql_semantics.errors import (
    SqlError,
    syntax_error,
)
from agentrl.tasks.dbbench.mysql_semantics.predicates import compare
from agentrl.tasks.dbbench.mysql_semantics.scope import Scope
from agentrl.tasks.dbbench.mysql_semantics.syntax import near
from agentrl.tasks.dbbench.mysql_semantics.types import (
    DATE,
    DATETIME,
    DOUBLE,
    INT,
    NULL,
    TEXT,
    TIME,
    Expr,
    Kind,
    convert,
    decimal,
    number,
    text,
    truth,
    unify,
)

if TYPE_CHECKING:
    from agentrl.tasks.dbbench.mysql_semantics.expressions import Expressions

_CAST_TARGETS = ("BIGINT", "UBIGINT", "DECIMAL", "CHAR", "NCHAR", "DATE", "DATETIME", "TIME",
                 "DOUBLE", "FLOAT", "YEAR", "BINARY", "CHARACTER_SET")  # fmt: skip


def case(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    subject = compiler.expression(node.this, scope) if node.this is not None else None
    conditions, results = [], []
    for branch in node.args["ifs"]:
        condition = compiler.expression(branch.this, scope)
        conditions.append(
            truth(condition) if subject is None else compare(subject, "=", condition).sql
        )
        results.append(compiler.expression(branch.args["true"], scope))
    default = node.args.get("default")
    other = compiler.expression(default, scope) if default is not None else Expr("NULL", NULL)
    kind = unify([result.type for result in results] + [other.type])
    branches = " ".join(
        f"WHEN {condition} THEN {convert(result, kind)}"
        for condition, result in zip(conditions, results, strict=True)
    )
    return Expr(f"CASE {branches} ELSE {convert(other, kind)} END", kind)


def if_(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    parts = [node.this, node.args.get("true"), node.args.get("false")]
    if None in parts:
        raise compiler.not_understood(node)
    return builtins.SPECIALS["IF"].build([compiler.expression(part, scope) for part in parts])


def cast(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    value = compiler.expression(node.this, scope)
    target = node.args["to"]
    name = target.this.name if isinstance(target, exp.DataType) else str(target)
    if name not in _CAST_TARGETS:
        raise bad_cast(compiler)
    sizes = [int(p.name) for p in getattr(target, "expressions", []) if p.name.isdecimal()]
    if name in ("BIGINT", "UBIGINT"):
        return Expr(types.integer(value), INT)
    if name == "DECIMAL":
        return _cast_decimal(value, sizes)
    if name in ("DOUBLE", "FLOAT"):
        return Expr(f"CAST({number(value)} AS REAL)", DOUBLE)
    if name in ("CHAR", "NCHAR", "BINARY"):
        sql = f"my_left({text(value)}, {sizes[0]})" if sizes else text(value)
        return Expr(sql, TEXT, binary=name == "BINARY")
    if name == "DATE":
        return Expr(types.day(value), DATE)
    if name == "DATETIME":
        return Expr(types.moment(value), DATETIME)
    if name == "TIME":
        return Expr(value.sql if value.type.kind is Kind.TIME else f"my_time({value.sql})", TIME)
    if name == "YEAR":
        return Expr(types.integer(value), INT)
    return Expr(text(value), TEXT)


def collate(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    inner = compiler.expression(node.this, scope)
    name = node.expression.name.lower()
    if not re.fullmatch(r"(utf8|utf8mb3|utf8mb4|latin1|binary)\w*", name):
        raise SqlError(1273, f"Unknown collation: '{name}'")
    return Expr(text(inner), TEXT, binary=name.endswith(("_bin", "binary", "_cs")))


def bad_cast(compiler: Expressions) -> SqlError:
    match = re.search(r"\bAS\s+(?=(INT|INTEGER|BIGINT|VARCHAR|TEXT|NUMERIC|STRING)\b)", compiler.source,
                      re.IGNORECASE) or re.search(r"(?<=::)", compiler.source)  # fmt: skip
    return near(compiler.source, match.end()) if match else syntax_error(compiler.source)


def _cast_decimal(value: Expr, sizes: list[int]) -> Expr:
    precision = sizes[0] if sizes else 10
    scale = sizes[1] if len(sizes) > 1 else 0
    if precision > 65 or scale > 30 or scale > precision:
        raise SqlError(1426, f"Too-big precision {precision} specified. Maximum is 65.")
    kind = decimal(scale)
    return Expr(f"my_cast_decimal({number(value)}, {precision}, {scale})", kind)

"""Intervals and the date functions whose arguments are no plain expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from agentrl.tasks.dbbench.mysql_semantics import builtins, types
from agentrl.tasks.dbbench.mysql_semantics.date_functions import PARTS
from agentrl.tasks.dbbench.mysql_semantics.dates import MONTH_UNITS, UNITS, format_parts
from agentrl.tasks.dbbench.mysql_semantics.errors import (
    SqlError,
    syntax_error,
    unsupported,
)
from agentrl.tasks.dbbench.mysql_semantics.scope import Scope
from agentrl.tasks.dbbench.mysql_semantics.types import (
    DATE,
    DATETIME,
    INT,
    TEXT,
    TIME,
    Expr,
    Kind,
    Type,
    text,
)

if TYPE_CHECKING:
    from agentrl.tasks.dbbench.mysql_semantics.expressions import Expressions

EXTRACTED = PARTS - {"TO_DAYS", "UNIX", "WEEKOFYEAR", "DAYOFWEEK", "WEEKDAY", "DAYOFYEAR"}


def extract(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    unit = node.name.upper()
    if unit not in EXTRACTED:
        raise unsupported(f"EXTRACT({unit} …) in the embedded database")
    return builtins.date_part(unit, compiler.expression(node.expression, scope))


def date_arithmetic(compiler: Expressions, node: Any, scope: Scope) -> Expr:
    value, interval = node.this, node.expression
    if isinstance(value, exp.Interval):
        value, interval = interval, value
    if not isinstance(node, (exp.Add, exp.Sub)):
        raise compiler.not_understood(node)
    return shift(compiler, value, interval, scope, negative=isinstance(node, exp.Sub))


def shift(compiler: Expressions, value: Any, interval: Any, scope: Scope, negative: bool) -> Expr:
    base = compiler.expression(value, scope)
    if isinstance(interval, exp.Interval):
        unit = str(getattr(interval.args.get("unit"), "name", "")).upper()
        if not unit or interval.this is None:
            raise compiler.not_understood(interval)
        amount = types.integer(compiler.expression(interval.this, scope))
    else:
        unit, amount = "DAY", types.integer(compiler.expression(interval, scope))
    if unit not in UNITS and unit not in MONTH_UNITS:
        raise unsupported(f"INTERVAL … {unit} in the embedded database")
    if negative:
        amount = f"(-{amount})"
    if base.type.kind is Kind.TEXT:
        return Expr(f"my_date_add_text({base.sql}, {amount}, '{unit}')", TEXT)
    clock = unit in ("HOUR", "MINUTE", "SECOND", "MICROSECOND")
    whole = base.type.kind is Kind.DATE and not clock
    kind = DATE if whole else DATETIME
    return Expr(f"my_date_add({base.sql}, {amount}, '{unit}', {int(whole)})", kind)


def add_call(compiler: Expressions, name: str, arguments: list[Any], scope: Scope) -> Expr:
    if len(arguments) != 2:
        raise syntax_error(name)
    negative = name.upper() in ("DATE_SUB", "SUBDATE")
    return shift(compiler, arguments[0], arguments[1], scope, negative)


def timestamp_call(compiler: Expressions, name: str, arguments: list[Any], scope: Scope) -> Expr:
    if len(arguments) != 3:
        raise syntax_error(name)
    unit = arguments[0].name.upper().removeprefix("SQL_TSI_")
    if unit not in UNITS and unit not in MONTH_UNITS:
        raise syntax_error(arguments[0].name)
    second, third = (compiler.expression(a, scope) for a in arguments[1:])
    if name.upper() == "TIMESTAMPDIFF":
        return Expr(f"my_timestamp_diff('{unit}', {second.sql}, {third.sql})", INT)
    if third.type.kind is Kind.TEXT:
        return Expr(f"my_date_add_text({third.sql}, {types.integer(second)}, '{unit}')", TEXT)
    whole = third.type.kind is Kind.DATE and unit not in ("HOUR", "MINUTE", "SECOND")
    sql = f"my_date_add({third.sql}, {types.integer(second)}, '{unit}', {int(whole)})"
    return Expr(sql, DATE if whole else DATETIME)


def str_to_date(compiler: Expressions, name: str, arguments: list[Any], scope: Scope) -> Expr:
    if len(arguments) != 2:
        raise SqlError(1582, f"Incorrect parameter count in the call to native function '{name}'")
    value, pattern = (compiler.expression(a, scope) for a in arguments)
    kind: Type = DATETIME
    if isinstance(arguments[1], exp.Literal):
        has_date, has_time = format_parts(str(arguments[1].this))
        kind = (DATETIME if has_time else DATE) if has_date else TIME
    return Expr(f"my_str_to_date({text(value)}, {text(pattern)})", kind)

"""Expressions: from a sqlglot node to SQLite text of the same MySQL meaning, in one walk.

Every handler returns an `Expr`, whose type decides how its parent compares, adds or prints it. What
has no handler is no MySQL (1064) or is refused by name (1235): nothing is passed through unread.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from agentrl.tasks.dbbench.mysql_semantics import builtins, groups, types
from agentrl.tasks.dbbench.mysql_semantics.dates import MONTH_UNITS, UNITS, format_parts
from agentrl.tasks.dbbench.mysql_semantics.errors import (
    SqlError,
    syntax_error,
    unknown_column,
    unsupported,
)
from agentrl.tasks.dbbench.mysql_semantics.numbers import INTEGER_MAX, double_text
from agentrl.tasks.dbbench.mysql_semantics.scope import Column, Scope
from agentrl.tasks.dbbench.mysql_semantics.syntax import check_name, near
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
    Type,
    comparable,
    convert,
    decimal,
    double,
    number,
    number_type,
    quote,
    text,
    truth,
    unify,
)

COMPARISONS: dict[type, str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "IS",
}  # fmt: skip
_BITS: dict[type, str] = {
    exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}  # fmt: skip
_CONSTANTS: dict[type, str] = {
    exp.CurrentDate: "CURRENT_DATE", exp.CurrentTime: "CURRENT_TIME",
    exp.CurrentTimestamp: "CURRENT_TIMESTAMP", exp.CurrentUser: "CURRENT_USER",
    exp.Localtime: "LOCALTIME", exp.Localtimestamp: "LOCALTIMESTAMP",
}  # fmt: skip
_CAST_TARGETS = ("BIGINT", "UBIGINT", "DECIMAL", "CHAR", "NCHAR", "DATE", "DATETIME", "TIME",
                 "DOUBLE", "FLOAT", "YEAR", "BINARY", "CHARACTER_SET")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Query:
    """A compiled SELECT or set operation; its SQLite columns are named `names`."""

    sql: str
    columns: tuple[Column, ...]
    names: tuple[str, ...]
    single_row: bool = False
    limited: bool = False


class Expressions(ABC):
    """Compiles expressions; the queries inside them are compiled by the subclass."""

    def __init__(self, sql: str) -> None:
        self.source = sql

    @abstractmethod
    def query(self, node: Any, outer: Scope | None, named: bool = False) -> Query: ...

    def expression(self, node: Any, scope: Scope) -> Expr:
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise self.not_understood(node)
        return handler(self, node, scope)

    def not_understood(self, node: Any) -> SqlError:
        if isinstance(node, (exp.Parameter, exp.SessionParameter, exp.PropertyEQ)):
            return unsupported("user and system variables in the embedded database")
        start = node._meta.get("start") if isinstance(node, exp.Expression) and node._meta else None
        return near(self.source, start) if isinstance(start, int) else syntax_error(self.source)

    # -- leaves

    def literal(self, node: Any, scope: Scope) -> Expr:
        written = str(node.this)
        if node.is_string:
            return Expr(quote(written), TEXT)
        if written.isdecimal():
            value = int(written)
            if value > INTEGER_MAX:
                return Expr(f"{float(value)!r}", decimal(0), spelling=str(value))
            return Expr(str(value), INT, spelling=str(value))
        if "e" in written.lower():
            try:
                value_double = float(written)
            except ValueError:
                raise syntax_error(written) from None
            if abs(value_double) == float("inf"):
                raise SqlError(1367, f"Illegal double '{written}' value found during parsing")
            return Expr(repr(value_double), DOUBLE, spelling=double_text(value_double))
        whole, _, fraction = written.partition(".")
        if not (whole + fraction).isdecimal():
            raise syntax_error(written)
        spelling = f"{int(whole or '0')}.{fraction}" if fraction else str(int(whole))
        return Expr(f"{float(spelling)!r}", decimal(len(fraction)), spelling=spelling)

    def bytes_literal(self, node: Any, scope: Scope) -> Expr:
        base = 2 if isinstance(node, exp.BitString) else 16
        digits = str(node.this)
        try:
            value = int(digits or "0", base)
        except ValueError:
            raise syntax_error(digits) from None
        size = max(1, (value.bit_length() + 7) // 8) if base == 2 else (len(digits) + 1) // 2
        return Expr(quote(value.to_bytes(size, "big").decode("utf-8", "replace")), TEXT)

    def national(self, node: Any, scope: Scope) -> Expr:
        return Expr(quote(str(node.this)), TEXT)

    def introducer(self, node: Any, scope: Scope) -> Expr:
        return self.expression(node.expression, scope)

    def null(self, node: Any, scope: Scope) -> Expr:
        return Expr("NULL", NULL)

    def boolean(self, node: Any, scope: Scope) -> Expr:
        value = "1" if node.this else "0"
        return Expr(value, INT, spelling=value)

    def constant(self, node: Any, scope: Scope) -> Expr:
        compiled = builtins.call(_CONSTANTS[type(node)], [])
        assert compiled is not None
        return compiled

    def column(self, node: Any, scope: Scope) -> Expr:
        parts = [part for part in (node.args.get("db"), node.args.get("table")) if part is not None]
        if node.args.get("catalog") is not None or not isinstance(node.this, exp.Identifier):
            raise self.not_understood(node.this)
        if not parts:
            return scope.column(check_name(node.this, self.source), None, None)
        check_name(parts[0], self.source)
        name, table = str(node.this.this), str(parts[-1].this)
        database = str(parts[0].this) if len(parts) > 1 else None
        if database not in (None, builtins.DATABASE, "information_schema"):
            raise unknown_column(f"{database}.{table}.{name}", scope.clause)
        return scope.column(name, table, database)

    def paren(self, node: Any, scope: Scope) -> Expr:
        inner = self.expression(node.this, scope)
        return inner._replace(sql=f"({inner.sql})")

    # -- arithmetic

    def arithmetic(self, node: Any, scope: Scope) -> Expr:
        if isinstance(node.expression, exp.Interval) or isinstance(node.this, exp.Interval):
            return self.date_arithmetic(node, scope)
        left = self.expression(node.this, scope)
        right = self.expression(node.expression, scope)
        a, b = number_type(left.type), number_type(right.type)
        if isinstance(node, exp.Div):
            return _divide(left, right)
        if isinstance(node, exp.Mod):
            return builtins.modulo(left, right)
        if isinstance(node, exp.IntDiv):
            if a.kind is Kind.INT and b.kind is Kind.INT:
                return Expr(f"({left.sql} / {right.sql})", INT)
            return Expr(f"my_int_divide({number(left)}, {number(right)})", INT)
        sign = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}[type(node)]
        inner = f"({number(left)} {sign} {number(right)})"
        scale = a.scale + b.scale if sign == "*" else max(a.scale, b.scale)
        if Kind.DOUBLE in (a.kind, b.kind):
            return Expr(inner, double(scale))
        if Kind.DECIMAL in (a.kind, b.kind):
            kind = decimal(scale)
            return Expr(f"my_decimal({inner}, {kind.scale})", kind)
        return Expr(inner, unify((a, b)))

    def negate(self, node: Any, scope: Scope) -> Expr:
        inner = self.expression(node.this, scope)
        spelling = f"-{inner.spelling}" if inner.spelling not in (None, "0") else inner.spelling
        if isinstance(node.this, exp.Neg):
            spelling = None
        return Expr(f"(-{number(inner)})", number_type(inner.type), spelling=spelling)

    def bits(self, node: Any, scope: Scope) -> Expr:
        left = types.integer(self.expression(node.this, scope))
        right = types.integer(self.expression(node.expression, scope))
        if isinstance(node, exp.BitwiseXor):
            return Expr(f"(({left} | {right}) - ({left} & {right}))", INT)
        return Expr(f"({left} {_BITS[type(node)]} {right})", INT)

    def bit_not(self, node: Any, scope: Scope) -> Expr:
        return Expr(f"(~{types.integer(self.expression(node.this, scope))})", INT)

    # -- conditions

    def connect(self, node: Any, scope: Scope) -> Expr:
        """AND and OR, walked along their left spine: a long chain is no deep tree."""
        word = " AND " if isinstance(node, exp.And) else " OR "
        terms: list[str] = []
        while type(node) in (exp.And, exp.Or) and (type(node) is exp.And) == (word == " AND "):
            terms.append(truth(self.expression(node.expression, scope)))
            node = node.this
        terms.append(truth(self.expression(node, scope)))
        return Expr("(" + word.join(reversed(terms)) + ")", INT)

    def exclusive(self, node: Any, scope: Scope) -> Expr:
        left = truth(self.expression(node.this, scope))
        right = truth(self.expression(node.expression, scope))
        return Expr(f"((NOT {left}) <> (NOT {right}))", INT)

    def invert(self, node: Any, scope: Scope) -> Expr:
        return Expr(f"(NOT {truth(self.expression(node.this, scope))})", INT)

    def comparison(self, node: Any, scope: Scope) -> Expr:
        operator = COMPARISONS[type(node)]
        quantified = node.expression
        if isinstance(quantified, (exp.Any, exp.All)):
            return self.quantified(node.this, operator, quantified, scope)
        if isinstance(node.this, exp.Tuple) or isinstance(node.expression, exp.Tuple):
            return self.row_comparison(node, operator, scope)
        left = self.expression(node.this, scope)
        right = self.expression(node.expression, scope)
        return _compare(left, operator, right)

    def row_comparison(self, node: Any, operator: str, scope: Scope) -> Expr:
        left, right = self.row(node.this, scope), self.row(node.expression, scope)
        if len(left) != len(right):
            raise _column_count(len(left))
        if operator not in ("=", "<>", "IS"):
            raise unsupported("ordering of rows in the embedded database")
        same = " AND ".join(
            _compare(a, "IS" if operator == "IS" else "=", b).sql
            for a, b in zip(left, right, strict=True)
        )
        return Expr(f"(NOT ({same}))" if operator == "<>" else f"({same})", INT)

    def row(self, node: Any, scope: Scope) -> list[Expr]:
        if not isinstance(node, exp.Tuple):
            raise _column_count(1)
        return [self.expression(item, scope) for item in node.expressions]

    def quantified(self, left_node: Any, operator: str, node: Any, scope: Scope) -> Expr:
        """`x > ALL (…)`, `x = ANY (…)`, with SQL's three-valued logic."""
        left = self.expression(left_node, scope)
        query = self.query(_inner(node.this), scope)
        _one_column(query)
        _no_limit(query)
        other = Expr(types.identifier(query.names[0]), query.columns[0].type)
        holds = _compare(left, operator, other).sql
        null = f"count({other.sql}) < count(*) OR {left.sql} IS NULL"
        if isinstance(node, exp.All):
            case = f"WHEN sum(NOT {holds}) > 0 THEN 0 WHEN {null} THEN NULL ELSE 1"
            empty = 1
        else:
            case = f"WHEN sum({holds}) > 0 THEN 1 WHEN {null} THEN NULL ELSE 0"
            empty = 0
        return Expr(
            f"(SELECT CASE WHEN count(*) = 0 THEN {empty} {case} END FROM ({query.sql}))", INT
        )

    def is_(self, node: Any, scope: Scope) -> Expr:
        inner = self.expression(node.this, scope)
        if isinstance(node.expression, exp.Null):
            return Expr(f"({inner.sql} IS NULL)", INT)
        if isinstance(node.expression, exp.Boolean):
            word = "TRUE" if node.expression.this else "FALSE"
            return Expr(f"({truth(inner)} IS {word})", INT)
        raise self.not_understood(node.expression)

    def between(self, node: Any, scope: Scope) -> Expr:
        value, low, high = (
            self.expression(part, scope)
            for part in (node.this, node.args["low"], node.args["high"])
        )
        kinds = {value.type.kind, low.type.kind, high.type.kind}
        if Kind.TEXT in kinds and kinds & {Kind.INT, Kind.DECIMAL, Kind.DOUBLE}:
            value, low, high = (Expr(number(e), number_type(e.type)) for e in (value, low, high))
        return Expr(
            f"({_compare(value, '>=', low).sql} AND {_compare(value, '<=', high).sql})", INT
        )

    def in_(self, node: Any, scope: Scope) -> Expr:
        if node.args.get("query") is not None:
            return self.in_query(node, scope)
        if not node.expressions:
            raise self.not_understood(node)
        if isinstance(node.this, exp.Tuple):
            left = self.row(node.this, scope)
            options = []
            for item in node.expressions:
                right = self.row(item, scope)
                if len(right) != len(left):
                    raise _column_count(len(left))
                pairs = zip(left, right, strict=True)
                options.append("(" + " AND ".join(_compare(a, "=", b).sql for a, b in pairs) + ")")
            return Expr("(" + " OR ".join(options) + ")", INT)
        value = self.expression(node.this, scope)
        items = [self.expression(item, scope) for item in node.expressions]
        if all(
            item.type.kind in (value.type.kind, Kind.NULL) and not item.binary for item in items
        ):
            listed = ", ".join(item.sql for item in items)
            return Expr(f"({types.keyed(value)} IN ({listed}))", INT)
        return Expr("(" + " OR ".join(_compare(value, "=", item).sql for item in items) + ")", INT)

    def in_query(self, node: Any, scope: Scope) -> Expr:
        query = self.query(_inner(node.args["query"]), scope)
        _no_limit(query)
        if isinstance(node.this, exp.Tuple):
            values = self.row(node.this, scope)
        else:
            values = [self.expression(node.this, scope)]
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

    def exists(self, node: Any, scope: Scope) -> Expr:
        return Expr(f"EXISTS ({self.query(_inner(node.this), scope).sql})", INT)

    def scalar_query(self, node: Any, scope: Scope) -> Expr:
        """A subquery used as a value; two rows are error 1242, which SQLite would not notice."""
        query = self.query(_inner(node), scope)
        _one_column(query)
        kind = query.columns[0].type
        if query.single_row:
            return Expr(f"({query.sql})", kind)
        name = types.identifier(query.names[0])
        return Expr(f"(SELECT my_one_row({name}) FROM ({query.sql}))", kind)

    # -- patterns

    def like(self, node: Any, scope: Scope, escape: str = "\\") -> Expr:
        value = self.expression(node.this, scope)
        pattern = self.expression(node.expression, scope)
        binary = int(value.binary or pattern.binary)
        sql = f"my_like({text(value)}, {text(pattern)}, {quote(escape)}, {binary})"
        return Expr(f"(NOT {sql})" if node.args.get("negate") else sql, INT)

    def escaped_like(self, node: Any, scope: Scope) -> Expr:
        if not isinstance(node.this, exp.Like) or not node.expression.is_string:
            raise self.not_understood(node)
        escape = str(node.expression.this)
        if len(escape) > 1:
            raise SqlError(1210, "Incorrect arguments to ESCAPE")
        return self.like(node.this, scope, escape)

    def regexp(self, node: Any, scope: Scope) -> Expr:
        value, pattern = self.expression(node.this, scope), self.expression(node.expression, scope)
        sql = f"my_regexp({text(value)}, {text(pattern)})"
        return Expr(f"(NOT {sql})" if node.args.get("negate") else sql, INT)

    def soundex(self, node: Any, scope: Scope) -> Expr:
        return Expr(f"my_soundex({text(self.expression(node.this, scope))})", TEXT)

    # -- choices and casts

    def case(self, node: Any, scope: Scope) -> Expr:
        subject = self.expression(node.this, scope) if node.this is not None else None
        conditions, results = [], []
        for branch in node.args["ifs"]:
            condition = self.expression(branch.this, scope)
            conditions.append(
                truth(condition) if subject is None else _compare(subject, "=", condition).sql
            )
            results.append(self.expression(branch.args["true"], scope))
        default = node.args.get("default")
        other = self.expression(default, scope) if default is not None else Expr("NULL", NULL)
        kind = unify([result.type for result in results] + [other.type])
        branches = " ".join(
            f"WHEN {condition} THEN {convert(result, kind)}"
            for condition, result in zip(conditions, results, strict=True)
        )
        return Expr(f"CASE {branches} ELSE {convert(other, kind)} END", kind)

    def if_(self, node: Any, scope: Scope) -> Expr:
        parts = [node.this, node.args.get("true"), node.args.get("false")]
        if None in parts:
            raise self.not_understood(node)
        return builtins.SPECIALS["IF"].build([self.expression(part, scope) for part in parts])

    def cast(self, node: Any, scope: Scope) -> Expr:
        value = self.expression(node.this, scope)
        target = node.args["to"]
        name = target.this.name if isinstance(target, exp.DataType) else str(target)
        if name not in _CAST_TARGETS:
            raise self.bad_cast()
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
            return Expr(
                value.sql if value.type.kind is Kind.TIME else f"my_time({value.sql})", TIME
            )
        if name == "YEAR":
            return Expr(types.integer(value), INT)
        return Expr(text(value), TEXT)

    def bad_cast(self) -> SqlError:
        match = re.search(r"\bAS\s+(?=(INT|INTEGER|BIGINT|VARCHAR|TEXT|NUMERIC|STRING)\b)", self.source,
                          re.IGNORECASE) or re.search(r"(?<=::)", self.source)  # fmt: skip
        return near(self.source, match.end()) if match else syntax_error(self.source)

    def collate(self, node: Any, scope: Scope) -> Expr:
        inner = self.expression(node.this, scope)
        name = node.expression.name.lower()
        if not re.fullmatch(r"(utf8|utf8mb3|utf8mb4|latin1|binary)\w*", name):
            raise SqlError(1273, f"Unknown collation: '{name}'")
        return Expr(text(inner), TEXT, binary=name.endswith(("_bin", "binary", "_cs")))

    # -- calls

    def call(self, node: Any, scope: Scope) -> Expr:
        name = str(node.this.this if isinstance(node.this, exp.Identifier) else node.this)
        upper = name.upper()
        if upper in groups.AGGREGATES:
            return groups.aggregate(self, upper, node.expressions, scope)
        if upper in groups.WINDOW_FUNCTIONS:
            raise SqlError(3579, f"Window name '{name}' is not defined.")
        special = _CALLS.get(upper)
        if special is not None:
            return special(self, name, node.expressions, scope)
        compiled = builtins.call(name, [self.expression(a, scope) for a in node.expressions])
        if compiled is None:
            raise SqlError(1305, f"FUNCTION {builtins.DATABASE}.{name} does not exist")
        return compiled

    def adjacent_strings(self, node: Any, scope: Scope) -> Expr:
        parts = [self.expression(part, scope) for part in node.expressions]
        return Expr("(" + " || ".join(text(part) for part in parts) + ")", TEXT)

    def substring(self, node: Any, scope: Scope) -> Expr:
        parts = (node.this, node.args.get("start"), node.args.get("length"))
        if parts[1] is None:
            raise syntax_error(")")
        compiled = [self.expression(part, scope) for part in parts if part is not None]
        return builtins.call_signature("SUBSTRING", builtins.SIGNATURES["SUBSTRING"], compiled)

    def position(self, node: Any, scope: Scope) -> Expr:
        needle, value = (
            self.expression(node.args["substr"], scope),
            self.expression(node.this, scope),
        )
        return builtins.call_signature("LOCATE", builtins.SIGNATURES["LOCATE"], [needle, value])

    def trim(self, node: Any, scope: Scope) -> Expr:
        side = str(node.args.get("position") or "BOTH").upper()
        what = node.args.get("expression")
        stripped = text(self.expression(what, scope)) if what is not None else "' '"
        return Expr(
            f"my_trim('{side}', {text(self.expression(node.this, scope))}, {stripped})", TEXT
        )

    # -- dates

    def extract(self, node: Any, scope: Scope) -> Expr:
        unit = node.name.upper()
        if unit not in groups.DATE_PARTS:
            raise unsupported(f"EXTRACT({unit} …) in the embedded database")
        return builtins.date_part(unit, self.expression(node.expression, scope))

    def date_arithmetic(self, node: Any, scope: Scope) -> Expr:
        value, interval = node.this, node.expression
        if isinstance(value, exp.Interval):
            value, interval = interval, value
        if not isinstance(node, (exp.Add, exp.Sub)):
            raise self.not_understood(node)
        return self.shift(value, interval, scope, negative=isinstance(node, exp.Sub))

    def shift(self, value: Any, interval: Any, scope: Scope, negative: bool) -> Expr:
        base = self.expression(value, scope)
        if isinstance(interval, exp.Interval):
            unit = str(getattr(interval.args.get("unit"), "name", "")).upper()
            if not unit or interval.this is None:
                raise self.not_understood(interval)
            amount = types.integer(self.expression(interval.this, scope))
        else:
            unit, amount = "DAY", types.integer(self.expression(interval, scope))
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

    def add_call(self, name: str, arguments: list[Any], scope: Scope) -> Expr:
        if len(arguments) != 2:
            raise syntax_error(name)
        negative = name.upper() in ("DATE_SUB", "SUBDATE")
        return self.shift(arguments[0], arguments[1], scope, negative)

    def timestamp_call(self, name: str, arguments: list[Any], scope: Scope) -> Expr:
        if len(arguments) != 3:
            raise syntax_error(name)
        unit = arguments[0].name.upper().removeprefix("SQL_TSI_")
        if unit not in UNITS and unit not in MONTH_UNITS:
            raise syntax_error(arguments[0].name)
        second, third = (self.expression(a, scope) for a in arguments[1:])
        if name.upper() == "TIMESTAMPDIFF":
            return Expr(f"my_timestamp_diff('{unit}', {second.sql}, {third.sql})", INT)
        if third.type.kind is Kind.TEXT:
            return Expr(f"my_date_add_text({third.sql}, {types.integer(second)}, '{unit}')", TEXT)
        whole = third.type.kind is Kind.DATE and unit not in ("HOUR", "MINUTE", "SECOND")
        sql = f"my_date_add({third.sql}, {types.integer(second)}, '{unit}', {int(whole)})"
        return Expr(sql, DATE if whole else DATETIME)

    def str_to_date(self, name: str, arguments: list[Any], scope: Scope) -> Expr:
        if len(arguments) != 2:
            raise SqlError(
                1582, f"Incorrect parameter count in the call to native function '{name}'"
            )
        value, pattern = (self.expression(a, scope) for a in arguments)
        kind: Type = DATETIME
        if isinstance(arguments[1], exp.Literal):
            has_date, has_time = format_parts(str(arguments[1].this))
            kind = (DATETIME if has_time else DATE) if has_date else TIME
        return Expr(f"my_str_to_date({text(value)}, {text(pattern)})", kind)


def _inner(node: Any) -> Any:
    while isinstance(node, exp.Subquery) and not _has_modifiers(node):
        node = node.this
    return node


def _has_modifiers(node: Any) -> bool:
    return any(node.args.get(key) is not None for key in ("order", "limit", "offset", "with_"))


def _compare(left: Expr, operator: str, right: Expr) -> Expr:
    a, b = comparable(left, right)
    return Expr(f"({a} {operator} {b})", INT)


def _divide(left: Expr, right: Expr) -> Expr:
    a, b = number_type(left.type), number_type(right.type)
    inner = f"(CAST({number(left)} AS REAL) / {number(right)})"
    if Kind.DOUBLE in (a.kind, b.kind):
        return Expr(inner, double(max(a.scale, b.scale) + 4))
    kind = decimal(a.scale + 4)
    return Expr(f"my_decimal({inner}, {kind.scale})", kind)


def _cast_decimal(value: Expr, sizes: list[int]) -> Expr:
    precision = sizes[0] if sizes else 10
    scale = sizes[1] if len(sizes) > 1 else 0
    if precision > 65 or scale > 30 or scale > precision:
        raise SqlError(1426, f"Too-big precision {precision} specified. Maximum is 65.")
    kind = decimal(scale)
    return Expr(f"my_cast_decimal({number(value)}, {precision}, {scale})", kind)


def _one_column(query: Query) -> None:
    if len(query.columns) != 1:
        raise _column_count(1)


def _column_count(count: int) -> SqlError:
    return SqlError(1241, f"Operand should contain {count} column(s)")


def _no_limit(query: Query) -> None:
    if query.limited:
        raise unsupported("LIMIT & IN/ALL/ANY/SOME subquery")


Handler = Callable[[Expressions, Any, Scope], Expr]
_HANDLERS: dict[type, Handler] = {
    exp.Literal: Expressions.literal,
    exp.HexString: Expressions.bytes_literal,
    exp.BitString: Expressions.bytes_literal,
    exp.National: Expressions.national,
    exp.Introducer: Expressions.introducer,
    exp.Null: Expressions.null,
    exp.Boolean: Expressions.boolean,
    exp.Column: Expressions.column,
    exp.Paren: Expressions.paren,
    exp.Neg: Expressions.negate,
    exp.BitwiseXor: Expressions.bits,
    exp.BitwiseNot: Expressions.bit_not,
    exp.And: Expressions.connect,
    exp.Or: Expressions.connect,
    exp.Xor: Expressions.exclusive,
    exp.Not: Expressions.invert,
    exp.Is: Expressions.is_,
    exp.Between: Expressions.between,
    exp.In: Expressions.in_,
    exp.Exists: Expressions.exists,
    exp.Subquery: Expressions.scalar_query,
    exp.Select: Expressions.scalar_query,
    exp.Like: Expressions.like,
    exp.Escape: Expressions.escaped_like,
    exp.RegexpLike: Expressions.regexp,
    exp.Soundex: Expressions.soundex,
    exp.Case: Expressions.case,
    exp.If: Expressions.if_,
    exp.Cast: Expressions.cast,
    exp.Collate: Expressions.collate,
    exp.Anonymous: Expressions.call,
    exp.Concat: Expressions.adjacent_strings,
    exp.Substring: Expressions.substring,
    exp.StrPosition: Expressions.position,
    exp.Trim: Expressions.trim,
    exp.Extract: Expressions.extract,
    exp.GroupConcat: groups.group_concat,
    exp.Window: groups.window,
    **dict.fromkeys(_CONSTANTS, Expressions.constant),
    **dict.fromkeys(COMPARISONS, Expressions.comparison),
    **dict.fromkeys(_BITS, Expressions.bits),
    **dict.fromkeys(
        (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod), Expressions.arithmetic
    ),
}
_CALLS: dict[str, Callable[[Expressions, str, list[Any], Scope], Expr]] = {
    **dict.fromkeys(("DATE_ADD", "DATE_SUB", "ADDDATE", "SUBDATE"), Expressions.add_call),
    **dict.fromkeys(("TIMESTAMPDIFF", "TIMESTAMPADD"), Expressions.timestamp_call),
    "STR_TO_DATE": Expressions.str_to_date,
}

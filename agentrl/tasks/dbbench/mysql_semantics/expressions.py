"""Expressions: from a sqlglot node to SQLite text of the same MySQL meaning, in one walk.

Every handler returns an `Expr`, whose type decides how its parent compares, adds or prints it. What
has no handler is no MySQL (1064) or is refused by name (1235): nothing is passed through unread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from agentrl.tasks.dbbench.mysql_semantics import (
    builtins,
    conversions,
    groups,
    moments,
    predicates,
    types,
)
from agentrl.tasks.dbbench.mysql_semantics.errors import (
    SqlError,
    syntax_error,
    unknown_column,
    unsupported,
)
from agentrl.tasks.dbbench.mysql_semantics.numbers import INTEGER_MAX, double_text
from agentrl.tasks.dbbench.mysql_semantics.scope import Query, Scope
from agentrl.tasks.dbbench.mysql_semantics.syntax import check_name, near
from agentrl.tasks.dbbench.mysql_semantics.types import (
    DOUBLE,
    INT,
    NULL,
    TEXT,
    Expr,
    Kind,
    decimal,
    double,
    number,
    number_type,
    quote,
    text,
    truth,
    unify,
)

_BITS: dict[type, str] = {
    exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}  # fmt: skip
_CONSTANTS: dict[type, str] = {
    exp.CurrentDate: "CURRENT_DATE", exp.CurrentTime: "CURRENT_TIME",
    exp.CurrentTimestamp: "CURRENT_TIMESTAMP", exp.CurrentUser: "CURRENT_USER",
    exp.Localtime: "LOCALTIME", exp.Localtimestamp: "LOCALTIMESTAMP",
}  # fmt: skip


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
            return moments.date_arithmetic(self, node, scope)
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

    # -- patterns

    # -- choices and casts

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


def _divide(left: Expr, right: Expr) -> Expr:
    a, b = number_type(left.type), number_type(right.type)
    inner = f"(CAST({number(left)} AS REAL) / {number(right)})"
    if Kind.DOUBLE in (a.kind, b.kind):
        return Expr(inner, double(max(a.scale, b.scale) + 4))
    kind = decimal(a.scale + 4)
    return Expr(f"my_decimal({inner}, {kind.scale})", kind)


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
    exp.Is: predicates.is_,
    exp.Between: predicates.between,
    exp.In: predicates.in_,
    exp.Exists: predicates.exists,
    exp.Subquery: predicates.scalar_query,
    exp.Select: predicates.scalar_query,
    exp.Like: predicates.like,
    exp.Escape: predicates.escaped_like,
    exp.RegexpLike: predicates.regexp,
    exp.Soundex: predicates.soundex,
    exp.Case: conversions.case,
    exp.If: conversions.if_,
    exp.Cast: conversions.cast,
    exp.Collate: conversions.collate,
    exp.Anonymous: Expressions.call,
    exp.Concat: Expressions.adjacent_strings,
    exp.Substring: Expressions.substring,
    exp.StrPosition: Expressions.position,
    exp.Trim: Expressions.trim,
    exp.Extract: moments.extract,
    exp.GroupConcat: groups.group_concat,
    exp.Window: groups.window,
    **dict.fromkeys(_CONSTANTS, Expressions.constant),
    **dict.fromkeys(predicates.COMPARISONS, predicates.comparison),
    **dict.fromkeys(_BITS, Expressions.bits),
    **dict.fromkeys(
        (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod), Expressions.arithmetic
    ),
}
_CALLS: dict[str, Callable[[Expressions, str, list[Any], Scope], Expr]] = {
    **dict.fromkeys(("DATE_ADD", "DATE_SUB", "ADDDATE", "SUBDATE"), moments.add_call),
    **dict.fromkeys(("TIMESTAMPDIFF", "TIMESTAMPADD"), moments.timestamp_call),
    "STR_TO_DATE": moments.str_to_date,
}

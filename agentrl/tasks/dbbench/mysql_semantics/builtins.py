"""MySQL's functions by name: what arguments they take, what type they give, what they become.

A row of the table is (argument kinds, result, SQLite function). Kinds, one letter an argument: `t`
text, `n` number, `i` integer, `m` date-time, `d` date, `x` as it is; letters after `?` are optional,
a final `*` repeats the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentrl.tasks.dbbench.mysql_semantics import types
from agentrl.tasks.dbbench.mysql_semantics.dates import NOW, date_text, datetime_text
from agentrl.tasks.dbbench.mysql_semantics.errors import unsupported, wrong_arguments
from agentrl.tasks.dbbench.mysql_semantics.types import (
    DATE,
    DATETIME,
    DOUBLE,
    INT,
    TEXT,
    TIME,
    Expr,
    Kind,
    Type,
    decimal,
    double,
    number,
    number_type,
    quote,
    text,
    unify,
    words,
)

DATABASE = "dbbench"
"""Name of the episode's database, whatever serves it."""


@dataclass(frozen=True, slots=True)
class Signature:
    kinds: str
    result: Type
    function: str

    @property
    def bounds(self) -> tuple[int, int]:
        required, _, optional = self.kinds.rstrip("*").partition("?")
        repeated = self.kinds.endswith("*")
        return len(required), 255 if repeated else len(required) + len(optional)


SIGNATURES: dict[str, Signature] = {
    name: Signature(kinds, result, function)
    for names, kinds, result, function in (
        ("UPPER UCASE", "t", TEXT, "my_upper"),
        ("LOWER LCASE", "t", TEXT, "my_lower"),
        ("CONCAT", "t*", TEXT, "my_concat"),
        ("CONCAT_WS", "tt*", TEXT, "my_concat_ws"),
        ("LEFT", "ti", TEXT, "my_left"),
        ("RIGHT", "ti", TEXT, "my_right"),
        ("SUBSTRING SUBSTR MID", "ti?i", TEXT, "my_substring"),
        ("SUBSTRING_INDEX", "tti", TEXT, "my_substring_index"),
        ("LOCATE POSITION", "tt?i", INT, "my_locate"),
        ("LPAD", "tit", TEXT, "my_lpad"),
        ("RPAD", "tit", TEXT, "my_rpad"),
        ("REPEAT", "ti", TEXT, "my_repeat"),
        ("REPLACE", "ttt", TEXT, "my_replace"),
        ("INSERT", "tiit", TEXT, "my_insert"),
        ("REVERSE", "t", TEXT, "my_reverse"),
        ("LENGTH OCTET_LENGTH", "t", INT, "my_length"),
        ("CHAR_LENGTH CHARACTER_LENGTH", "t", INT, "my_char_length"),
        ("STRCMP", "tt", INT, "my_strcmp"),
        ("ELT", "it*", TEXT, "my_elt"),
        ("FIND_IN_SET", "tt", INT, "my_find_in_set"),
        ("ASCII", "t", INT, "my_ascii"),
        ("ORD", "t", INT, "my_ord"),
        ("UNHEX", "t", TEXT, "my_unhex"),
        ("QUOTE", "t", TEXT, "my_quote"),
        ("SOUNDEX", "t", TEXT, "my_soundex"),
        ("MD5", "t", TEXT, "my_md5"),
        ("SHA SHA1", "t", TEXT, "my_sha1"),
        ("CONV", "tii", TEXT, "my_conv"),
        ("REGEXP_LIKE", "tt", INT, "my_regexp"),
        ("REGEXP_SUBSTR", "tt?ii", TEXT, "my_regexp_substr"),
        ("REGEXP_INSTR", "tt?iii", INT, "my_regexp_instr"),
        ("REGEXP_REPLACE", "ttt?ii", TEXT, "my_regexp_replace"),
        ("SQRT", "n", DOUBLE, "my_sqrt"),
        ("POW POWER", "nn", DOUBLE, "my_power"),
        ("EXP", "n", DOUBLE, "my_exp"),
        ("LN", "n", DOUBLE, "my_ln"),
        ("LOG10", "n", DOUBLE, "my_log10"),
        ("LOG2", "n", DOUBLE, "my_log2"),
        ("SIN", "n", DOUBLE, "my_sin"),
        ("COS", "n", DOUBLE, "my_cos"),
        ("TAN", "n", DOUBLE, "my_tan"),
        ("RADIANS", "n", DOUBLE, "my_radians"),
        ("DEGREES", "n", DOUBLE, "my_degrees"),
        ("SIGN", "n", INT, "my_sign"),
        ("DATEDIFF", "xx", INT, "my_date_diff"),
        ("DATE_FORMAT", "xt", TEXT, "my_date_format"),
        ("DAYNAME", "x", TEXT, "my_day_name"),
        ("MONTHNAME", "x", TEXT, "my_month_name"),
        ("LAST_DAY", "x", DATE, "my_last_day"),
        ("MAKEDATE", "ii", DATE, "my_make_date"),
        ("FROM_DAYS", "i", DATE, "my_from_days"),
        ("FROM_UNIXTIME", "i", DATETIME, "my_from_unixtime"),
        ("TIME", "x", TIME, "my_time"),
    )
    for name in names.split()
}

DATE_PARTS = {
    "YEAR": "YEAR", "MONTH": "MONTH", "DAY": "DAY", "DAYOFMONTH": "DAY", "HOUR": "HOUR",
    "MINUTE": "MINUTE", "SECOND": "SECOND", "QUARTER": "QUARTER", "WEEKOFYEAR": "WEEKOFYEAR",
    "DAYOFWEEK": "DAYOFWEEK", "WEEKDAY": "WEEKDAY", "DAYOFYEAR": "DAYOFYEAR", "WEEK": "WEEK",
    "TO_DAYS": "TO_DAYS", "UNIX_TIMESTAMP": "UNIX",
}  # fmt: skip

KNOWN_ELSEWHERE = words("""
JSON_EXTRACT JSON_OBJECT JSON_ARRAY JSON_UNQUOTE JSON_VALUE JSON_CONTAINS JSON_LENGTH JSON_ARRAYAGG
JSON_OBJECTAGG RAND UUID SLEEP BENCHMARK LOAD_FILE GET_LOCK RELEASE_LOCK AES_ENCRYPT SHA2 ATAN ATAN2 ASIN
ACOS COT CRC32 INET_ATON ADDTIME SUBTIME TIMEDIFF MAKETIME SEC_TO_TIME TIME_TO_SEC TIME_FORMAT
PERIOD_ADD PERIOD_DIFF GET_FORMAT YEARWEEK CONVERT_TZ STR_TO_TIME EXPORT_SET MAKE_SET BIT_COUNT
LAST_INSERT_ID ROW_COUNT FOUND_ROWS EXTRACTVALUE UPDATEXML MATCH ANY_VALUE FORMAT_BYTES WEIGHT_STRING
""")
"""Functions of MySQL that are left out: refused by name (1235), not as unknown (1305)."""


def coerce(kind: str, argument: Expr) -> str:
    if kind == "t":
        return text(argument)
    if kind == "n":
        return number(argument)
    if kind == "i":
        return types.integer(argument)
    if kind == "m":
        return types.moment(argument)
    if kind == "d":
        return types.day(argument)
    return argument.sql


def call_signature(name: str, signature: Signature, arguments: list[Expr]) -> Expr:
    low, high = signature.bounds
    if not low <= len(arguments) <= high:
        raise wrong_arguments(name)
    kinds = signature.kinds.replace("?", "").rstrip("*")
    kinds = kinds.ljust(len(arguments), kinds[-1] if kinds else "x")
    inner = ", ".join(coerce(k, a) for k, a in zip(kinds, arguments, strict=False))
    return Expr(f"{signature.function}({inner})", signature.result)


# -- functions whose type or form depends on their arguments


def _numeric_unary(sqlite: str) -> Callable[[list[Expr]], Expr]:
    def build(arguments: list[Expr]) -> Expr:
        (argument,) = arguments
        return Expr(f"{sqlite}({number(argument)})", number_type(argument.type))

    return build


def _whole(sqlite: str) -> Callable[[list[Expr]], Expr]:
    """FLOOR and CEIL: whole numbers stay integers, doubles stay doubles."""

    def build(arguments: list[Expr]) -> Expr:
        (argument,) = arguments
        if number_type(argument.type).kind is Kind.DOUBLE:
            return Expr(f"{sqlite}({number(argument)})", double(0))
        return Expr(f"CAST({sqlite}({number(argument)}) AS INTEGER)", INT)

    return build


def _round(arguments: list[Expr]) -> Expr:
    value = arguments[0]
    digits = types.integer(arguments[1]) if len(arguments) > 1 else "0"
    kind = number_type(value.type)
    constant = _constant_integer(digits)
    if kind.kind is Kind.DOUBLE:
        return Expr(f"my_round_double({number(value)}, {digits})", _fixed(constant))
    if kind.kind is Kind.DECIMAL:
        scale = kind.scale if constant is None else min(max(constant, 0), kind.scale)
        return Expr(f"my_decimal({value.sql}, {digits})", decimal(scale))
    if len(arguments) == 1:
        return Expr(number(value), kind)
    return Expr(f"CAST(my_decimal({number(value)}, min(0, {digits})) AS INTEGER)", INT)


def _truncate(arguments: list[Expr]) -> Expr:
    value, digits = arguments[0], types.integer(arguments[1])
    kind = number_type(value.type)
    constant = _constant_integer(digits)
    if kind.kind is Kind.DOUBLE:
        kind = _fixed(constant)
    elif kind.kind is Kind.DECIMAL and constant is not None:
        kind = decimal(min(max(constant, 0), kind.scale))
    return Expr(f"my_truncate({number(value)}, {digits})", kind)


def _fixed(digits: int | None) -> Type:
    """A DOUBLE rounded to `digits`: as text it shows them all."""
    return DOUBLE if digits is None else double(digits)


def _constant_integer(sql: str) -> int | None:
    """The number of digits, where it is written out."""
    plain = sql.replace("(", "").replace(")", "")
    return int(plain) if plain.removeprefix("-").isdecimal() else None


def _log(arguments: list[Expr]) -> Expr:
    if len(arguments) == 1:
        return Expr(f"my_ln({number(arguments[0])})", DOUBLE)
    return Expr(f"my_log({number(arguments[0])}, {number(arguments[1])})", DOUBLE)


def _extreme(name: str) -> Callable[[list[Expr]], Expr]:
    def build(arguments: list[Expr]) -> Expr:
        kinds = [argument.type for argument in arguments]
        if all(k.kind in (Kind.TEXT, Kind.NULL) for k in kinds):
            inner = ", ".join(argument.sql for argument in arguments)
            sized = ", ".join(number(argument) for argument in arguments)
            return Expr(f"{name}_text({inner})", TEXT, as_number=f"{name}({sized})")
        if all(k.temporal for k in kinds):
            inner = ", ".join(argument.sql for argument in arguments)
            return Expr(f"{name}({inner})", unify(kinds))
        inner = ", ".join(number(argument) for argument in arguments)
        return Expr(f"{name}({inner})", unify(number_type(kind) for kind in kinds))

    return build


def _coalesce(arguments: list[Expr]) -> Expr:
    kind = unify(argument.type for argument in arguments)
    inner = ", ".join(types.convert(argument, kind) for argument in arguments)
    return Expr(f"coalesce({inner})" if len(arguments) > 1 else f"({inner})", kind)


def _nullif(arguments: list[Expr]) -> Expr:
    left, right = arguments
    a, b = types.comparable(left, right)
    return Expr(f"CASE WHEN {a} = {b} THEN NULL ELSE {left.sql} END", left.type)


def _isnull(arguments: list[Expr]) -> Expr:
    return Expr(f"({arguments[0].sql} IS NULL)", INT)


def _if(arguments: list[Expr]) -> Expr:
    condition, yes, no = arguments
    kind = unify((yes.type, no.type))
    return Expr(
        f"CASE WHEN {types.truth(condition)} THEN {types.convert(yes, kind)} "
        f"ELSE {types.convert(no, kind)} END",
        kind,
    )


def _format(arguments: list[Expr]) -> Expr:
    return Expr(f"my_format({number(arguments[0])}, {types.integer(arguments[1])})", TEXT)


def _instr(arguments: list[Expr]) -> Expr:
    return Expr(f"my_locate({text(arguments[1])}, {text(arguments[0])})", INT)


def _hex(arguments: list[Expr]) -> Expr:
    (value,) = arguments
    if value.type.numeric:
        return Expr(f"my_hex({types.integer(value)})", TEXT)
    return Expr(f"my_hex({text(value)})", TEXT)


def _char(arguments: list[Expr]) -> Expr:
    return Expr(f"my_char({', '.join(types.integer(a) for a in arguments)})", TEXT)


def _base(target: int) -> Callable[[list[Expr]], Expr]:
    def build(arguments: list[Expr]) -> Expr:
        return Expr(f"my_conv(CAST({types.integer(arguments[0])} AS TEXT), 10, {target})", TEXT)

    return build


def _trim(side: str) -> Callable[[list[Expr]], Expr]:
    def build(arguments: list[Expr]) -> Expr:
        return Expr(f"my_trim('{side}', {text(arguments[0])}, ' ')", TEXT)

    return build


def _field(arguments: list[Expr]) -> Expr:
    if all(a.type.numeric for a in arguments):
        cases = " ".join(
            f"WHEN {arguments[0].sql} = {a.sql} THEN {i}" for i, a in enumerate(arguments[1:], 1)
        )
        return Expr(f"CASE {cases} ELSE 0 END", INT)
    return Expr(f"my_field({', '.join(text(a) for a in arguments)})", INT)


def _modulo(arguments: list[Expr]) -> Expr:
    return modulo(*arguments)


def modulo(left: Expr, right: Expr) -> Expr:
    a, b = number_type(left.type), number_type(right.type)
    kind = unify((a, b))
    inner = f"my_modulo({number(left)}, {number(right)})"
    if kind.kind is Kind.DECIMAL:
        inner = f"my_decimal({inner}, {kind.scale})"
    return Expr(inner, kind)


def _date(arguments: list[Expr]) -> Expr:
    return Expr(types.day(arguments[0]), DATE)


def _timestamp(arguments: list[Expr]) -> Expr:
    return Expr(types.moment(arguments[0]), DATETIME)


def date_part(unit: str, value: Expr) -> Expr:
    return Expr(f"my_date_part('{unit}', {value.sql})", INT)


def _part(unit: str) -> Callable[[list[Expr]], Expr]:
    return lambda arguments: date_part(unit, arguments[0])


def _constant(value: str, kind: Type) -> Callable[[list[Expr]], Expr]:
    return lambda arguments: Expr(value, kind)


@dataclass(frozen=True, slots=True)
class Special:
    low: int
    high: int
    build: Callable[[list[Expr]], Expr]


_NOW, _TODAY = quote(datetime_text(NOW)), quote(date_text(NOW))
_CLOCK = quote(datetime_text(NOW)[11:])
SPECIALS: dict[str, Special] = {
    "ABS": Special(1, 1, _numeric_unary("abs")),
    "FLOOR": Special(1, 1, _whole("my_floor")),
    "CEIL": Special(1, 1, _whole("my_ceil")),
    "CEILING": Special(1, 1, _whole("my_ceil")),
    "ROUND": Special(1, 2, _round),
    "TRUNCATE": Special(2, 2, _truncate),
    "LOG": Special(1, 2, _log),
    "PI": Special(0, 0, _constant("3.141593", DOUBLE)),
    "GREATEST": Special(2, 255, _extreme("my_greatest")),
    "LEAST": Special(2, 255, _extreme("my_least")),
    "COALESCE": Special(1, 255, _coalesce),
    "IFNULL": Special(2, 2, _coalesce),
    "NULLIF": Special(2, 2, _nullif),
    "ISNULL": Special(1, 1, _isnull),
    "IF": Special(3, 3, _if),
    "FORMAT": Special(2, 3, _format),
    "INSTR": Special(2, 2, _instr),
    "HEX": Special(1, 1, _hex),
    "CHAR": Special(1, 255, _char),
    "BIN": Special(1, 1, _base(2)),
    "OCT": Special(1, 1, _base(8)),
    "TRIM": Special(1, 1, _trim("BOTH")),
    "LTRIM": Special(1, 1, _trim("LEADING")),
    "RTRIM": Special(1, 1, _trim("TRAILING")),
    "SPACE": Special(1, 1, lambda a: Expr(f"my_repeat(' ', {types.integer(a[0])})", TEXT)),
    "FIELD": Special(2, 255, _field),
    "MOD": Special(2, 2, _modulo),
    "DATE": Special(1, 1, _date),
    "TIMESTAMP": Special(1, 1, _timestamp),
    **{name: Special(1, 1, _part(unit)) for name, unit in DATE_PARTS.items()},
    "NOW": Special(0, 1, _constant(_NOW, DATETIME)),
    "SYSDATE": Special(0, 1, _constant(_NOW, DATETIME)),
    "CURRENT_TIMESTAMP": Special(0, 1, _constant(_NOW, DATETIME)),
    "LOCALTIME": Special(0, 1, _constant(_NOW, DATETIME)),
    "LOCALTIMESTAMP": Special(0, 1, _constant(_NOW, DATETIME)),
    "UTC_TIMESTAMP": Special(0, 1, _constant(_NOW, DATETIME)),
    "CURDATE": Special(0, 0, _constant(_TODAY, DATE)),
    "CURRENT_DATE": Special(0, 0, _constant(_TODAY, DATE)),
    "UTC_DATE": Special(0, 0, _constant(_TODAY, DATE)),
    "CURTIME": Special(0, 1, _constant(_CLOCK, TIME)),
    "CURRENT_TIME": Special(0, 1, _constant(_CLOCK, TIME)),
    "DATABASE": Special(0, 0, _constant(f"'{DATABASE}'", TEXT)),
    "SCHEMA": Special(0, 0, _constant(f"'{DATABASE}'", TEXT)),
    "USER": Special(0, 0, _constant("'agent@localhost'", TEXT)),
    "CURRENT_USER": Special(0, 0, _constant("'agent@localhost'", TEXT)),
    "VERSION": Special(0, 0, _constant("'8.0.0'", TEXT)),
    "CONNECTION_ID": Special(0, 0, _constant("1", INT)),
}


def call(name: str, arguments: list[Expr]) -> Expr | None:
    """The compiled call of a scalar function, or None where MySQL has none of that name."""
    upper = name.upper()
    signature = SIGNATURES.get(upper)
    if signature is not None:
        return call_signature(name, signature, arguments)
    special = SPECIALS.get(upper)
    if special is not None:
        if not special.low <= len(arguments) <= special.high:
            raise wrong_arguments(name)
        return special.build(arguments)
    if upper in KNOWN_ELSEWHERE:
        raise unsupported(f"{upper}() in the embedded database")
    return None

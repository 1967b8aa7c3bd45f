"""From the text of one statement to a sqlglot tree, as strictly as MySQL 8 reads it.

sqlglot is a tolerant parser of many dialects. Here every function call stays a plain call (what it
means is decided by `builtins`), and what MySQL refuses is refused with its error 1064: reserved words
and "quoted" strings as names, two statements, `COUNT (*)` with a space. A statement's length and
depth are bounded before any parser sees it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from agentrl.tasks.dbbench.mysql_semantics.errors import SqlError, syntax_error, unsupported
from agentrl.tasks.dbbench.mysql_semantics.types import words

MAX_LENGTH = 16_384
MAX_DEPTH = 20

RESERVED = words("""
ACCESSIBLE ADD ALL ALTER ANALYZE AND AS ASC ASENSITIVE BEFORE BETWEEN BIGINT BINARY BLOB BOTH BY CALL
CASCADE CASE CHANGE CHAR CHARACTER CHECK COLLATE COLUMN CONDITION CONSTRAINT CONTINUE CONVERT CREATE
CROSS CUBE CUME_DIST CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER CURSOR DATABASE DATABASES
DAY_HOUR DAY_MICROSECOND DAY_MINUTE DAY_SECOND DEC DECIMAL DECLARE DEFAULT DELAYED DELETE DENSE_RANK DESC
DESCRIBE DETERMINISTIC DISTINCT DISTINCTROW DIV DOUBLE DROP DUAL EACH ELSE ELSEIF EMPTY ENCLOSED ESCAPED
EXCEPT EXISTS EXIT EXPLAIN FALSE FETCH FIRST_VALUE FLOAT FLOAT4 FLOAT8 FOR FORCE FOREIGN FROM FULLTEXT
FUNCTION GENERATED GET GRANT GROUP GROUPING GROUPS HAVING HIGH_PRIORITY HOUR_MICROSECOND HOUR_MINUTE
HOUR_SECOND IF IGNORE IN INDEX INFILE INNER INOUT INSENSITIVE INSERT INT INT1 INT2 INT3 INT4 INT8 INTEGER
INTERSECT INTERVAL INTO IO_AFTER_GTIDS IO_BEFORE_GTIDS IS ITERATE JOIN JSON_TABLE KEY KEYS KILL LAG
LAST_VALUE LATERAL LEAD LEADING LEAVE LEFT LIKE LIMIT LINEAR LINES LOAD LOCALTIME LOCALTIMESTAMP LOCK LONG
LONGBLOB LONGTEXT LOOP LOW_PRIORITY MASTER_BIND MATCH MAXVALUE MEDIUMBLOB MEDIUMINT MEDIUMTEXT MIDDLEINT
MINUTE_MICROSECOND MINUTE_SECOND MOD MODIFIES NATURAL NOT NO_WRITE_TO_BINLOG NTH_VALUE NTILE NULL NUMERIC
OF ON OPTIMIZE OPTIMIZER_COSTS OPTION OPTIONALLY OR ORDER OUT OUTER OUTFILE OVER PARTITION PERCENT_RANK
PRECISION PRIMARY PROCEDURE PURGE RANGE RANK READ READS READ_WRITE REAL RECURSIVE REFERENCES REGEXP RELEASE
RENAME REPEAT REPLACE REQUIRE RESIGNAL RESTRICT RETURN REVOKE RIGHT RLIKE ROW ROWS ROW_NUMBER SCHEMA
SCHEMAS SECOND_MICROSECOND SELECT SENSITIVE SEPARATOR SET SHOW SIGNAL SMALLINT SPATIAL SPECIFIC SQL
SQLEXCEPTION SQLSTATE SQLWARNING SQL_BIG_RESULT SQL_CALC_FOUND_ROWS SQL_SMALL_RESULT SSL STARTING STORED
STRAIGHT_JOIN SYSTEM TABLE TERMINATED THEN TINYBLOB TINYINT TINYTEXT TO TRAILING TRIGGER TRUE UNDO UNION
UNIQUE UNLOCK UNSIGNED UPDATE USAGE USE USING UTC_DATE UTC_TIME UTC_TIMESTAMP VALUES VARBINARY VARCHAR
VARCHARACTER VARYING VIRTUAL WHEN WHERE WHILE WINDOW WITH WRITE XOR YEAR_MONTH ZEROFILL
""")
"""Reserved words of MySQL 8.0: as a name they need backticks (MariaDB reserves fewer)."""

_NO_SPACE = words("""
ADDDATE BIT_AND BIT_OR BIT_XOR CAST COUNT CURDATE CURTIME DATE_ADD DATE_SUB EXTRACT GROUP_CONCAT MAX MID
MIN NOW POSITION STD STDDEV STDDEV_POP STDDEV_SAMP SUBDATE SUBSTR SUBSTRING SUM SYSDATE TRIM VARIANCE
VAR_POP VAR_SAMP
""")
_OPEN = frozenset({TokenType.L_PAREN})
_CLOSE = frozenset({TokenType.R_PAREN})
_BEFORE_LISTS = frozenset({TokenType.COMMA, TokenType.SET, TokenType.GROUP_BY})
_AFTER_LISTS = frozenset({
    TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.HAVING,
    TokenType.LIMIT, TokenType.R_PAREN, TokenType.UNION, TokenType.SEMICOLON,
})  # fmt: skip
_FIRST_WORDS = words("SELECT WITH INSERT UPDATE DELETE TABLE (")
_NOT_MYSQL = ("==", "::")
_QUOTED_OR_DASHES = re.compile(
    r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`[^`]*`|#[^\n]*|/\*.*?\*/|-- [^\n]*|--(?=\S)",
    re.DOTALL,
)
_SPECIAL_CALLS = (
    "CAST", "CONVERT", "EXTRACT", "GROUP_CONCAT", "TRIM", "SUBSTRING", "SUBSTR", "POSITION",
)  # fmt: skip


class _SyntaxError(ParseError):
    start = 0


_Base: Any = MySQL.parser_class


class _Parser(_Base):  # type: ignore[misc]
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: _Base.FUNCTION_PARSERS[name] for name in _SPECIAL_CALLS
    }

    def raise_error(self, message: str, token: Token | None = None) -> None:
        error = _SyntaxError(message)
        token = token or self._curr
        error.start = token.start if token else len(self.sql)
        if self.error_level == ErrorLevel.IMMEDIATE:
            raise error
        self.errors.append(error)

    def _parse_table_part(self, schema: bool = False) -> Any:
        if self._curr and self._curr.token_type == TokenType.STRING:
            self.raise_error("a string is no table name")
        return super()._parse_table_part(schema)


class MySQLCalls(MySQL):
    """sqlglot's MySQL with every function call left as it was written."""

    Parser = _Parser


_DIALECT: Any = MySQLCalls()


def parse(sql: str) -> Any:
    """The tree of the one statement in `sql`; raises `SqlError`."""
    if len(sql) > MAX_LENGTH:
        raise SqlError(1153, "Got a packet bigger than 'max_allowed_packet' bytes")
    try:
        tokens = _DIALECT.tokenize(sql)
    except TokenError:
        raise syntax_error(sql.strip()) from None
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise SqlError(1065, "Query was empty")
    if tokens[0].text.upper() not in _FIRST_WORDS:
        raise near(sql, tokens[0].start)
    _check_tokens(tokens, sql)
    try:
        trees = _DIALECT.parser().parse(tokens, sql)
    except _SyntaxError as error:
        raise near(sql, error.start) from None
    except (ParseError, AttributeError, KeyError, IndexError, TypeError, ValueError):
        raise syntax_error(sql.strip()) from None  # sqlglot stumbles over some broken statements
    except RecursionError:
        raise _too_deep() from None
    if len(trees) != 1 or trees[0] is None:
        raise syntax_error(sql.strip())
    return trees[0]


def near(sql: str, start: int) -> SqlError:
    """1064 that points at character `start` of the statement."""
    return syntax_error(sql[start:].rstrip().removesuffix(";"), sql.count("\n", 0, start) + 1)


def _check_tokens(tokens: list[Any], sql: str) -> None:
    depth = 0
    for i, token in enumerate(tokens):
        kind = token.token_type
        if kind in _OPEN:
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep()
            previous = tokens[i - 1] if i else None
            if previous and previous.end + 1 != token.start and previous.text.upper() in _NO_SPACE:
                _check_spaced_call(previous, tokens[i + 1 : i + 2], sql)
        elif kind in _CLOSE:
            depth -= 1
        elif token.text in _NOT_MYSQL and kind in (TokenType.EQ, TokenType.DCOLON):
            raise near(sql, token.start + len(token.text) - 1)
        elif kind in _BEFORE_LISTS and _ends_list(tokens[i + 1 : i + 2]):
            raise near(sql, tokens[i + 1].start if i + 1 < len(tokens) else len(sql))
        elif kind == TokenType.SEMICOLON:
            raise near(sql, tokens[min(i + 1, len(tokens) - 1)].start)


def _ends_list(following: list[Any]) -> bool:
    return not following or following[0].token_type in _AFTER_LISTS


def _check_spaced_call(name: Any, following: list[Any], sql: str) -> None:
    if name.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
        return
    if following and following[0].token_type in (TokenType.STAR, TokenType.DISTINCT):
        raise near(sql, following[0].start)
    raise SqlError(
        1630,
        f"FUNCTION dbbench.{name.text} does not exist. Check the 'Function Name Parsing and "
        "Resolution' section in the Reference Manual",
    )


def _too_deep() -> SqlError:
    return SqlError(1436, "Thread stack overrun: statement is nested too deeply")


_REPLACE = re.compile(r"\s*REPLACE\b(?!\s*\()", re.IGNORECASE)


def prepared(sql: str) -> str:
    """The statement with what sqlglot reads otherwise put in its words.

    `--` starts a comment only before white space, and REPLACE is INSERT where no table has a key.
    """
    if "/*!" in sql:
        raise unsupported("executable comments in the embedded database")
    if "--" in sql:
        sql = _QUOTED_OR_DASHES.sub(lambda m: "- -" if m.group() == "--" else m.group(), sql)
    return _REPLACE.sub("INSERT", sql, count=1) if _REPLACE.match(sql) else sql


def check_name(node: exp.Identifier, sql: str) -> str:
    """The name; an unquoted reserved word is a syntax error."""
    name = str(node.this)
    if not node.args.get("quoted") and name.upper() in RESERVED:
        start = node.meta.get("start") if node._meta else None
        raise near(sql, start) if isinstance(start, int) else syntax_error(name)
    return name

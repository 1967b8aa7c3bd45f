"""What the embedded database refuses, in MySQL's words and numbers."""

from __future__ import annotations

import pytest

from agentrl.tasks.dbbench.records import Table
from agentrl.tasks.dbbench.sqlite import SqliteDatabase

TABLE = Table("t", ("a", "b", "Rank"), (("1", "x", "3"), ("abc", "y", "1")))


def refuse(sql: str, strict: bool = False) -> str:
    database = SqliteDatabase([TABLE], strict=strict)
    before = database.hash()
    reply = database.run(sql)
    assert reply.error, f"{sql} was accepted: {reply.text}"
    assert database.hash() == before
    return reply.text


SYNTAX = (
    "1064 (42000): You have an error in your SQL syntax; check the manual that corresponds to your "
    "MySQL server version for the right syntax to use near '{}' at line {}"
)


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT x FROM t", "1054 (42S22): Unknown column 'x' in 'field list'"),
        ("SELECT t.x FROM t", "1054 (42S22): Unknown column 't.x' in 'field list'"),
        ("SELECT a FROM t WHERE x = 1", "1054 (42S22): Unknown column 'x' in 'where clause'"),
        ("SELECT a c FROM t WHERE c = 1", "1054 (42S22): Unknown column 'c' in 'where clause'"),
        ("SELECT a FROM t ORDER BY x", "1054 (42S22): Unknown column 'x' in 'order clause'"),
        ("SELECT a FROM t ORDER BY 2", "1054 (42S22): Unknown column '2' in 'order clause'"),
        ("SELECT a FROM t GROUP BY x", "1054 (42S22): Unknown column 'x' in 'group statement'"),
        ("SELECT a FROM t HAVING x", "1054 (42S22): Unknown column 'x' in 'having clause'"),
        ("SELECT 1 FROM t JOIN t u ON x = 1", "1054 (42S22): Unknown column 'x' in 'on clause'"),
        ("SELECT a FROM t, t u", "1052 (23000): Column 'a' in field list is ambiguous"),
        ("SELECT a FROM t, t", "1066 (42000): Not unique table/alias: 't'"),
        ("SELECT a FROM nope", "1146 (42S02): Table 'dbbench.nope' doesn't exist"),
        ("SELECT a FROM T", "1146 (42S02): Table 'dbbench.T' doesn't exist"),
        ("SELECT FOO(a) FROM t", "1305 (42000): FUNCTION dbbench.FOO does not exist"),
        ("SELECT * FROM (SELECT a FROM t)", "1248 (42000): Every derived table must have its own alias"),
        ("SELECT * FROM (SELECT a, a FROM t) x", "1060 (42S21): Duplicate column name 'a'"),
        ("SELECT a FROM t WHERE COUNT(*) > 1", "1111 (HY000): Invalid use of group function"),
        ("SELECT SUM(COUNT(*)) FROM t", "1111 (HY000): Invalid use of group function"),
        ("SELECT COUNT(*) c FROM t GROUP BY c", "1056 (42000): Can't group on an aggregate"),
        ("SELECT (SELECT a FROM t)", "1242 (21000): Subquery returns more than 1 row"),
        ("SELECT (SELECT a, b FROM t LIMIT 1)", "1241 (21000): Operand should contain 1 column(s)"),
        (
            "SELECT a FROM t WHERE a IN (SELECT a FROM t LIMIT 1)",
            "1235 (42000): This version of MySQL doesn't yet support 'LIMIT & IN/ALL/ANY/SOME subquery'",
        ),
        (
            "SELECT a FROM t UNION SELECT a, b FROM t",
            "1222 (21000): The used SELECT statements have a different number of columns",
        ),
        ("INSERT INTO t (a, a) VALUES (1, 2)", "1110 (42000): Column 'a' specified twice"),
        ("INSERT INTO t (a) VALUES (1, 2)", "1136 (21S01): Column count doesn't match value count at row 1"),
        ("INSERT INTO t VALUES (1, 2, 3), (4)", "1136 (21S01): Column count doesn't match value count at row 2"),
        ("INSERT INTO t (x) VALUES (1)", "1054 (42S22): Unknown column 'x' in 'field list'"),
        ("INSERT INTO t (a) VALUES (word)", "1054 (42S22): Unknown column 'word' in 'field list'"),
        ("UPDATE t SET x = 1", "1054 (42S22): Unknown column 'x' in 'field list'"),
        ("DELETE FROM t WHERE x", "1054 (42S22): Unknown column 'x' in 'where clause'"),
        (
            "DELETE FROM t WHERE a = (SELECT MAX(a) FROM t)",
            "1093 (HY000): You can't specify target table 't' for update in FROM clause",
        ),
        ("SELECT 9223372036854775807 + 1", "1690 (22003): BIGINT value is out of range in 'expression'"),
        ("SELECT SUM (a) FROM t", "1630 (42000): FUNCTION dbbench.SUM does not exist. Check the "
         "'Function Name Parsing and Resolution' section in the Reference Manual"),
        ("SELECT CONCAT()", "1582 (42000): Incorrect parameter count in the call to native function 'CONCAT'"),
        ("SELECT 'a' REGEXP '('", "3691 (HY000): Mismatched parenthesis in regular expression."),
        ("SELECT a COLLATE nonsense FROM t", "1273 (HY000): Unknown collation: 'nonsense'"),
        ("", "1065 (42000): Query was empty"),
        ("USE mysql", "1044 (42000): Access denied for user 'agent'@'localhost' to database 'mysql'"),
        ("DROP TABLE t", "1142 (42000): DROP command denied to user 'agent'@'localhost' for table"),
        ("SELECT * FROM mysql.user", "1142 (42000): SELECT command denied to user 'agent'@'localhost' for table 'user'"),
    ],
)  # fmt: skip
def test_error_texts(sql: str, text: str) -> None:
    assert refuse(sql) == text


@pytest.mark.parametrize(
    ("sql", "near", "line"),
    [
        ('SELECT a FROM "t"', '"t"', 1),
        ("SELECT a frm t", "t", 1),
        ("SELECT Rank FROM t", "Rank FROM t", 1),
        ("SELECT a FROM table", "table", 1),
        ("SELECT a, FROM t", "FROM t", 1),
        ("SELECT a\nFROM t WHERE", "", 2),
        ("UPDATE t SET WHERE a = 1", "WHERE a = 1", 1),
        ("UPDATE t SET", "", 1),
        ("SELECT a FROM t GROUP BY", "", 1),
        ("SELECT a FROM t WHERE a == 1", "= 1", 1),
        ("SELECT 1; SELECT 2", "SELECT 2", 1),
        ("SELECT COUNT (*) FROM t", "*) FROM t", 1),
        ("SELECT CAST(a AS INT) FROM t", "INT) FROM t", 1),
        ("SELECT a FROM t LIMIT -1", "-1", 1),
        ("FROM t SELECT a", "FROM t SELECT a", 1),
    ],
)
def test_syntax_errors_point_at_the_place(sql: str, near: str, line: int) -> None:
    text = refuse(sql)
    assert text.startswith("1064")
    if "LIMIT" not in sql:
        assert text == SYNTAX.format(near, line)


def test_reserved_words_are_names_within_backticks_and_after_a_dot() -> None:
    database = SqliteDatabase([TABLE])
    assert database.run("SELECT `Rank` FROM t WHERE t.Rank = 3").text == "[('3',)]"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT @x := 1", "SELECT @@version", "SET @x = 1", "SELECT RAND()", "SELECT SLEEP(9)",
        "SELECT LOAD_FILE('/etc/passwd')", "SELECT a FROM t GROUP BY a WITH ROLLUP", "EXPLAIN SELECT 1",
        "SHOW VARIABLES", "SELECT /*!50000 1 */", "UPDATE t JOIN t u ON 1 SET t.a = 1",
    ],
)  # fmt: skip
def test_what_the_embedded_database_cannot_do_is_said(sql: str) -> None:
    assert refuse(sql).startswith("1235 (42000): This version of MySQL doesn't yet support '")


@pytest.mark.parametrize(
    "sql",
    ["SELECT a INTO OUTFILE '/tmp/x' FROM t", "ATTACH DATABASE '/tmp/x' AS y", "PRAGMA user_version", "VACUUM"],
)  # fmt: skip
def test_nothing_leaves_the_database(sql: str) -> None:
    assert refuse(sql).startswith("1064")


def test_strict_mode_refuses_text_that_is_no_number_in_changes_only() -> None:
    update = "UPDATE t SET b = 'z' WHERE a = 1"
    assert refuse(update, strict=True) == "1292 (22007): Truncated incorrect DOUBLE value: 'abc'"
    database = SqliteDatabase([TABLE], strict=True)
    assert database.run("SELECT b FROM t WHERE a = 1").text == "[('x',)]"
    assert not SqliteDatabase([TABLE]).run(update).error

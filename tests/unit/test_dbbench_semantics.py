"""What statements return on the embedded database: values worked out by MySQL's rules, by hand."""

from __future__ import annotations

import pytest

from agentrl.tasks.dbbench.records import Table
from agentrl.tasks.dbbench.sqlite import SqliteDatabase

PEOPLE = Table(
    "people",
    ("name", "age", "Home Town", "paid"),
    (
        ("Anna", "9", "Montréal", "1,200"),
        ("bob", "30", "montreal", "3.50"),
        ("Éva", "12 kg", "Paris", "abc"),
        ("Zoë", "100", "Łódź", ""),
    ),
)


def ask(sql: str) -> str:
    return SqliteDatabase([PEOPLE]).run(sql).text


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        # the default collation ignores case and accents, but not trailing spaces
        ("'a' = 'A'", "1"),
        ("'é' = 'E'", "1"),
        ("'ß' = 'SS'", "1"),
        ("'Łódź' = 'lodz'", "1"),
        ("'a' = 'a '", "0"),
        ("'a' = 'b'", "0"),
        ("'æ' = 'ae'", "1"),
        ("'–' = '-'", "0"),
        ("BINARY 'a' = 'A'", "0"),
        ("'a' COLLATE utf8mb4_bin = 'A'", "0"),
        # punctuation before digits before letters, whatever the case
        ("'_' < '1'", "1"),
        ("'9' < 'a'", "1"),
        ("'Z' > 'a'", "1"),
        ("'10' < '9'", "1"),
        # text against a number: its numeric prefix
        ("10 < '9'", "0"),
        ("'12abc' = 12", "1"),
        ("'abc' = 0", "1"),
        ("'' = 0", "1"),
        ("' 7' = 7", "1"),
        ("'1.0' = 1", "1"),
        ("'1.0' = '1'", "0"),
        ("'1,234' + 0", "1.0"),
        ("'1e2x' + 0", "100.0"),
        ("'.5' + 0", "0.5"),
        ("'0x10' + 0", "0.0"),
        ("'abc' + 1", "1.0"),
        ("'3' + '4'", "7.0"),
        # whole numbers, decimals and doubles keep apart
        ("1 + 2", "3"),
        ("10 / 4", "Decimal('2.5000')"),
        ("1 / 3", "Decimal('0.3333')"),
        ("2.5 / 2", "Decimal('1.25000')"),
        ("1.10 + 1", "Decimal('2.10')"),
        ("1.5 * 1.5", "Decimal('2.25')"),
        ("0.1 + 0.2 = 0.3", "1"),
        ("'10' / 4", "2.5"),
        ("5 / 0", "None"),
        ("5 % 0", "None"),
        ("7 DIV 2", "3"),
        ("-7 DIV 2", "-3"),
        ("-7 % 3", "-1"),
        ("7.5 % 2", "Decimal('1.5')"),
        ("ROUND(2.5)", "Decimal('3')"),
        ("ROUND(-2.5)", "Decimal('-3')"),
        ("ROUND(1.255, 2)", "Decimal('1.26')"),
        ("ROUND('2.5')", "2.0"),
        ("ROUND(1234, -2)", "1200"),
        ("TRUNCATE(1.999, 1)", "Decimal('1.9')"),
        ("CEIL(1.2)", "2"),
        ("FLOOR(-1.2)", "-2"),
        ("ABS('-3x')", "3.0"),
        ("CAST('12.7' AS SIGNED)", "12"),
        ("CAST(12.7 AS SIGNED)", "13"),
        ("CAST('abc' AS DECIMAL(5,2))", "Decimal('0.00')"),
        ("CAST('1234567' AS DECIMAL(5,2))", "Decimal('999.99')"),
        ("CAST('12.5' AS DECIMAL)", "Decimal('13')"),
        ("CAST(3.50 AS CHAR)", "'3.50'"),
        ("CONCAT('a', 1, 2.50, 1/2)", "'a12.500.5000'"),
        ("CONCAT(ROUND('12.5', 2), '%')", "'12.50%'"),
        ("CONCAT(1e15)", "'1e15'"),
        ("CONCAT(1e14)", "'100000000000000'"),
        ("FORMAT(1234567.891, 2)", "'1,234,567.89'"),
        # conditions
        ("1 AND 'a'", "0"),
        ("1 OR NULL", "1"),
        ("0 AND NULL", "0"),
        ("NOT 'a'", "1"),
        ("NULL = NULL", "None"),
        ("NULL <=> NULL", "1"),
        ("1 <=> NULL", "0"),
        ("1 XOR 1", "0"),
        ("'a' || 'b'", "0"),
        ("5 BETWEEN '1' AND '10'", "1"),
        ("'b' BETWEEN 'A' AND 'C'", "1"),
        ("5 IN ('5a', 6)", "1"),
        ("'x' NOT IN ('y', NULL)", "None"),
        ("(1, 'a') IN ((1, 'A'))", "1"),
        ("IF('a', 1, 2)", "2"),
        ("IF(0, 1.5, 2)", "Decimal('2.0')"),
        ("CASE WHEN 1 THEN 2 ELSE 'x' END", "'2'"),
        ("CASE 'A' WHEN 'a' THEN 'same' END", "'same'"),
        ("COALESCE(NULL, 'x', 1)", "'x'"),
        ("NULLIF('a', 'A')", "None"),
        ("GREATEST('b', 'A')", "'b'"),
        ("GREATEST(10, '9')", "10.0"),
        ("LEAST(1.5, 2)", "Decimal('1.5')"),
        # patterns
        ("'abc' LIKE 'A_C'", "1"),
        ("'É' LIKE 'e'", "1"),
        ("'a%b' LIKE 'a\\%b'", "1"),
        ("'axb' LIKE 'a\\%b'", "0"),
        ("'ab' LIKE 'a|b' ESCAPE '|'", "1"),
        ("'abc ' LIKE 'abc'", "0"),
        ("10 LIKE '1%'", "1"),
        ("'abc' NOT LIKE '%b%'", "0"),
        ("'abc' LIKE BINARY 'ABC'", "0"),
        ("'2008' REGEXP '^[0-9]{4}$'", "1"),
        ("'É' REGEXP 'é'", "1"),
        ("'é' REGEXP 'e'", "0"),
        ("'x1' RLIKE '[[:digit:]]'", "1"),
        ("REGEXP_REPLACE('a1b2', '[0-9]', '')", "'ab'"),
        ("REGEXP_SUBSTR('abc123', '[0-9]+')", "'123'"),
        ("REGEXP_INSTR('abc', 'c')", "3"),
        # text
        ("LENGTH('é')", "2"),
        ("CHAR_LENGTH('é')", "1"),
        ("UPPER('éß')", "'Éß'"),
        ("LEFT('abc', 2)", "'ab'"),
        ("RIGHT('abc', 5)", "'abc'"),
        ("SUBSTRING('abcdef', 2, 3)", "'bcd'"),
        ("SUBSTRING('abcdef', -3, 2)", "'de'"),
        ("SUBSTRING('abc', 0)", "''"),
        ("SUBSTRING('abcdef' FROM 2 FOR 2)", "'bc'"),
        ("SUBSTRING_INDEX('a.b.c', '.', 2)", "'a.b'"),
        ("SUBSTRING_INDEX('a.b.c', '.', -1)", "'c'"),
        ("LOCATE('B', 'abc')", "2"),
        ("POSITION('c' IN 'abc')", "3"),
        ("INSTR('abc', 'z')", "0"),
        ("REPLACE('aAa', 'a', 'x')", "'xAx'"),
        ("TRIM(BOTH 'x' FROM 'xxaxx')", "'a'"),
        ("TRIM('  x ')", "'x'"),
        ("LPAD('5', 3, '0')", "'005'"),
        ("LPAD('abc', 2, 'x')", "'ab'"),
        ("REVERSE('abc')", "'cba'"),
        ("CONCAT('a', NULL)", "None"),
        ("CONCAT_WS(',', 'a', NULL, 'b')", "'a,b'"),
        ("FIELD('b', 'A', 'B')", "2"),
        ("FIND_IN_SET('b', 'a,B,c')", "2"),
        ("STRCMP('a', 'B')", "-1"),
        ("MD5('a')", "'0cc175b9c0f1b6a831c399e269772661'"),
        ("HEX(255)", "'FF'"),
        ("CONV('ff', 16, 10)", "'255'"),
        ("'x' 'y'", "'xy'"),
        ('"it""s"', "'it\"s'"),
        ("'it''s'", '"it\'s"'),
        # dates
        ("YEAR('2020-01-02')", "2020"),
        ("MONTH('2020-13-01')", "None"),
        ("HOUR('10:11:12')", "10"),
        ("STR_TO_DATE('January 20, 1887', '%M %d, %Y')", "datetime.date(1887, 1, 20)"),
        ("STR_TO_DATE('5 Apr 08', '%d %b %y')", "datetime.date(2008, 4, 5)"),
        ("STR_TO_DATE('abc', '%Y')", "None"),
        ("DATE_FORMAT('2020-03-04', '%d/%m/%y %W')", "'04/03/20 Wednesday'"),
        ("DATEDIFF('2020-01-10', '2020-01-01')", "9"),
        ("DATE_ADD('2020-01-31', INTERVAL 1 MONTH)", "'2020-02-29'"),
        ("CAST('2020-03-01' AS DATE) - INTERVAL 1 DAY", "datetime.date(2020, 2, 29)"),
        ("TIMESTAMPDIFF(YEAR, '2000-05-05', '2020-05-04')", "19"),
        ("CAST('2020-01-02' AS DATE) + 0", "20200102"),
        ("CAST('2020-01-02' AS DATE) > '2020-01-01'", "1"),
        ("LAST_DAY('2020-02-10')", "datetime.date(2020, 2, 29)"),
        ("DAYNAME('2020-01-01')", "'Wednesday'"),
        ("EXTRACT(YEAR FROM '2020-01-02')", "2020"),
        ("DATABASE()", "'dbbench'"),
    ],
)
def test_one_value(expression: str, value: str) -> None:
    assert ask(f"SELECT {expression}") == f"[({value},)]"


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT name FROM people WHERE `Home Town` = 'MONTREAL'", "[('Anna',), ('bob',)]"),
        ("SELECT NAME FROM people WHERE Age > 20", "[('bob',), ('Zoë',)]"),
        ("SELECT name FROM people WHERE age > '20'", "[('Anna',), ('bob',)]"),
        ("SELECT name FROM people ORDER BY age", "[('Zoë',), ('Éva',), ('bob',), ('Anna',)]"),
        ("SELECT name FROM people ORDER BY age + 0 DESC LIMIT 1", "[('Zoë',)]"),
        ("SELECT name FROM people ORDER BY name DESC LIMIT 1, 2", "[('Éva',), ('bob',)]"),
        ("SELECT name n FROM people ORDER BY n LIMIT 1", "[('Anna',)]"),
        ("SELECT name, age FROM people ORDER BY 2 LIMIT 1", "[('Zoë', '100')]"),
        ("SELECT MAX(age), MIN(age), MAX(age + 0) FROM people", "[('9', '100', 100.0)]"),
        ("SELECT SUM(age), AVG(age) FROM people", "[(151.0, 37.75)]"),
        ("SELECT SUM(CAST(age AS SIGNED)) FROM people", "[(Decimal('151'),)]"),
        ("SELECT AVG(CAST(age AS SIGNED)) FROM people", "[(Decimal('37.7500'),)]"),
        ("SELECT COUNT(*), COUNT(DISTINCT `Home Town`) FROM people", "[(4, 3)]"),
        ("SELECT SUM(paid), SUM(REPLACE(paid, ',', '')) FROM people", "[(4.5, 1203.5)]"),
        ("SELECT SUM(age > 20) FROM people", "[(Decimal('2'),)]"),
        (
            "SELECT `Home Town`, COUNT(*) c FROM people GROUP BY `Home Town` HAVING c > 1",
            "[('Montréal', 2)]",
        ),
        ("SELECT DISTINCT LOWER(`Home Town`) t FROM people ORDER BY t", "[('łódź',), ('montréal',), ('paris',)]"),
        ("SELECT name, MAX(age + 0) FROM people", "[('Anna', 100.0)]"),
        ("SELECT GROUP_CONCAT(name ORDER BY name DESC SEPARATOR '; ') FROM people", "[('Zoë; Éva; bob; Anna',)]"),
        ("SELECT name FROM people WHERE age = (SELECT MAX(age) FROM people)", "[('Anna',)]"),
        ("SELECT name FROM people WHERE name IN (SELECT 'ANNA')", "[('Anna',)]"),
        ("SELECT COUNT(*) FROM people a JOIN people b ON a.`Home Town` = b.`Home Town`", "[(6,)]"),
        ("SELECT COUNT(*) FROM people JOIN people b USING (name)", "[(4,)]"),
        ("SELECT x.n FROM (SELECT COUNT(*) AS n FROM people) x", "[(4,)]"),
        ("WITH x AS (SELECT name FROM people) SELECT COUNT(*) FROM x", "[(4,)]"),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT * FROM n", "[(1,), (2,), (3,)]"),
        ("SELECT 'a' UNION SELECT 'A'", "[('a',)]"),
        ("SELECT 1 UNION ALL SELECT 'x'", "[('1',), ('x',)]"),
        ("SELECT name, RANK() OVER (ORDER BY age + 0) FROM people LIMIT 1", "[('Anna', 1)]"),
        ("SELECT SUM(age + 0) FROM people WHERE 1 = 0", "[(None,)]"),
        ("SELECT name FROM people WHERE name = 'nobody'", "[]"),
        ("SELECT 1 FROM DUAL", "[(1,)]"),
        ("SELECT name FROM people WHERE name = \"anna\" -- comment", "[('Anna',)]"),
        ("SHOW TABLES", "[('people',)]"),
        ("SHOW COLUMNS FROM people LIKE 'a%'", "[('age', 'text', 'YES', '', None, '')]"),
        ("DESCRIBE people name", "[('name', 'text', 'YES', '', None, '')]"),
        (
            "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() "
            "AND table_name = 'people' ORDER BY ordinal_position LIMIT 2",
            "[('name',), ('age',)]",
        ),
        ("COMMIT", "[]"),
        ("select name from people limit 1;", "[('Anna',)]"),
    ],
)  # fmt: skip
def test_one_query(sql: str, text: str) -> None:
    assert ask(sql) == text


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ("UPDATE people SET age = age + 1 WHERE name = 'anna'", "('Anna', '10', 'Montréal', '1,200')"),
        ("UPDATE people SET paid = 3.50, age = 007 WHERE name = 'Anna'", "('Anna', '7', 'Montréal', '3.50')"),
        # assignments see the values assigned before them
        ("UPDATE people SET age = '1', paid = age WHERE name = 'Anna'", "('Anna', '1', 'Montréal', '1')"),
        ("UPDATE people SET paid = NULL ORDER BY name LIMIT 1", "('Anna', '9', 'Montréal', None)"),
        ("UPDATE people p SET p.age = 1/4 WHERE p.name LIKE 'an%'", "('Anna', '0.2500', 'Montréal', '1,200')"),
        ("UPDATE people SET age = 'x' WHERE age = 9", "('Anna', 'x', 'Montréal', '1,200')"),
        ("DELETE FROM people WHERE age > 20", "('Anna', '9', 'Montréal', '1,200')"),
        ("REPLACE INTO people VALUES ('Aaron', 1, 2.0, TRUE)", "('Aaron', '1', '2.0', '1')"),
        ("INSERT INTO people (paid, name) VALUES (1e2, 'Aaron')", "('Aaron', None, None, '100')"),
        ("INSERT INTO people SET name = 'Aaron', age = DEFAULT", "('Aaron', None, None, None)"),
        ("INSERT INTO people SELECT 'Aaron', 1 + 1, AVG(age), 'x' FROM people", "('Aaron', '2', '37.75', 'x')"),
        ("INSERT INTO people VALUES ('O''Aa', 'a\\nb', 'é', '–')", "('Anna', '9', 'Montréal', '1,200')"),
    ],
)  # fmt: skip
def test_one_change(change: str, row: str) -> None:
    database = SqliteDatabase([PEOPLE])
    assert database.run(change).text == "[]"
    assert database.run("SELECT * FROM people ORDER BY name LIMIT 1").text == f"[{row}]"


def test_an_inserted_row_keeps_every_character() -> None:
    database = SqliteDatabase([PEOPLE])
    database.run("INSERT INTO people VALUES ('O''Brien', 'a\\nb', '日本 🙂', '“x”')")
    reply = database.run('SELECT * FROM people WHERE name = "o\'brien"')
    assert reply.text == str([("O'Brien", "a\nb", "日本 🙂", "“x”")])


def test_null_sorts_first_and_is_no_number() -> None:
    database = SqliteDatabase([Table("t", ("a",), (("2",), ("1",)))])
    database.run("INSERT INTO t VALUES (NULL)")
    assert database.run("SELECT a FROM t ORDER BY a").text == "[(None,), ('1',), ('2',)]"
    assert database.run("SELECT COUNT(a), SUM(a), a FROM t").text == "[(2, 3.0, '2')]"
    assert database.run("SELECT COUNT(*) FROM t WHERE a <> '2'").text == "[(1,)]"


def test_names_that_only_differ_for_sqlite() -> None:
    odd = Table(
        'weird " table`s', ("rowid", "select", "a b", "my_number("), (("1", "2", "3", "4"),)
    )
    database = SqliteDatabase([odd])
    reply = database.run(
        'SELECT `select`, ROWID, `my_number(` FROM `weird " table``s` WHERE `a b` = 3'
    )
    assert reply.text == "[('2', '1', '4')]"
    database.run('UPDATE `weird " table``s` SET rowid = 9 ORDER BY `select` LIMIT 1')
    assert database.run('SELECT rowid FROM `weird " table``s`').text == "[('9',)]"

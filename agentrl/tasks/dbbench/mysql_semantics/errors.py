"""SQL errors as MySQL words them: `1054 (42S22): Unknown column 'x' in 'field list'`.

A `SqlError` is an observation for the model, never a failure of ours, so it is no `AgentRLError`.
Numbers, states and texts: MySQL 8 error message reference.
"""

from __future__ import annotations

STATES = {
    1022: "23000", 1044: "42000", 1045: "28000", 1046: "3D000", 1048: "23000", 1049: "42000",
    1050: "42S01", 1051: "42S02", 1052: "23000", 1054: "42S22", 1055: "42000", 1056: "42000",
    1059: "42000", 1060: "42S21", 1062: "23000", 1063: "42000", 1064: "42000", 1065: "42000",
    1066: "42000", 1067: "42000", 1103: "42000", 1109: "42S02", 1110: "42000", 1115: "42000",
    1136: "21S01", 1139: "42000", 1140: "42000", 1142: "42000", 1143: "42000", 1146: "42S02",
    1149: "42000", 1153: "08S01", 1166: "42000", 1171: "42000", 1172: "42000", 1213: "40001",
    1222: "21000", 1227: "42000", 1235: "42000", 1241: "21000", 1242: "21000", 1247: "42S22",
    1248: "42000", 1250: "42000", 1264: "22003", 1287: "HY000", 1292: "22007", 1305: "42000",
    1317: "70100", 1365: "22012", 1366: "HY000", 1367: "22007", 1406: "22001", 1411: "HY000",
    1415: "0A000", 1425: "42000", 1426: "42000", 1582: "42000", 1583: "42000", 1630: "42000",
    1690: "22003",
}  # fmt: skip
"""errno -> SQLSTATE; every other number is HY000."""


class SqlError(Exception):
    """What the server answers to a statement that it cannot carry out."""

    def __init__(self, errno: int, message: str) -> None:
        super().__init__(message)
        self.errno = errno
        self.message = message

    def __str__(self) -> str:
        return error_text(self.errno, self.message)


def error_text(errno: int, message: str) -> str:
    """`1054 (42S22): Unknown column …`, the text a MySQL connector shows."""
    return f"{errno} ({STATES.get(errno, 'HY000')}): {message}"


def syntax_error(near: str = "", line: int = 1) -> SqlError:
    """1064; `near` is the statement from the offending word on (80 characters are shown)."""
    return SqlError(
        1064,
        "You have an error in your SQL syntax; check the manual that corresponds to your MySQL "
        f"server version for the right syntax to use near '{near[:80]}' at line {line}",
    )


def unknown_column(name: str, clause: str) -> SqlError:
    return SqlError(1054, f"Unknown column '{name}' in '{clause}'")


def unsupported(what: str) -> SqlError:
    """1235, also for what real MySQL can do and this one cannot: said, never guessed."""
    return SqlError(1235, f"This version of MySQL doesn't yet support '{what}'")


def wrong_arguments(function: str) -> SqlError:
    return SqlError(1582, f"Incorrect parameter count in the call to native function '{function}'")


def wrong_group_function() -> SqlError:
    return SqlError(1111, "Invalid use of group function")


def out_of_range(what: str, where: str) -> SqlError:
    return SqlError(1690, f"{what} value is out of range in '{where}'")


def too_much_work() -> SqlError:
    return SqlError(
        3024, "Query execution was interrupted, maximum statement execution time exceeded"
    )


def too_long_result(function: str, limit: int) -> SqlError:
    return SqlError(
        1301, f"Result of {function}() was larger than max_allowed_packet ({limit}) - truncated"
    )

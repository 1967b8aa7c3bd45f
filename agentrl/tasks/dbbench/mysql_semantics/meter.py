"""What one statement may cost outside SQLite's own machine: characters touched by our functions."""

from __future__ import annotations

from agentrl.tasks.dbbench.mysql_semantics.errors import SqlError, too_much_work

Value = int | float | str | None
"""What SQLite hands to a function and takes from it."""


class Meter:
    """Work done by the functions of one statement, in rough character operations.

    A count, not a clock: a statement is cut off at the same place on every machine.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.error: SqlError | None = None
        """What a function raised; SQLite itself only says that one did."""
        self.strict = False
        """Whether text that is no number is an error (a change of rows in strict mode)."""

    def begin(self, strict: bool) -> None:
        """Start the account of a new statement."""
        self.used, self.error, self.strict = 0, None, strict

    def charge(self, amount: int) -> None:
        self.used += amount
        if self.used > self.limit:
            raise too_much_work()

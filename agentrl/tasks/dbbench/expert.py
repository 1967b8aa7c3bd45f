"""An agent that knows the gold statement, and can be made unreliable.

It runs the statement and commits what the *observed* result says, so that a policy can learn from it.
The SQL of official records is unreliable, so there it commits the label of a question directly.

With `noise` n it errs with probability n at each decision, in ways a beginner would: the wrong
direction, operator, aggregate or column, a forgotten condition, a table that does not exist, an answer
list cut short. After an error message it always tries again, after a wrong result sometimes.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from agentrl.messages import Message
from agentrl.randomness import stream
from agentrl.tasks.base import Expert, call_message
from agentrl.tasks.dbbench.backend import TRUNCATED
from agentrl.tasks.dbbench.conditions import name_of
from agentrl.tasks.dbbench.records import Record

SECOND_THOUGHT = 0.2
"""Chance that the expert notices a wrong statement by its result."""
DONE = "done"
_ERROR = re.compile(r"[0-9]{4} \([0-9A-Z]{5}\): ")
_DECIMAL = re.compile(r"Decimal\('([^']*)'\)")
_DATE = re.compile(r"datetime\.date(?:time)?\(([0-9, ]+)\)")
_VALUE = re.compile(r"'((?:[^']|'')*)'")


class DBBenchExpert(Expert):
    """Acts on one record; `act` takes the messages that are new."""

    def __init__(
        self,
        record: Record,
        *,
        trust_sql: bool = True,
        quote_text: bool = False,
        seed: int = 0,
        noise: float = 0.0,
    ) -> None:
        self.record = record
        self.quote_text = quote_text
        self.noise = noise
        self.random = stream(seed, "dbbench-expert")
        self.queries = trust_sql or record.mutates
        self.calls = 0
        self.wrong = False
        """Whether the last statement was not the gold one."""

    def act(self, messages: Sequence[Message]) -> Message:
        self.calls += 1
        if not self.queries:
            return self._commit(list(self.record.label))
        if self.calls == 1:
            return self._query(self._slips())
        observed = messages[-1].content
        if self.wrong and (_ERROR.match(observed) or self.random.random() < SECOND_THOUGHT):
            return self._query(self._slips() and self.calls < 3)
        if self.record.mutates:
            return self._commit([DONE])
        answers = read_answers(observed, self.quote_text)
        if answers is None:
            answers = ["none"] if self.wrong else list(self.record.label)
        return self._commit(answers)

    def _slips(self) -> bool:
        return self.noise > 0 and self.random.random() < self.noise

    def _query(self, wrong: bool) -> Message:
        statement = spoil(self.record, self.random) if wrong else self.record.sql
        self.wrong = statement != self.record.sql
        return call_message("execute_sql", {"query": statement}, f"call_{self.calls}")

    def _commit(self, answers: list[str]) -> Message:
        if self._slips() and not self.record.mutates:
            answers = self._cut(answers)
        return call_message("commit_final_answer", {"answers": answers}, f"call_{self.calls}")

    def _cut(self, answers: list[str]) -> list[str]:
        """A list cut short; in place of a single answer a word of the question."""
        if len(answers) > 1:
            return answers[: self.random.randint(1, len(answers) - 1)]
        value = self.random.choice(
            _VALUE.findall(self.record.sql) or list(self.record.tables[0].columns)
        )
        return [f"'{value}'" if self.quote_text else value]


def read_answers(observed: str, quote_text: bool) -> list[str] | None:
    """The first column of a result text; None where it cannot be read (an error, a cut result)."""
    if TRUNCATED in observed or not observed.startswith("["):
        return None
    plain = _DATE.sub(lambda m: repr(_iso(m.group(1))), _DECIMAL.sub(r"\1", observed))
    try:
        rows = ast.literal_eval(plain)
    except (ValueError, SyntaxError):
        return None
    return [_answer(row[0], quote_text) for row in rows] or ["none"]


def _answer(value: Any, quote_text: bool) -> str:
    return f"'{value}'" if quote_text and isinstance(value, str) else str(value)


def _iso(numbers: str) -> str:
    parts = [int(part) for part in numbers.split(",")]
    day = "-".join(f"{part:02d}" for part in parts[:3])
    return day if len(parts) <= 3 else f"{day} " + ":".join(f"{part:02d}" for part in parts[3:])


# -- statements gone wrong


def spoil(record: Record, rng: random.Random) -> str:
    """The gold statement with one plausible mistake; itself where none applies."""
    ways = [way(record, rng) for way in _WAYS]
    different = [statement for statement in ways if statement not in (None, record.sql)]
    return str(rng.choice(different)) if different else record.sql


def _direction(record: Record, rng: random.Random) -> str | None:
    if " DESC LIMIT" in record.sql:
        return record.sql.replace(" DESC LIMIT", " LIMIT")
    return record.sql.replace(" LIMIT", " DESC LIMIT") if "ORDER BY" in record.sql else None


def _operator(record: Record, rng: random.Random) -> str | None:
    swapped = {" > ": " < ", " < ": " > ", " = ": " <> ", " <> ": " = "}
    head, where, tail = record.sql.partition(" WHERE ")
    for old, new in swapped.items():
        if old in tail:
            return f"{head}{where}{tail.replace(old, new, 1)}"
    return None


def _aggregate(record: Record, rng: random.Random) -> str | None:
    swapped = {"SUM(": "AVG(", "AVG(": "SUM(", "MIN(": "MAX(", "MAX(": "MIN("}
    for old, new in swapped.items():
        if old in record.sql:
            return record.sql.replace(old, new, 1)
    if "COUNT(*)" in record.sql:
        column = name_of(rng.choice(record.tables[0].columns))
        return record.sql.replace("COUNT(*)", column)
    return None


def _column(record: Record, rng: random.Random) -> str | None:
    names = [name_of(column) for column in record.tables[0].columns]
    used = [name for name in names if _word(name).search(record.sql)]
    if not used or len(names) < 2 or record.kind == "INSERT":
        return None
    old = rng.choice(used)
    new = rng.choice([name for name in names if name != old])
    return _word(old).sub(lambda m: new, record.sql, count=1)


def _word(name: str) -> re.Pattern[str]:
    """The name as a word of its own, not within quotes."""
    return re.compile(rf"(?<![\w`']){re.escape(name)}(?![\w`'])")


def _condition(record: Record, rng: random.Random) -> str | None:
    head, where, tail = record.sql.partition(" WHERE ")
    if not where:
        return None
    if " AND " in tail:
        return f"{head}{where}{tail.partition(' AND ')[2]}"
    return head + re.sub(r"^.*?(?= ORDER BY | LIMIT |$)", "", tail)


def _table(record: Record, rng: random.Random) -> str | None:
    name = name_of(record.tables[0].name)
    wrong = name_of(rng.choice(record.tables[0].columns))
    return record.sql.replace(name, wrong, 1)


def _value(record: Record, rng: random.Random) -> str | None:
    """Two values of an INSERT in the wrong order."""
    if record.kind != "INSERT":
        return None
    behind = " SET " if " VALUES " not in record.sql else " VALUES "
    head, word, tail = record.sql.partition(behind)
    found = _VALUE.findall(tail)
    if len(found) < 2:
        return None
    i = rng.randrange(len(found) - 1)
    found[i], found[i + 1] = found[i + 1], found[i]
    swapped = iter(found)
    return head + word + _VALUE.sub(lambda match: f"'{next(swapped)}'", tail)


_WAYS: tuple[Callable[[Record, random.Random], str | None], ...] = (
    _direction, _operator, _aggregate, _column, _condition, _table, _value,
)  # fmt: skip

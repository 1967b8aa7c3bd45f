"""The opening messages of an episode, in two styles.

`compact`: no system prompt and one line of words with single spaces, so that a small tokenizer sees
every name as the same token in question, SQL, result and answer. `agentbench`: a system prompt and the
user message's lines as AgentBench orders them, in our own words. Neither shows label, gold statement
or hash.
"""

from __future__ import annotations

from typing import Literal

from agentrl.messages import Message
from agentrl.tasks.dbbench.conditions import name_of
from agentrl.tasks.dbbench.records import Record

Style = Literal["compact", "agentbench"]

SYSTEM = """You answer questions about a MySQL database, and change it where you are asked to.
Think about what is asked, then call one of the two tools.
- execute_sql runs one MySQL statement, written on one line, and returns its result. Run one statement \
at a time and read the result before the next one. Long results are cut off.
- commit_final_answer ends the task. Call it only when you are sure. For a question give the values that \
answer it, exactly as the database returned them, without any other words. If you were asked to insert, \
update or delete, the database itself is checked and any answer will do.
Names with spaces or other special characters need backticks."""


def opening(record: Record, style: Style) -> tuple[Message, ...]:
    if style == "compact":
        return (Message("user", _compact(record)),)
    lines = [line for line in (record.evidence, record.hint, record.question) if line]
    return (Message("system", SYSTEM), Message("user", "\n".join(lines)))


def _compact(record: Record) -> str:
    parts = []
    for table in record.tables:
        parts += ["table", name_of(table.name), "columns", *map(name_of, table.columns)]
    if record.evidence:
        parts += ["evidence", record.evidence]
    return " ".join(" ".join([*parts, "question", record.question]).split())

"""Seeded tables and questions of every kind, in the shape of the official records.

Invariants: a sample is a function of (seed, level, split, index) alone (invariant 8). A table's
content decides by hash which split may hold it, so no table is in two splits; all splits share
one vocabulary. The label comes from the meaning of the question, computed on the rows here, never
from running the gold statement: that both agree is a test. The label is not part of the prompt.

Level `easy` writes values in quotes everywhere (question, SQL, result and answer), with numbers of
two digits, so that text order is number order and every name is the same token wherever it stands.
`medium` has numbers of any width, which MySQL compares as text unless told otherwise, names with
spaces and two conditions; `hard` adds thousands separators, accents, quotes in values, missing values,
ties, three conditions and statements of other forms.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from agentrl.randomness import stream
from agentrl.tasks.dbbench.backend import hash_rows
from agentrl.tasks.dbbench.questions import BUILDERS, Problem
from agentrl.tasks.dbbench.records import Record, Table
from agentrl.tasks.dbbench.sheets import Sheet, check_level, make_sheet

KINDS = (
    "INSERT", "UPDATE", "DELETE", "other", "counting", "comparison", "ranking",
    "aggregation-SUM", "aggregation-MIN", "aggregation-MAX", "aggregation-AVG",
)  # fmt: skip
BUCKETS = {"train": range(0, 80), "dev": range(80, 90), "std": range(90, 100)}
"""Hundredths of all tables that belong to each split."""


@lru_cache(maxsize=1024)
def generate(level_name: str, split: str, index: int, seed: int = 0) -> Record:
    """The record of one sample."""
    level = check_level(level_name)
    kind = stream(seed, "dbbench-kind", level_name, split, index).choice(KINDS)
    rng = stream(seed, "dbbench", level_name, split, index)
    while True:
        sheet = make_sheet(level, rng)
        if bucket(sheet.table) not in BUCKETS[split]:
            continue
        problem = BUILDERS[kind](sheet, rng)
        if problem is not None:
            return _record(kind, sheet, problem)


def bucket(table: Table) -> int:
    """0-99 by the table's content, whatever the order of its rows."""
    parts = [table.name, "\x1f".join(table.columns), *sorted("\x1f".join(r) for r in table.rows)]
    digest = hashlib.blake2b("\x1e".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % 100


def _record(kind: str, sheet: Sheet, problem: Problem) -> Record:
    mutates = not problem.answers
    headers = ",".join(sheet.table.columns)
    return Record(
        kind=kind,
        question=problem.question,
        hint=(
            f"The name of this table is {sheet.table.name}, and the headers of this table are "
            f"{headers}."
        ),
        tables=(sheet.table,),
        label=(problem.sql,) if mutates else problem.answers,
        answer_md5=hash_rows(problem.rows) if mutates else "",
        sql=problem.sql,
    )

"""Generated samples: solvable, reproducible, disjoint, and without the solution in the prompt."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.errors import ConfigError
from agentrl.tasks.dbbench import vocabulary
from agentrl.tasks.dbbench.expert import read_answers
from agentrl.tasks.dbbench.generator import BUCKETS, KINDS, bucket, generate
from agentrl.tasks.dbbench.mysql_semantics.syntax import RESERVED
from agentrl.tasks.dbbench.prompts import opening
from agentrl.tasks.dbbench.records import Record, Table
from agentrl.tasks.dbbench.scoring import same_answer
from agentrl.tasks.dbbench.sheets import LEVELS
from agentrl.tasks.dbbench.sqlite import SqliteDatabase

LEVEL = st.sampled_from(sorted(LEVELS))
SPLIT = st.sampled_from(sorted(BUCKETS))
INDEX = st.integers(0, 10_000)


def solved_by_gold(record: Record) -> bool:
    """Whether the gold statement gives the label, which was computed without any SQL."""
    database = SqliteDatabase(record.tables)
    reply = database.run(record.sql)
    if record.mutates:
        return not reply.error and database.hash() == record.answer_md5
    answers = read_answers(reply.text, quote_text=False)
    return answers is not None and same_answer(answers, list(record.label))


@settings(max_examples=250, deadline=None)
@given(LEVEL, SPLIT, INDEX)
def test_the_gold_statement_gives_the_label(level: str, split: str, index: int) -> None:
    record = generate(level, split, index)
    assert solved_by_gold(record), record


@settings(max_examples=150, deadline=None)
@given(LEVEL, SPLIT, INDEX, st.integers(0, 3))
def test_shapes(level: str, split: str, index: int, seed: int) -> None:
    record = generate(level, split, index, seed)
    (table,) = record.tables
    bounds = LEVELS[level]
    assert bounds.rows[0] <= len(table.rows) <= bounds.rows[1]
    assert bounds.columns[0] <= len(table.columns) <= bounds.columns[1]
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert bucket(table) in BUCKETS[split]
    assert record.kind in KINDS
    assert record.mutates == bool(record.answer_md5)
    if record.mutates:
        assert record.answer_md5 != SqliteDatabase(record.tables).hash()


@settings(max_examples=150, deadline=None)
@given(LEVEL, SPLIT, INDEX, st.sampled_from(["compact", "agentbench"]))
def test_the_prompt_holds_no_solution(level: str, split: str, index: int, style: str) -> None:
    record = generate(level, split, index)
    prompt = "\n".join(message.content for message in opening(record, style))  # type: ignore[arg-type]
    assert record.sql not in prompt
    assert "SELECT" not in prompt.replace("execute_sql", "") or style == "agentbench"
    assert record.question in prompt
    assert not record.answer_md5 or record.answer_md5 not in prompt
    for row in record.tables[0].rows:
        assert " ".join(row) not in prompt


@settings(max_examples=100, deadline=None)
@given(SPLIT, INDEX)
def test_easy_words_are_the_same_tokens_everywhere(split: str, index: int) -> None:
    record = generate("easy", split, index)
    (message,) = opening(record, "compact")
    words = message.content.split(" ")
    assert all(words), "single spaces only"
    (table,) = record.tables
    for column in (table.name, *table.columns):
        assert f" {column} " in message.content
    for value in re.findall(r"'([^']*)'", record.sql):
        assert f"'{value}'" in message.content
    for row in table.rows:
        for cell in row:
            assert cell.isascii() and cell.isalnum()
            assert not re.match(r"s|t|d|m|re|ve|ll", cell)
            assert cell.isalpha() or 10 <= int(cell) <= 99


def test_no_table_is_in_two_splits_and_none_comes_twice() -> None:
    seen: dict[tuple[object, ...], str] = {}
    for split in BUCKETS:
        for index in range(2000 if split == "train" else 500):
            (table,) = generate("easy", split, index).tables
            content = (table.name, table.columns, *sorted(table.rows))
            assert seen.setdefault(content, f"{split} {index}") == f"{split} {index}"
    assert len(seen) == 3000


def test_the_order_of_rows_does_not_move_a_table_to_another_split() -> None:
    rows = (("a", "1"), ("b", "2"), ("c", "3"))
    assert bucket(Table("t", ("x", "y"), rows)) == bucket(Table("t", ("x", "y"), rows[::-1]))


def test_all_kinds_come_about_equally_often_in_every_split() -> None:
    for split in BUCKETS:
        counts = Counter(generate("easy", split, i).kind for i in range(550))
        assert set(counts) == set(KINDS)
        assert min(counts.values()) >= 25 and max(counts.values()) <= 85


def test_all_splits_share_one_small_vocabulary() -> None:
    words = {
        split: {
            word
            for i in range(1500 if split == "train" else 500)
            for word in opening(generate("easy", split, i), "compact")[0].content.split()
        }
        for split in BUCKETS
    }
    assert words["std"] <= words["train"]
    assert words["dev"] <= words["train"]
    assert len(words["train"]) < 400


def test_a_sample_is_the_same_in_another_process() -> None:
    code = (
        "from agentrl.tasks.dbbench.generator import generate; print(generate('hard', 'std', 7, 1))"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1] == f"{generate('hard', 'std', 7, 1)}\n"
    assert generate("hard", "std", 7, 2) != generate("hard", "std", 7, 1)


def test_unknown_levels_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"'tasks.dbbench.level': 'extreme' .* easy, medium, hard"
    ):
        generate("extreme", "train", 0)


def test_no_column_is_a_reserved_word() -> None:
    names = {"name", *vocabulary.EASY_CATEGORIES, *vocabulary.EASY_NUMBERS}
    assert not {name.upper() for name in (*names, *vocabulary.EASY_TABLES)} & RESERVED

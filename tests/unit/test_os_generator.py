"""Generated problems: reproducible, disjoint, of many kinds, without the solution in the prompt."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.errors import ConfigError
from agentrl.randomness import stream
from agentrl.sandbox.files import Entry, File
from agentrl.tasks.os_interaction.expert import spoil
from agentrl.tasks.os_interaction.generator import EASY_KINDS, KINDS, generate
from agentrl.tasks.os_interaction.grading import holds
from agentrl.tasks.os_interaction.prompts import opening
from agentrl.tasks.os_interaction.records import Record
from agentrl.tasks.os_interaction.world import BUCKETS, LEVELS, bucket, make_world

LEVEL = st.sampled_from(sorted(LEVELS))
SPLIT = st.sampled_from(sorted(BUCKETS))
INDEX = st.integers(0, 10_000)


def entries(files: tuple[File, ...]) -> dict[str, Entry]:
    """The files of a record as they are found when nothing has been done."""
    out = {}
    for file in files:
        kind = "link" if file.target is not None else "folder" if file.content is None else "file"
        out[file.path] = Entry(
            kind, file.mode, 0, 0, file.modified, file.content or b"", file.target or ""
        )
    return out


def test_there_are_at_least_20_kinds_at_every_level() -> None:
    assert len(EASY_KINDS) >= 20 and len(KINDS) >= 30
    for level, kinds in (("easy", EASY_KINDS), ("medium", KINDS), ("hard", KINDS)):
        counts = Counter(generate(level, "std", i).kind for i in range(15 * len(kinds)))
        assert set(counts) == set(kinds)
        assert min(counts.values()) >= 3 and max(counts.values()) <= 45


@settings(max_examples=200)
@given(LEVEL, SPLIT, INDEX, st.integers(0, 3))
def test_shapes(level: str, split: str, index: int, seed: int) -> None:
    record = generate(level, split, index, seed)
    assert record.example is not None and record.question
    assert not record.init and not record.checks, "generated problems need no script to grade them"
    assert (record.answer is None) == bool(record.wanted) == (record.matcher is None)
    paths = [file.path for file in record.files]
    assert len(set(paths)) == len(paths)
    assert all(path.startswith("/") and "//" not in path for path in paths)
    if record.answer is not None:
        assert record.answer == record.answer.strip() != ""
        assert "\n" not in record.answer


@settings(max_examples=200)
@given(LEVEL, SPLIT, INDEX)
def test_a_change_is_not_there_before_it_is_made(level: str, split: str, index: int) -> None:
    record = generate(level, split, index)
    if record.wanted:
        before = entries(record.files)
        assert not all(holds(wanted, before) for wanted in record.wanted)


@settings(max_examples=200)
@given(LEVEL, SPLIT, INDEX, st.sampled_from(["compact", "agentbench"]))
def test_the_prompt_holds_no_solution(level: str, split: str, index: int, style: str) -> None:
    record = generate(level, split, index)
    assert record.example is not None
    prompt = "\n".join(message.content for message in opening(record, style))  # type: ignore[arg-type]
    assert record.question in prompt
    assert record.example.code not in prompt
    assert not re.search(r"\b(grep|awk|wc|sed|chmod|mkdir|readlink|tar -)\b", record.question)
    if record.answer is not None and record.kind not in ("find-file", "link-target"):
        words = record.question.split()
        # A word of the question may be the answer by chance (a line number, a count), the whole line never is.
        assert record.answer not in words or len(record.answer) <= 2 or record.answer.isdigit()
    if record.kind == "find-file":
        assert record.answer not in record.question


def test_no_world_is_in_two_splits_and_none_comes_twice() -> None:
    seen: dict[object, str] = {}
    for split in BUCKETS:
        for index in range(1500 if split == "train" else 400):
            record = generate("easy", split, index)
            content = tuple(sorted((f.path, f.content) for f in record.files if f.content))
            assert seen.setdefault(content, f"{split} {index}") == f"{split} {index}"
    assert len(seen) == 2300


def test_names_and_texts_decide_the_split_and_their_order_does_not() -> None:
    world = make_world(LEVELS["hard"], stream(0, "test"))
    turned = type(world)(
        world.level, world.root, world.other, world.folders, dict(reversed(world.files.items()))
    )
    assert bucket(turned) == bucket(world)


def test_all_splits_share_one_small_vocabulary() -> None:
    words = {
        split: {
            word
            for i in range(2000 if split == "train" else 500)
            for word in re.split(r"[ /.]", generate("easy", split, i).question)
        }
        for split in BUCKETS
    }
    assert words["std"] <= words["train"] and words["dev"] <= words["train"]
    assert len(words["train"]) < 250


def test_a_sample_is_the_same_in_another_process() -> None:
    code = "from agentrl.tasks.os_interaction.generator import generate; print(generate('hard', 'std', 7, 1))"
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
        ConfigError, match="'extreme' is no level; choose one of easy, medium, hard"
    ):
        generate("extreme", "train", 0)


@pytest.mark.parametrize("level", LEVELS)
def test_a_spoiled_script_is_another_script(level: str) -> None:
    def script(record: Record) -> str:
        return record.example.code if record.example else ""

    for index in range(150):
        record = generate(level, "train", index)
        assert spoil(record, stream(index, "test")) != script(record)

"""Records in their official shape, and when an answer or a state counts."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from agentrl.errors import ConfigError, DataError
from agentrl.sandbox.files import Entry
from agentrl.tasks.os_interaction.grading import counts_programs, holds, same_answer
from agentrl.tasks.os_interaction.records import (
    Folder,
    MissingScript,
    Script,
    Wanted,
    official_files,
    parse_record,
    read_official,
)

NOWHERE = Folder()
CHECK = {
    "check": [None, {"language": "python", "file": "check/integer-match.py"}],
    "example": "nproc",
}


def parse(**fields: Any) -> Any:
    return parse_record({"description": "how many ?", "evaluation": CHECK, **fields}, NOWHERE)


def test_a_common_grader_and_an_example() -> None:
    record = parse(create={"local": "packages", "init": "touch a"}, start="x=1")
    assert (record.matcher, record.answer, record.example) == ("integer", None, Script("nproc"))
    assert (record.image, record.init, record.start) == ("packages", (Script("touch a"),), "x=1")
    assert record.needs_truth and record.asks


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("yes", ("exact", "yes", True)),
        ({"answer": "yes", "strip": False}, ("exact", "yes", False)),
        ({"answer": "yes"}, ("exact", "yes", True)),
        ({"regex": "^y"}, ("pattern", "^y", True)),
    ],
)
def test_texts_and_patterns(match: Any, expected: tuple[str, str, bool]) -> None:
    record = parse(evaluation={"match": match})
    assert (record.matcher, record.answer, record.strip) == expected
    assert not record.needs_truth


def test_scripts_of_every_shape() -> None:
    evaluation = {
        "check": ["true", None, {"language": "python", "code": "pass"}],
        "example": {"code": "ls"},
    }
    record = parse(evaluation=evaluation, create={"init": ["a", {"code": "b"}]})
    assert record.checks == (Script("true"), None, Script("pass", "python"))
    assert record.init == (Script("a"), Script("b"))
    assert record.matcher is None and record.needs_truth
    one = parse(evaluation={"check": {"code": "exit 0"}}, example={"code": "gold"})
    assert one.checks == (Script("exit 0"),) and one.example == Script("gold")


def test_graders_in_the_place_of_an_image_make_nothing() -> None:
    assert parse(create=[None, {"file": "check/integer-match.py"}]).init == ()


@pytest.mark.parametrize(
    ("start", "left", "user"),
    [
        ("useradd jack && cd /home/jack && su - jack", "useradd jack && cd /home/jack", "jack"),
        ("su - jack", "", "jack"),
        ("su - jack -c 'ls'", "su - jack -c 'ls'", None),
        ("mkdir a && cd a", "mkdir a && cd a", None),
    ],
)
def test_a_start_that_ends_as_another_user(start: str, left: str, user: str | None) -> None:
    record = parse(start=start)
    assert (record.start, record.user) == (left, user)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"description": " "}, "'description'"),
        ({"evaluation": {}}, "'match' or 'check'"),
        ({"evaluation": {"match": 3}}, "neither text"),
        ({"evaluation": {"check": []}}, "must not be empty"),
        ({"evaluation": {"check": CHECK["check"]}}, "'evaluation.example': missing"),
        ({"create": {"init": 3}}, "'create.init'"),
        ({"create": {"init": {"language": "c", "code": ""}}}, "'c' is none of bash, python"),
        ({"create": {"init": {"file": "../../etc/passwd"}}}, "below the folder"),
        ({"create": {"init": {}}}, "needs 'code' or 'file'"),
    ],
)
def test_what_is_wrong_is_said(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse(**fields)


def test_script_files_are_found_where_they_lie(tmp_path: Path) -> None:
    (tmp_path / "b" / "init").mkdir(parents=True)
    (tmp_path / "b" / "init" / "x.sh").write_text("echo x")
    scripts = Folder(tmp_path / "a", tmp_path / "b")
    record = parse_record(
        {"description": "?", "evaluation": CHECK, "create": {"init": {"file": "init/x.sh"}}},
        scripts,
    )
    assert record.init == (Script("echo x"),)
    with pytest.raises(MissingScript):
        scripts.read("init/y.sh")


def official(root: Path, *records: Any, name: str = "data/1/a.json") -> Path:
    path = root / "os_interaction" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(list(records)))
    return root


def test_numbers_run_on_where_a_record_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = {"description": "?", "evaluation": CHECK}
    lost = {**good, "create": {"init": {"file": "init/stock.sh"}}}
    official(tmp_path, good, lost, good)
    official(tmp_path, good, name="data/2/b.json")
    with caplog.at_level(logging.WARNING):
        assert list(read_official(tmp_path, "std")) == [0, 2, 3]
    assert (
        "1 of 4 official records of std are left out: no script files init/stock.sh" in caplog.text
    )


def test_files_of_a_folder_are_sorted(tmp_path: Path) -> None:
    for name in ("data/4/N4.json", "data/4/N11.json", "data/1/z.json", "data/7/a.json"):
        official(tmp_path, name=name)
    names = [path.name for path, _ in official_files(tmp_path, "std")]
    assert names == ["z.json", "N11.json", "N4.json", "a.json"]


def test_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'data_root': not set"):
        official_files(None, "std")
    with pytest.raises(DataError, match="holds no record of split std"):
        read_official(tmp_path, "std")
    official(tmp_path, {"description": "?"})
    with pytest.raises(DataError, match=r"a\.json, record 0: field 'evaluation'"):
        read_official(tmp_path, "std")


# -- answers and states


@pytest.mark.parametrize(
    ("matcher", "answer", "truth", "same"),
    [
        ("exact", " yes\n", "yes", True),
        ("exact", "Yes", "yes", False),
        ("pattern", "it is 42", r"\b42\b", True),
        ("pattern", "it is 421", r"\b42\b", False),
        ("integer", "5", "5\n", True),
        ("integer", " +05 ", "5", True),
        ("integer", "5 files", "5", False),
        ("integer", "5.0", "5", False),
        ("integer", "", "", False),
        ("integer", "1", "1\n2\n", False),
        ("string", "a\r\nb", "a\nb\n", True),
        ("string", "a b", "a  b", False),
        ("size", "4.0K", "4.0K\n", True),
        ("size", "4096", "4.0K", True),
        ("size", "4 KB", "4.0K", True),
        ("size", "4KiB", "4K", True),
        ("size", "4M", "4K", False),
        ("size", "four", "four", False),
        ("size", "1.2.3K", "1K", False),
        ("contains", "the answer is abc", "abc\n", True),
        ("contains", "", "", False),
    ],
)
def test_answers(matcher: Any, answer: str, truth: str, same: bool) -> None:
    assert same_answer(answer, truth, matcher) is same


def test_an_answer_that_must_not_be_stripped() -> None:
    assert not same_answer("yes ", "yes", "exact", strip=False)


FILE = Entry("file", 0o640, 0, 0, 0, b"one\ntwo\n")
TREE = {"/d": Entry("folder", 0o755, 0, 0, 0), "/d/f": FILE, "/d/l": Entry("link", 0o777, 0, 0, 0, target="/d/f"),
        "/d/e": Entry("folder", 0o755, 0, 0, 0), "/d/e/x": FILE}  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "there"),
    [
        (Wanted("/d/f"), True),
        (Wanted("/d/f", content="one\ntwo"), True),
        (Wanted("/d/f", content="one\ntwo\n"), True),
        (Wanted("/d/f", content="one"), False),
        (Wanted("/d/f", mode=0o640), True),
        (Wanted("/d/f", mode=0o644), False),
        (Wanted("/d/f", "folder"), False),
        (Wanted("/d/f", "absent"), False),
        (Wanted("/d/g", "absent"), True),
        (Wanted("/d/g"), False),
        (Wanted("/d/l", "link", target="/d/f"), True),
        (Wanted("/d/l", "link", target="/d/e"), False),
        (Wanted("/d/l", "file", content="one\ntwo"), False),
        (Wanted("/d", "folder", names=("e", "f", "l")), True),
        (Wanted("/d", "folder", names=("e", "f")), False),
    ],
)
def test_states(wanted: Wanted, there: bool) -> None:
    assert holds(wanted, TREE) is there


def test_questions_about_programs_are_known() -> None:
    assert counts_programs(Script("ps -ef | wc -l")) and counts_programs(
        Script("cat /proc/loadavg")
    )
    assert not counts_programs(Script("grep -w lamps /root/a | wc -l"))

"""Records: the official shape, and one line of error for each way to break it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError, DataError
from agentrl.tasks.dbbench.generator import generate
from agentrl.tasks.dbbench.records import parse_record, read_records
from agentrl.tasks.dbbench.sheets import LEVELS
from agentrl.tasks.dbbench.task import DBBenchTask

RECORD: dict[str, Any] = {
    "description": "Which town is Anna from?",
    "label": ["Oslo"],
    "type": ["other"],
    "table": {
        "table_name": "people",
        "table_info": {
            "columns": [{"name": "name", "type": "TEXT"}, {"name": "age", "type": "INT"}],
            "rows": [["Anna", 9], ["Bob", None]],
        },
    },
    "add_description": "The name of this table is people.",
    "sql": {"query": "SELECT 1", "length": 8},
    "source": "made up",
}


def changed(path: str, value: Any) -> dict[str, Any]:
    record = copy.deepcopy(RECORD)
    *parents, last = path.split(".")
    place: Any = record
    for key in parents:
        place = place[key]
    place[last] = value
    return record


def test_every_value_is_text() -> None:
    record = parse_record(RECORD)
    assert record.tables[0].rows == (("Anna", "9"), ("Bob", "None"))
    assert (record.kind, record.label, record.sql) == ("other", ("Oslo",), "SELECT 1")
    assert not record.mutates


def test_a_mutation_has_its_statement_and_hash() -> None:
    md5 = "09aa8fbf72f39362970f95a1276b957c"
    data = {**RECORD, "type": ["UPDATE"], "label": ["UPDATE people SET age = 1"]}
    assert parse_record({**data, "answer_md5": f"[('{md5}',)]"}).answer_md5 == md5
    assert parse_record({**data, "answer_md5": ""}).answer_md5 == ""
    assert parse_record(data).sql == "UPDATE people SET age = 1"


def test_several_tables() -> None:
    record = parse_record(
        {**RECORD, "table": [RECORD["table"], changed("table.table_name", "b")["table"]]}
    )
    assert [table.name for table in record.tables] == ["people", "b"]


@pytest.mark.parametrize("level", LEVELS)
def test_generated_records_have_the_official_shape(level: str) -> None:
    for index in range(20):
        record = generate(level, "dev", index)
        assert parse_record(json.loads(json.dumps(record.to_json()))) == record


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "a record must be a JSON object"),
        (changed("type", ["guess"]), "field 'type': ['guess'] is not one known kind in a list"),
        (changed("type", "other"), "field 'type': 'other' is not one known kind in a list"),
        (changed("label", []), "field 'label': must be a list with at least one entry"),
        (changed("description", " "), "field 'description': must be text"),
        (changed("evidence", 3), "field 'evidence': must be text"),
        (changed("table", "people"), "field 'table': needs 'table_name' and 'table_info'"),
        (changed("table.table_name", ""), "field 'table.table_name': must be a name"),
        (changed("table.table_info.columns", []), "field 'table.table_info.columns': must be a list of columns"),
        (changed("table.table_info.columns", [{}, {}]), "every column needs a 'name'"),
        (
            changed("table.table_info.columns", [{"name": "a"}, {"name": "A"}]),
            "a name stands twice in ['a', 'A']",
        ),
        (changed("table.table_info.rows", {}), "field 'table.table_info.rows': must be a list of rows"),
        (changed("table.table_info.rows", [["x"]]), "row 0 must have 2 values"),
        (
            {**RECORD, "type": ["DELETE"], "answer_md5": "[('xyz',)]"},
            "field 'answer_md5': \"[('xyz',)]\" holds no md5 (32 hexadecimal digits)",
        ),
    ],
)  # fmt: skip
def test_a_broken_record_names_file_line_and_field(tmp_path: Path, data: Any, said: str) -> None:
    path = tmp_path / "standard.jsonl"
    path.write_text(json.dumps(RECORD) + "\n\n" + json.dumps(data) + "\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_records(path)
    assert str(caught.value).startswith(f"{path} line 3: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_lines_that_are_no_json_and_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "dev.jsonl"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="line 1: "):
        read_records(path)
    path.write_bytes(b"\xff\n")
    with pytest.raises(DataError, match="is not UTF-8 text"):
        read_records(path)
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(DataError, match="holds no record"):
        read_records(path)
    with pytest.raises(DataError, match=r"nowhere\.jsonl: cannot be read"):
        read_records(tmp_path / "nowhere.jsonl")


def official(folder: Path, **settings: Any) -> DBBenchTask:
    return DBBenchTask(TaskConfig(source="official", **{"train_split": "dev", **settings}), folder)


def test_official_splits_are_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "dbbench"
    folder.mkdir()
    (folder / "standard.jsonl").write_text(json.dumps(RECORD) + "\n", encoding="utf-8")
    (folder / "dev.jsonl").write_text(2 * (json.dumps(RECORD) + "\n"), encoding="utf-8")
    task = official(tmp_path)
    assert task.level == "official"
    assert (len(task.samples("std")), len(task.samples("dev"))) == (1, 2)
    assert task.record(task.samples("dev")[1]).label == ("Oslo",)


def test_there_are_no_official_records_to_train_on(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no split 'train'.*train_split: dev"):
        official(tmp_path).samples("train")
    with pytest.raises(ConfigError, match="config key 'data_root'"):
        DBBenchTask(TaskConfig(source="official", train_split="dev"), None)
    with pytest.raises(DataError, match=r"standard\.jsonl: cannot be read"):
        official(tmp_path).samples("std")

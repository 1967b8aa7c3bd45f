"""Records and ontology: the official shapes, and one line of error for each way to break them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError, DataError
from agentrl.tasks.knowledgegraph.generator import LEVELS, generate
from agentrl.tasks.knowledgegraph.ontology import read_ontology
from agentrl.tasks.knowledgegraph.records import Action, parse_record, read_records
from agentrl.tasks.knowledgegraph.task import KnowledgeGraphTask

RECORD: dict[str, Any] = {
    "question": "which friend of Ann is the oldest?",
    "qid": "17",
    "source": "made up",
    "s_expression": "unused",
    "entities": {"Ann": "m.0ann"},
    "actions": [
        "get_relations(m.0ann)",
        "get_neighbors(m.0ann,people.person.friend)",
        "get_attributes(#0)",
        "argmax(#0,people.person.age)",
    ],
    "answer": [
        {"answer_type": "Entity", "answer_argument": "m.0bob", "entity_name": "Bob"},
        {"answer_argument": "g.0cat"},
    ],
}
ONTOLOGY = {
    "fb_roles": "people.person people.person.friend people.person\n"
    "people.person people.person.lover people.person\n"
    "people.person people.person.age type.int\n"
    "people.person people.person.born type.datetime\n"
    "people.person people.person.motto type.text\n"
    "two lines run together here by mistake\n",
    "reverse_properties": "people.person.friend\tpeople.person.friend_of\n",
    "vocab.json": json.dumps(
        {
            "relations": ["people.person.friend"],
            "attributes": ["people.person.age"],
            "classes": ["people.person"],
        }
    ),
}


def changed(path: str, value: Any) -> dict[str, Any]:
    record = copy.deepcopy(RECORD)
    *parents, last = path.split(".")
    place: Any = record
    for key in parents:
        place = place[int(key) if key.isdigit() else key]
    place[int(last) if last.isdigit() else last] = value
    return record


def test_a_record() -> None:
    record = parse_record(RECORD)
    assert record.entities == {"Ann": "m.0ann"}
    assert record.actions[1] == Action("get_neighbors", ("m.0ann", "people.person.friend"))
    assert str(record.actions[3]) == "argmax(#0,people.person.age)"
    assert record.answers == ("m.0bob", "g.0cat")
    assert record.names == {"m.0bob": "Bob"}


@pytest.mark.parametrize("level", LEVELS)
def test_generated_records_have_the_official_shape(level: str) -> None:
    for index in range(20):
        record = generate(level, "dev", index)
        assert parse_record(json.loads(json.dumps(record.to_json()))) == record


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "a record must be a JSON object"),
        (changed("question", " "), "field 'question': must be text"),
        (changed("entities", ["Ann"]), "field 'entities': must be an object"),
        (changed("entities.Ann", 3), "field 'entities': must be an object"),
        (changed("answer", []), "field 'answer': must be a list with at least one entry"),
        (changed("answer.0", "m.0bob"), "field 'answer': every entry needs an 'answer_argument'"),
        (changed("actions", "count(#0)"), "field 'actions': must be a list of calls"),
        (changed("actions.0", "get_relations(m.0ann"), "'get_relations(m.0ann' is no call of a known tool"),
        (changed("actions.0", "union(#0,#1)"), "'union(#0,#1)' is no call of a known tool"),
        (changed("actions.0", "count(#0,#1)"), "'count(#0,#1)' is no call of a known tool"),
        (changed("actions.0", 4), "4 is no call of a known tool"),
        (changed("actions.2", "get_attributes(#1)"), "there is no variable #1 yet"),
        (changed("actions.3", "get_attributes(#0)"), "the last one, 'get_attributes(#0)', makes no variable"),
    ],
)  # fmt: skip
def test_a_broken_record_names_file_record_and_field(tmp_path: Path, data: Any, said: str) -> None:
    path = tmp_path / "std.json"
    path.write_text(json.dumps([RECORD, data]), encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_records(path)
    assert str(caught.value).startswith(f"{path} record 1: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_hold_no_records(tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    for text, said in (
        ("{", "is not JSON"),
        ("{}", "a JSON list of records"),
        ("[]", "a JSON list"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=said):
            read_records(path)
    path.write_bytes(b"\xff")
    with pytest.raises(DataError, match="is not JSON"):
        read_records(path)
    with pytest.raises(DataError, match=r"nowhere\.json: cannot be read"):
        read_records(tmp_path / "nowhere.json")


def write_ontology(folder: Path, **changes: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {**ONTOLOGY, **changes}.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_the_strict_view_is_the_vocabulary(tmp_path: Path) -> None:
    strict, everything = read_ontology(write_ontology(tmp_path))
    assert strict.relations == {"people.person.friend": ("people.person", "people.person")}
    assert strict.attributes == {"people.person.age": ("people.person", "number")}
    # by inverse too, but no literals
    assert set(everything.relations) == {
        "people.person.friend", "people.person.lover", "people.person.friend_of",
    }  # fmt: skip
    assert everything.relations["people.person.friend_of"] == ("people.person", "people.person")
    assert everything.attributes == {
        "people.person.age": ("people.person", "number"),
        "people.person.born": ("people.person", "date"),
        "topic_server.population_number": ("common.topic", "number"),
    }
    assert everything.inverse["people.person.friend_of"] == "people.person.friend"
    assert everything.relations_of("people.person") == sorted(everything.relations)
    assert "people.person" in everything.types and "common.topic" in everything.types


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"vocab.json": "[]"}, r"vocab\.json: must be a JSON object with lists"),
        ({"vocab.json": "{"}, r"vocab\.json: must be a JSON object with lists"),
        ({"fb_roles": "one two\n"}, "fb_roles: holds no line of 3 words"),
    ],
)
def test_a_broken_ontology_names_the_file(
    tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    with pytest.raises(DataError, match=said):
        read_ontology(write_ontology(tmp_path, **changes))


def test_a_missing_ontology_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"fb_roles: cannot be read"):
        read_ontology(tmp_path)


async def test_official_splits_are_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "knowledgegraph"
    write_ontology(folder / "ontology")
    for name, count in (("std", 1), ("dev", 2), ("kg_rl_all", 3)):
        (folder / f"{name}.json").write_text(json.dumps(count * [RECORD]), encoding="utf-8")
    task = KnowledgeGraphTask(TaskConfig(source="official"), tmp_path)
    assert task.level == "official, synthetic surroundings"
    assert [len(task.samples(split)) for split in ("std", "dev", "train")] == [1, 2, 3]
    assert task.record(task.samples("dev")[1]).qid == "17"
    strict = KnowledgeGraphTask(TaskConfig(source="official", options={"strict": True}), tmp_path)
    assert strict.level == "official, synthetic surroundings, strict"
    whole = {"backend": "endpoint", "endpoint": {"url": "http://127.0.0.1:1/sparql"}}
    freebase = KnowledgeGraphTask(TaskConfig(source="official", options=whole), tmp_path)
    assert freebase.level == "official, graph of the endpoint"
    await freebase.close()


def test_official_records_need_a_folder() -> None:
    with pytest.raises(ConfigError, match=r"config key 'data_root'.*knowledgegraph/std\.json"):
        KnowledgeGraphTask(TaskConfig(source="official"))

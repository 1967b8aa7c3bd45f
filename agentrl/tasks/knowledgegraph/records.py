"""One problem of the task: a question, the entities it names, the calls that solve it, the answer.

The shape is that of AgentBench's `data/knowledgegraph/*.json` (`spec/tasks.md` §3), for official and
generated samples alike. The official files say nothing of the graph; `surroundings` rebuilds one. Of the
20 official `dev` samples 13 are in `train` too: the publisher's splits, kept as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError, DataError

OFFICIAL_FILES = {"train": "kg_rl_all.json", "dev": "dev.json", "std": "std.json"}
ARITY = {
    "get_relations": 1, "get_neighbors": 2, "intersection": 2, "get_attributes": 1, "argmax": 2,
    "argmin": 2, "count": 1,
}  # fmt: skip
MAKES_VARIABLE = frozenset(ARITY) - {"get_relations", "get_attributes"}
_ACTION = re.compile(r"(\w+)\(([^()]*)\)")


@dataclass(frozen=True, slots=True)
class Action:
    """One call; arguments are identifiers, `#i`, relations and attributes."""

    tool: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.tool}({','.join(self.arguments)})"


@dataclass(frozen=True, slots=True)
class Record:
    question: str
    entities: Mapping[str, str]
    """Name, as the agent reads and types it -> identifier."""
    actions: tuple[Action, ...]
    """The calls that lead to the answer, which is their last variable."""
    answers: tuple[str, ...]
    """Identifiers, or one number."""
    names: Mapping[str, str]
    """Identifier -> name, of answers that have one."""
    qid: str = ""

    def to_json(self) -> dict[str, Any]:
        """The official shape."""
        counted = self.actions[-1].tool == "count"
        return {
            "question": self.question,
            "qid": self.qid,
            "entities": dict(self.entities),
            "actions": [str(action) for action in self.actions],
            "answer": [
                {"answer_type": "Value" if counted else "Entity", "answer_argument": answer}
                | ({"entity_name": self.names[answer]} if answer in self.names else {})
                for answer in self.answers
            ],
        }


def parse_record(data: Any) -> Record:
    """A record from its official JSON; raises `ValueError` that says which field is wrong."""
    if not isinstance(data, Mapping):
        raise ValueError("a record must be a JSON object")
    question, entities = data.get("question"), data.get("entities")
    if not isinstance(question, str) or not question.strip():
        raise ValueError("field 'question': must be text")
    if not isinstance(entities, Mapping) or not all(
        isinstance(value, str) for value in entities.values()
    ):
        raise ValueError("field 'entities': must be an object of names and identifiers")
    answers = _answers(data.get("answer"))
    return Record(
        question,
        {str(name): str(value) for name, value in entities.items()},
        _actions(data.get("actions")),
        tuple(dict.fromkeys(identifier for identifier, _ in answers)),
        {identifier: name for identifier, name in answers if name},
        str(data.get("qid", "")),
    )


def _actions(written: Any) -> tuple[Action, ...]:
    if not isinstance(written, list) or not written:
        raise ValueError("field 'actions': must be a list of calls")
    actions: list[Action] = []
    variables = 0
    for text in written:
        match = _ACTION.fullmatch(text) if isinstance(text, str) else None
        arguments = tuple(part.strip() for part in match[2].split(",")) if match else ()
        if match is None or ARITY.get(match[1]) != len(arguments):
            raise ValueError(f"field 'actions': {text!r} is no call of a known tool")
        for argument in arguments:
            if argument.startswith("#") and not (
                argument[1:].isdecimal() and int(argument[1:]) < variables
            ):
                raise ValueError(f"field 'actions': {text!r}: there is no variable {argument} yet")
        variables += match[1] in MAKES_VARIABLE
        actions.append(Action(match[1], arguments))
    if actions[-1].tool not in MAKES_VARIABLE:
        raise ValueError(f"field 'actions': the last one, {written[-1]!r}, makes no variable")
    return tuple(actions)


def _answers(written: Any) -> list[tuple[str, str]]:
    """(answer, name or "") of each."""
    if not isinstance(written, list) or not written:
        raise ValueError("field 'answer': must be a list with at least one entry")
    out = []
    for entry in written:
        argument = entry.get("answer_argument") if isinstance(entry, Mapping) else None
        if not isinstance(argument, str) or not argument:
            raise ValueError("field 'answer': every entry needs an 'answer_argument'")
        name = entry.get("entity_name")
        out.append((argument, name if isinstance(name, str) else ""))
    return out


def read_records(path: Path) -> tuple[Record, ...]:
    """Every record of a JSON file, in order."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not JSON: {error}") from None
    if not isinstance(data, list) or not data:
        raise DataError(f"{path}: must be a JSON list of records")
    records = []
    for number, entry in enumerate(data):
        try:
            records.append(parse_record(entry))
        except ValueError as error:
            raise DataError(f"{path} record {number}: {error}") from None
    return tuple(records)


def official_folder(data_root: Path | None) -> Path:
    if data_root is None:
        raise ConfigError(
            "config key 'data_root': not set, but tasks.knowledgegraph.source is 'official'; set it to "
            "the folder that holds knowledgegraph/std.json and knowledgegraph/ontology"
        )
    return data_root / "knowledgegraph"

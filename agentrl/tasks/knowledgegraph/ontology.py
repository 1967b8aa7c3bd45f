"""Which relations and attributes there are, and between which types: the vocabulary of the tools.

AgentBench's files (`data_root/knowledgegraph/ontology`, `spec/tasks.md` §3): `fb_roles` gives domain and
range of a predicate, `vocab.json` the relations and attributes that the reference's tools know,
`reverse_properties` the inverse of a relation. The official records use some that the vocabulary lacks; the
`strict` view is the vocabulary alone, the other one has every predicate of the files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl.errors import DataError
from agentrl.tasks.knowledgegraph.programs import Kind

TOPIC = "common.topic"
"""The type of everything."""
KINDS: dict[str, Kind] = {"type.int": "number", "type.float": "number", "type.datetime": "date"}
UNLISTED = {"topic_server.population_number": (TOPIC, "type.int")}
"""Attributes of the official records of which the files know nothing, with domain and range."""


@dataclass(frozen=True)
class Ontology:
    """Relations with (domain, range), attributes with (domain, kind of value), inverses."""

    relations: Mapping[str, tuple[str, str]]
    attributes: Mapping[str, tuple[str, Kind]]
    inverse: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        by_type: dict[str, list[str]] = {}
        attributes: dict[str, list[str]] = {}
        for relation, (domain, _) in sorted(self.relations.items()):
            by_type.setdefault(domain, []).append(relation)
        for attribute, (domain, _) in sorted(self.attributes.items()):
            attributes.setdefault(domain, []).append(attribute)
        object.__setattr__(self, "_relations_of", by_type)
        object.__setattr__(self, "_attributes_of", attributes)
        ends = {end for ends in self.relations.values() for end in ends}
        object.__setattr__(self, "types", frozenset({TOPIC, *ends, *attributes}))

    types: frozenset[str] = field(init=False, repr=False)
    _relations_of: Mapping[str, list[str]] = field(init=False, repr=False)
    _attributes_of: Mapping[str, list[str]] = field(init=False, repr=False)

    def relations_of(self, kind: str) -> list[str]:
        """Relations that lead away from a type, in alphabetical order."""
        return self._relations_of.get(kind, [])

    def attributes_of(self, kind: str) -> list[str]:
        return self._attributes_of.get(kind, [])

    def domain(self, relation: str) -> str:
        return self.relations.get(relation, (TOPIC, TOPIC))[0]

    def range(self, relation: str) -> str:
        return self.relations.get(relation, (TOPIC, TOPIC))[1]


def read_ontology(folder: Path) -> tuple[Ontology, Ontology]:
    """(strict, everything) from AgentBench's files."""
    roles = {name: (domain, target) for domain, name, target in _columns(folder / "fb_roles", 3)}
    inverse = dict(
        pair for left, right in _columns(folder / "reverse_properties", 2)
        for pair in ((right, left), (left, right))
    )  # fmt: skip
    for name, other in inverse.items():
        if name not in roles and other in roles:
            roles[name] = (roles[other][1], roles[other][0])
    roles |= UNLISTED
    vocabulary = _vocabulary(folder / "vocab.json")
    everything = Ontology(
        {name: ends for name, ends in roles.items() if not ends[1].startswith("type.")},
        {
            name: (domain, KINDS[target])
            for name, (domain, target) in roles.items()
            if target in KINDS
        },
        inverse,
    )
    strict = Ontology(
        {name: everything.relations.get(name, (TOPIC, TOPIC)) for name in vocabulary["relations"]},
        {name: everything.attributes.get(name, (TOPIC, "number")) for name in vocabulary["attributes"]},
        inverse,
    )  # fmt: skip
    return strict, everything


def _columns(path: Path, count: int) -> list[list[str]]:
    """Lines of `count` words; others are left out (line 5607 of `fb_roles` is two run together)."""
    rows = [row for line in _read(path).splitlines() if len(row := line.split()) == count]
    if not rows:
        raise DataError(f"{path}: holds no line of {count} words")
    return rows


def _vocabulary(path: Path) -> dict[str, list[str]]:
    try:
        data: Any = json.loads(_read(path))
        return {key: sorted(map(str, data[key])) for key in ("relations", "attributes")}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise DataError(
            f"{path}: must be a JSON object with lists 'relations' and 'attributes'"
        ) from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not UTF-8 text") from None

"""What a variable means: a program over relations, attributes and entities, and its SPARQL 1.1.

Invariants: a program is a value, never run before it is asked for; its size is bounded (`MAX_SIZE`), so
no sequence of calls makes a query that grows without limit; identifiers reach a query only inside of
`<...>`, and only as they were checked by `variables` (invariant 10). The text is standard SPARQL 1.1, the
same for every back end.

The largest (smallest) of a set are *all* members whose attribute has the extreme value. Values are
compared as numbers, dates as text: ISO dates of any precision order so, except years before 1 among
each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Literal

NS = "http://rdf.freebase.com/ns/"
XSD = "http://www.w3.org/2001/XMLSchema#"
TYPE, NAME = "type.object.type", "type.object.name"
MAX_SIZE = 200
"""Steps of one program; those of the set below an extreme count twice, for its query repeats them."""

Kind = Literal["number", "date"]
"""How the values of an attribute compare."""


@dataclass(frozen=True, slots=True)
class Entity:
    id: str
    size: int = 1


@dataclass(frozen=True, slots=True)
class Instances:
    """Everything of one type."""

    type: str
    size: int = 1


@dataclass(frozen=True, slots=True)
class Join:
    """What `relation` leads to from the members of `of`."""

    of: Program
    relation: str

    @property
    def size(self) -> int:
        return self.of.size + 1


@dataclass(frozen=True, slots=True)
class And:
    left: Program
    right: Program

    @property
    def size(self) -> int:
        return self.left.size + self.right.size + 1


@dataclass(frozen=True, slots=True)
class Extreme:
    """The members of `of` with the largest or smallest value of `attribute`."""

    of: Program
    attribute: str
    kind: Kind
    largest: bool

    @property
    def size(self) -> int:
        return 2 * self.of.size + 1


@dataclass(frozen=True, slots=True)
class Count:
    """How many members `of` has: a number, of which nothing further can be asked."""

    of: Program

    @property
    def size(self) -> int:
        return self.of.size + 1


Program = Entity | Instances | Join | And | Extreme | Count


def iri(identifier: str) -> str:
    return f"<{NS}{identifier}>"


def outgoing(program: Program) -> str:
    """The query for the predicates that lead away from the members of `program`."""
    body = "\n".join(_pattern(program, "?x", _fresh()))
    return f"SELECT DISTINCT ?p WHERE {{\n{body}\n?x ?p ?o .\n}}"


def members(program: Program, without: Iterable[str] = ()) -> str:
    """The query for the answer: members (or their number), never the entities of `without`.

    Texts in other languages than English are no members.
    """
    head = "SELECT DISTINCT ?x"
    if isinstance(program, Count):
        head, program = "SELECT (COUNT(DISTINCT ?x) AS ?n)", program.of
    lines = list(_pattern(program, "?x", _fresh()))
    lines.append('FILTER (!isLiteral(?x) || LANG(?x) = "" || LANGMATCHES(LANG(?x), "en"))')
    lines += [f"FILTER (?x != {iri(entity)})" for entity in without]
    return "\n".join([f"{head} WHERE {{", *lines, "}"])


def _fresh() -> Iterator[str]:
    return (f"?v{number}" for number in count())


def _pattern(program: Program, name: str, fresh: Iterator[str]) -> Iterator[str]:
    """Lines of a group pattern that binds `name` to the members of `program`."""
    match program:
        case Entity(identifier):
            yield f"VALUES {name} {{ {iri(identifier)} }}"
        case Instances(kind):
            yield f"{name} {iri(TYPE)} {iri(kind)} ."
        case Join(Entity(identifier), relation):
            yield f"{iri(identifier)} {iri(relation)} {name} ."
        case Join(of, relation):
            source = next(fresh)
            yield from _pattern(of, source, fresh)
            yield f"{source} {iri(relation)} {name} ."
        case And(left, right):
            yield from _pattern(left, name, fresh)
            yield from _pattern(right, name, fresh)
        case Extreme(of, attribute, kind, largest):
            value, other, rival, best = (next(fresh) for _ in range(4))
            yield from _pattern(of, name, fresh)
            yield f"{name} {iri(attribute)} {value} ."
            function = "MAX" if largest else "MIN"
            yield f"{{ SELECT ({function}({_key(rival, kind)}) AS {best}) WHERE {{"
            yield from _pattern(of, other, fresh)
            yield f"{other} {iri(attribute)} {rival} ."
            yield "} }"
            yield f"FILTER ({_key(value, kind)} = {best})"
        case Count():
            raise ValueError("a number has no members")


def _key(name: str, kind: Kind) -> str:
    return f"<{XSD}double>(STR({name}))" if kind == "number" else f"STR({name})"

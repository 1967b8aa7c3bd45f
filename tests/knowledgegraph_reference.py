"""What programs mean, by Python sets over triples: independent of SPARQL. And random graphs and programs."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from agentrl.tasks.knowledgegraph.backend import Text, Triple
from agentrl.tasks.knowledgegraph.programs import (
    TYPE,
    And,
    Count,
    Entity,
    Extreme,
    Instances,
    Join,
    Program,
)

ENTITIES = tuple(f"m.{letter}" for letter in "abcdefghij")
RELATIONS = ("r.one", "r.two", "r.three")
NUMBERS, DATES = "a.number", "a.date"
TYPES = ("t.left", "t.right")


def members(program: Program, triples: Sequence[Triple]) -> set[str]:
    """Every member; of a count its number."""
    match program:
        case Entity(identifier):
            return {identifier}
        case Instances(kind):
            return {s for s, p, o in triples if p == TYPE and o == kind}
        case Join(of, relation):
            sources = members(of, triples)
            return {
                o if isinstance(o, str) else o.text
                for s, p, o in triples
                if s in sources and p == relation
            }
        case And(left, right):
            return members(left, triples) & members(right, triples)
        case Extreme(of, attribute, kind, largest):
            inside = members(of, triples)
            values = [
                (float(o.text) if kind == "number" else o.text, s)
                for s, p, o in triples
                if s in inside and p == attribute and isinstance(o, Text)
            ]
            if not values:
                return set()
            best = (max if largest else min)(value for value, _ in values)
            return {s for value, s in values if value == best}
        case Count(of):
            return {str(len(members(of, triples)))}


def outgoing(program: Program, triples: Sequence[Triple]) -> set[str]:
    inside = members(program, triples)
    return {p for s, p, _ in triples if s in inside}


def random_graph(rng: random.Random, edges: int = 40) -> tuple[Triple, ...]:
    """Loops, ties, members without a value and members with two are all likely."""
    triples: dict[Triple, None] = {}
    for _ in range(edges):
        relation, target = rng.choice(RELATIONS), rng.choice(ENTITIES)
        triples[rng.choice(ENTITIES), relation, target] = None
    for entity in ENTITIES:
        triples[entity, TYPE, rng.choice(TYPES)] = None
        for _ in range(rng.choice((0, 1, 1, 2))):
            triples[entity, NUMBERS, _number(rng)] = None
        for _ in range(rng.choice((0, 1, 1, 2))):
            triples[entity, DATES, _date(rng)] = None
    return tuple(triples)


def _number(rng: random.Random) -> Text:
    if rng.random() < 0.5:
        return Text(str(rng.choice((-3, 0, 7, 12, 12, 100))), "integer")
    return Text(rng.choice(("0.5", "12.0", "99.75", "-3.0")), "double")


def _date(rng: random.Random) -> Text:
    if rng.random() < 0.3:
        return Text(str(rng.choice((1850, 1999, 2000))), "gYear")
    return Text(
        f"{rng.choice((1850, 1999, 2000))}-0{rng.randint(1, 9)}-1{rng.randint(0, 9)}", "date"
    )


def random_program(rng: random.Random, depth: int, relations: Iterable[str] = RELATIONS) -> Program:
    """A set; every kind of step at every depth."""
    choices = tuple(relations)
    kind = rng.random()
    if depth <= 1:
        start: Program = (
            Entity(rng.choice(ENTITIES)) if rng.random() < 0.85 else Instances(rng.choice(TYPES))
        )
        return Join(start, rng.choice(choices))
    if kind < 0.4:
        return Join(random_program(rng, depth - 1, choices), rng.choice(choices))
    if kind < 0.7:
        left = random_program(rng, rng.randint(1, depth - 1), choices)
        return And(left, random_program(rng, rng.randint(1, depth - 1), choices))
    inner = random_program(rng, depth - 1, choices)
    if rng.random() < 0.5:
        return Extreme(inner, NUMBERS, "number", rng.random() < 0.5)
    return Extreme(inner, DATES, "date", rng.random() < 0.5)

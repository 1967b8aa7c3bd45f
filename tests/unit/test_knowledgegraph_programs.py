"""Programs as SPARQL give the sets that they mean."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.errors import InfrastructureError
from agentrl.tasks.knowledgegraph.backend import Text, Triple
from agentrl.tasks.knowledgegraph.oxigraph import OxigraphGraph, make_store
from agentrl.tasks.knowledgegraph.programs import (
    And,
    Count,
    Entity,
    Extreme,
    Instances,
    Join,
    Program,
    members,
    outgoing,
)
from tests import knowledgegraph_reference as reference
from tests.knowledgegraph_reference import DATES, NUMBERS, random_graph, random_program

TRIPLES: tuple[Triple, ...] = (
    ("m.ann", "friend", "m.bob"),
    ("m.ann", "friend", "m.cat"),
    ("m.ann", "friend", "m.dan"),
    ("m.eve", "friend", "m.bob"),
    ("m.bob", "boss", "m.eve"),
    ("m.cat", "boss", "m.eve"),
    ("m.bob", "age", Text("9", "integer")),
    ("m.cat", "age", Text("30", "integer")),
    ("m.dan", "age", Text("30.0", "double")),
    ("m.bob", "born", Text("1990-05-01", "date")),
    ("m.cat", "born", Text("1990", "gYear")),
    ("m.bob", "type.object.type", "person"),
    ("m.ann", "type.object.type", "person"),
    ("m.ann", "called", Text("Anna", "english")),
)
FRIENDS = Join(Entity("m.ann"), "friend")


async def ask(query: str, triples: tuple[Triple, ...] = TRIPLES) -> list[str]:
    return await OxigraphGraph(make_store(triples)).select(query)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (FRIENDS, ["m.bob", "m.cat", "m.dan"]),
        (Join(FRIENDS, "boss"), ["m.eve"]),
        (Join(Join(FRIENDS, "boss"), "friend"), ["m.bob"]),
        (And(FRIENDS, Join(Entity("m.eve"), "friend")), ["m.bob"]),
        (And(FRIENDS, Join(FRIENDS, "boss")), []),
        # 9 < 30 as numbers (as text "9" would be the larger); 30 and 30.0 are a tie
        (Extreme(FRIENDS, "age", "number", True), ["m.cat", "m.dan"]),
        (Extreme(FRIENDS, "age", "number", False), ["m.bob"]),
        # dan has no date; a year comes before its days
        (Extreme(FRIENDS, "born", "date", False), ["m.cat"]),
        (Extreme(FRIENDS, "born", "date", True), ["m.bob"]),
        (Join(Extreme(FRIENDS, "age", "number", False), "boss"), ["m.eve"]),
        (Extreme(Join(Entity("m.dan"), "friend"), "age", "number", True), []),
        (Instances("person"), ["m.ann", "m.bob"]),
        (Join(Instances("person"), "friend"), ["m.bob", "m.cat", "m.dan"]),
        (Entity("m.ann"), ["m.ann"]),
        (Count(FRIENDS), ["3"]),
        (Count(And(FRIENDS, FRIENDS)), ["3"]),
        (Count(Join(Entity("m.dan"), "friend")), ["0"]),
        (Join(Entity("m.ann"), "called"), ["Anna"]),
    ],
)  # fmt: skip
async def test_by_hand(program: Program, expected: list[str]) -> None:
    assert await ask(members(program)) == expected


async def test_entities_that_are_left_out_and_other_languages() -> None:
    assert await ask(members(FRIENDS, ["m.bob", "m.ann"])) == ["m.cat", "m.dan"]
    assert await ask(members(Count(FRIENDS), ["m.bob"])) == ["2"]
    from pyoxigraph import Literal, NamedNode, Quad, Store

    ns = "http://rdf.freebase.com/ns/"
    graph = OxigraphGraph(make_store(TRIPLES))
    assert isinstance(graph._store, Store)
    graph._store.add(
        Quad(NamedNode(ns + "m.ann"), NamedNode(ns + "called"), Literal("Anne", language="fr"))
    )
    assert await graph.select(members(Join(Entity("m.ann"), "called"))) == ["Anna"]


async def test_outgoing_predicates() -> None:
    assert await ask(outgoing(Entity("m.ann"))) == ["called", "friend", "type.object.type"]
    assert await ask(outgoing(Join(Entity("m.eve"), "friend"))) == [
        "age", "born", "boss", "type.object.type",
    ]  # fmt: skip
    assert await ask(outgoing(Entity("m.nobody"))) == []


def test_sizes_double_below_an_extreme() -> None:
    assert FRIENDS.size == 2
    assert And(FRIENDS, FRIENDS).size == 5
    assert Extreme(FRIENDS, "age", "number", True).size == 5
    assert Extreme(Extreme(FRIENDS, "a", "number", True), "b", "number", True).size == 11


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 5))
async def test_random_programs_agree_with_python_sets(seed: int, depth: int) -> None:
    rng = random.Random(seed)
    triples = random_graph(rng)
    program = random_program(rng, depth)
    graph = OxigraphGraph(make_store(triples))
    expected = reference.members(program, triples)
    assert set(await graph.select(members(program))) == expected
    assert await graph.select(members(Count(program))) == [str(len(expected))]
    assert set(await graph.select(outgoing(program))) == reference.outgoing(program, triples)


def test_the_reference_itself_by_hand() -> None:
    triples: tuple[Triple, ...] = (
        ("m.a", "r.one", "m.b"),
        ("m.a", "r.one", "m.c"),
        ("m.b", NUMBERS, Text("2", "integer")),
        ("m.c", NUMBERS, Text("11", "integer")),
        ("m.c", DATES, Text("1999", "gYear")),
    )
    both = Join(Entity("m.a"), "r.one")
    assert reference.members(both, triples) == {"m.b", "m.c"}
    assert reference.members(Extreme(both, NUMBERS, "number", True), triples) == {"m.c"}
    assert reference.members(Count(both), triples) == {"2"}
    assert reference.outgoing(both, triples) == {NUMBERS, DATES}


async def test_a_closed_graph_is_not_asked() -> None:
    graph = OxigraphGraph(make_store(TRIPLES))
    await graph.close()
    await graph.close()
    with pytest.raises(InfrastructureError, match="closed"):
        await graph.select(members(FRIENDS))

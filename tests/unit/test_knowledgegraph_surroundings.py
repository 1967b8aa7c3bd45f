"""Rebuilt graphs: the calls give exactly the answer, and nothing invented changes or betrays it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.errors import DataError
from agentrl.tasks.knowledgegraph.backend import Text, Triple
from agentrl.tasks.knowledgegraph.ontology import Ontology
from agentrl.tasks.knowledgegraph.programs import TYPE, Entity, Join
from agentrl.tasks.knowledgegraph.records import Action, Record
from agentrl.tasks.knowledgegraph.surroundings import Richness, gold_program, surround
from tests import knowledgegraph_reference as reference

ONTOLOGY = Ontology(
    relations={
        "p.friend": ("p", "p"), "p.boss": ("p", "p"), "p.home": ("p", "c"), "c.people": ("c", "p"),
        "c.mayor": ("c", "p"), "c.twin": ("c", "c"),
    },
    attributes={"p.age": ("p", "number"), "p.born": ("p", "date"), "c.size": ("c", "number")},
    inverse={"p.home": "c.people", "c.people": "p.home"},
)  # fmt: skip


def record(*calls: str, answers: tuple[str, ...] = ("m.x", "m.y")) -> Record:
    actions = tuple(
        Action(tool, tuple(rest.rstrip(")").split(",")))
        for tool, rest in (c.split("(") for c in calls)
    )
    entities = {"Ann": "m.ann", "Bob": "m.bob", "Oslo": "m.oslo"}
    return Record("?", entities, actions, answers, {}, "q")


CASES = {
    "one step": record("get_neighbors(m.ann,p.friend)"),
    "chain with its inverse": record(
        "get_neighbors(m.ann,p.home)", "get_neighbors(#0,c.people)", "get_neighbors(#1,p.home)"
    ),
    "same relation twice": record("get_neighbors(m.ann,p.friend)", "get_neighbors(#0,p.friend)"),
    "both": record(
        "get_neighbors(m.ann,p.friend)", "get_neighbors(m.bob,p.boss)", "intersection(#0,#1)"
    ),
    "a set with itself": record("get_neighbors(m.ann,p.friend)", "intersection(#0,#0)"),
    "onward": record(
        "get_neighbors(m.ann,p.friend)", "get_neighbors(m.oslo,c.people)", "intersection(#0,#1)",
        "get_neighbors(#2,p.boss)",
    ),
    "largest": record("get_neighbors(m.oslo,c.people)", "argmax(#0,p.age)"),
    "earliest": record("get_neighbors(m.oslo,c.people)", "argmin(#0,p.born)"),
    "largest of the earliest": record(
        "get_neighbors(m.oslo,c.people)", "argmin(#0,p.born)", "argmax(#1,p.age)"
    ),
    "count": record("get_neighbors(m.oslo,c.people)", "count(#0)", answers=("30",)),
    "from a type": record(
        "get_neighbors(c,c.mayor)", "get_neighbors(m.ann,p.boss)", "intersection(#0,#1)"
    ),
    "the question's own entity": record("get_neighbors(m.ann,p.friend)", answers=("m.bob", "m.x")),
}  # fmt: skip


def build(one: Record, seed: int, richness: Richness | None = None) -> tuple[Triple, ...]:
    return surround(one, ONTOLOGY, random.Random(seed), richness or Richness())


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(CASES)), st.integers(0, 10**9))
def test_the_calls_give_exactly_the_answer(case: str, seed: int) -> None:
    one = CASES[case]
    triples = build(one, seed)
    program = gold_program(one, ONTOLOGY)
    assert reference.members(program, triples) == set(one.answers)


@pytest.mark.parametrize("case", CASES)
def test_in_every_case(case: str) -> None:
    one = CASES[case]
    program = gold_program(one, ONTOLOGY)
    for seed in range(20):
        assert reference.members(program, build(one, seed)) == set(one.answers)


@pytest.mark.parametrize("case", ["both", "largest", "onward", "chain with its inverse", "count"])
def test_no_shorter_way_has_the_answer(case: str) -> None:
    one = CASES[case]
    for seed in range(20):
        triples = build(one, seed)
        for length in range(1, len(one.actions)):
            shorter = replace(one, actions=one.actions[:length])
            found = reference.members(gold_program(shorter, ONTOLOGY), triples)
            assert found != set(one.answers)
            assert str(len(found)) not in one.answers or case != "count" or length == 1


def test_other_relations_do_not_lead_to_the_answer() -> None:
    """But for inverses, an answer has edges of the solution only."""
    one = CASES["both"]
    for seed in range(20):
        for subject, predicate, thing in build(one, seed):
            if thing in one.answers and predicate != TYPE:
                assert (subject, predicate) in {("m.ann", "p.friend"), ("m.bob", "p.boss")} or (
                    predicate in ONTOLOGY.inverse
                )


def test_relations_of_the_solution_occur_elsewhere_too() -> None:
    """Or the order of the steps could be read off the lists: only one of them would ever be there."""
    one = record(
        "get_neighbors(m.ann,p.friend)", "get_neighbors(#0,p.boss)", "get_neighbors(#1,p.home)"
    )
    for seed in range(20):
        found = reference.outgoing(Entity("m.ann"), build(one, seed, Richness(chance=1.0)))
        assert {"p.friend", "p.boss", "p.home"} <= found


def test_other_attributes_do_not_choose_the_answer() -> None:
    one = CASES["largest"]
    for seed in range(20):
        triples = build(one, seed)
        for tool in ("argmax", "argmin"):
            for attribute in ("p.born", "p.age"):
                if (tool, attribute) == ("argmax", "p.age"):
                    continue
                other = replace(one, actions=(*one.actions[:1], Action(tool, ("#0", attribute))))
                found = reference.members(gold_program(other, ONTOLOGY), triples)
                assert found and found != set(one.answers)


def test_richness_is_a_measure() -> None:
    one = CASES["both"]
    bare = build(one, 0, Richness(relations=0, attributes=0, chance=0.0, nodes=0))
    edges = [t for t in bare if isinstance(t[2], str) and t[1] != TYPE]
    # two answers on both sides, and one to three strangers a side
    assert 6 <= len(edges) <= 10
    assert {(s, p) for s, p, _ in edges} == {("m.ann", "p.friend"), ("m.bob", "p.boss")}
    assert not any(isinstance(thing, Text) and thing.type != "english" for _, _, thing in bare)
    assert len(build(one, 0)) > 4 * len(bare)


def test_a_graph_is_a_function_of_the_seed() -> None:
    one = CASES["onward"]
    assert build(one, 5) == build(one, 5)
    assert build(one, 5) != build(one, 6)


def test_names_and_types_are_in_the_graph() -> None:
    triples = build(replace(CASES["both"], names={"m.x": "Xenia"}), 0)
    assert ("m.ann", "type.object.name", Text("Ann", "english")) in triples
    assert ("m.x", "type.object.name", Text("Xenia", "english")) in triples
    assert ("m.x", TYPE, "p") in triples


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (record("get_neighbors(m.ann,p.friend)", "count(#0)"), "a count cannot be ['m.x', 'm.y']"),
        (record("get_neighbors(m.ann,p.friend)", "count(#0)", answers=("0",)), "a count cannot be ['0']"),
        (
            record(
                "get_neighbors(m.ann,p.friend)", "get_neighbors(m.ann,p.boss)", "intersection(#0,#1)",
                "get_neighbors(m.ann,p.friend)", "intersection(#2,#3)",
            ),
            "two steps read p.friend of m.ann",
        ),
        (record("count(m.ann)", answers=("2",)), "it does not start with get_neighbors"),
    ],
)  # fmt: skip
def test_what_no_graph_can_hold_is_named(one: Record, said: str) -> None:
    with pytest.raises(DataError) as caught:
        build(one, 0)
    assert str(caught.value) == f"knowledgegraph record 'q' cannot be rebuilt: {said}"


def test_gold_programs() -> None:
    assert gold_program(CASES["same relation twice"], ONTOLOGY) == Join(
        Join(Entity("m.ann"), "p.friend"), "p.friend"
    )

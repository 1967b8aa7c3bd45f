"""The seven tools: what they make, what they refuse, and how `strict` differs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from agentrl.tasks.knowledgegraph.backend import Text, TooCostly, Triple
from agentrl.tasks.knowledgegraph.ontology import Ontology
from agentrl.tasks.knowledgegraph.oxigraph import OxigraphGraph, make_store
from agentrl.tasks.knowledgegraph.variables import Refused, Session

ONTOLOGY = Ontology(
    relations={
        "person.friend": ("person", "person"),
        "person.home": ("person", "city"),
        "city.mayor": ("city", "politician"),
        "city.people": ("city", "person"),
    },
    attributes={"person.age": ("person", "number"), "person.born": ("person", "date")},
)
ENTITIES = {"Ann Lee": "m.ann", "Group": "g.1abc"}
TRIPLES: tuple[Triple, ...] = (
    ("m.ann", "person.friend", "m.bob"),
    ("m.ann", "person.friend", "m.cat"),
    ("m.ann", "person.home", "m.oslo"),
    ("m.ann", "unknown.relation", "m.bob"),
    ("m.ann", "type.object.type", "person"),
    ("m.bob", "person.home", "m.oslo"),
    ("m.oslo", "city.mayor", "m.bob"),
    ("m.oslo", "city.people", "m.ann"),
    ("m.oslo", "city.people", "m.bob"),
    ("m.bob", "person.age", Text("40", "integer")),
    ("m.cat", "person.age", Text("7", "integer")),
    ("g.1abc", "person.friend", "m.cat"),
)


def session(strict: bool = False) -> Session:
    return Session(OxigraphGraph(make_store(TRIPLES)), ONTOLOGY, ENTITIES, strict)


async def test_relations_are_those_of_the_ontology_in_alphabetical_order() -> None:
    tools = session()
    assert await tools.get_relations("Ann Lee") == ["person.friend", "person.home"]
    assert await tools.get_relations("m.ann") == ["person.friend", "person.home"]
    assert await tools.get_relations("m.cat") == []
    assert tools.variables == []


async def test_variables_are_numbered_as_they_are_made() -> None:
    tools = session()
    assert await tools.get_neighbors("Ann Lee", "person.friend") == 0
    with pytest.raises(Refused):
        await tools.get_neighbors("#0", "city.mayor")
    assert await tools.get_relations("#0") == ["person.home"]
    assert await tools.get_neighbors("#0", "person.home") == 1
    assert [variable.type for variable in tools.variables] == ["person", "city"]
    assert await tools.get_neighbors("#1", "city.people") == 2
    assert await tools.intersection("#0", "#2") == 3
    assert await tools.count("#3") == 4
    assert tools.variables[4].type == "number"
    assert [await tools.answer(i) for i in range(5)] == [
        ["m.bob", "m.cat"], ["m.oslo"], ["m.ann", "m.bob"], ["m.bob"], ["1"],
    ]  # fmt: skip


async def test_extremes() -> None:
    tools = session()
    await tools.get_neighbors("Ann Lee", "person.friend")
    assert await tools.get_attributes("#0") == ["person.age"]
    assert await tools.argmax("#0", "person.age") == 1
    assert await tools.argmin("#0", "person.age") == 2
    assert (await tools.answer(1), await tools.answer(2)) == (["m.bob"], ["m.cat"])
    with pytest.raises(Refused, match=r"person.born is no attribute of #0"):
        await tools.argmax("#0", "person.born")


Call = Callable[[Session], Awaitable[object]]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda s: s.get_relations("Bob"), "Bob is neither a variable (#0, #1, …) nor one of the entities: Ann Lee, Group."),
        (lambda s: s.get_relations("#1"), "There is no variable #1."),
        (lambda s: s.get_relations("#x"), "#x is no variable"),
        (lambda s: s.get_relations("# 0"), "# 0 is no variable"),
        (lambda s: s.get_relations("#٣"), "is no variable"),
        (lambda s: s.get_relations("#99999999999"), "is no variable"),
        (lambda s: s.get_relations("m.ann> ?p ?o } #"), "is neither"),
        (lambda s: s.get_neighbors("Ann Lee", "city.mayor"), "city.mayor is no relation of Ann Lee."),
        (lambda s: s.get_neighbors("Ann Lee", "unknown.relation"), "is no relation"),
        (lambda s: s.get_neighbors("Ann Lee", "> ?x . ?x <"), "is no relation"),
        (lambda s: s.intersection("#0", "Ann Lee"), "Ann Lee is no variable"),
        (lambda s: s.intersection("#0", "#7"), "There is no variable #7."),
        (lambda s: s.get_attributes("m.ann"), "m.ann is no variable"),
        (lambda s: s.argmax("Ann Lee", "person.age"), "is no variable"),
        (lambda s: s.argmin("#0", "person.home"), "person.home is no attribute of #0."),
        (lambda s: s.count("Ann Lee"), "is no variable"),
        (lambda s: s.answer(1), "There is no variable #1."),
        (lambda s: s.answer(-1), "There is no variable #-1."),
    ],
)  # fmt: skip
async def test_what_is_refused_makes_no_variable(call: Call, said: str) -> None:
    tools = session()
    await tools.get_neighbors("Ann Lee", "person.friend")
    with pytest.raises(Refused) as caught:
        await call(tools)
    assert said in str(caught.value)
    assert len(tools.variables) == 1


async def test_a_number_can_only_be_the_answer() -> None:
    tools = session()
    await tools.get_neighbors("Ann Lee", "person.friend")
    await tools.count("#0")
    calls: list[Call] = [
        lambda s: s.get_relations("#1"),
        lambda s: s.get_neighbors("#1", "person.friend"),
        lambda s: s.intersection("#0", "#1"),
        lambda s: s.get_attributes("#1"),
        lambda s: s.count("#1"),
    ]
    for call in calls:
        with pytest.raises(Refused, match="#1 is a number"):
            await call(tools)


async def test_programs_do_not_grow_without_limit() -> None:
    tools = session()
    await tools.get_neighbors("Ann Lee", "person.friend")
    with pytest.raises(Refused, match="too many steps"):
        for number in range(20):
            await tools.intersection(f"#{number}", f"#{number}")
    assert len(tools.variables) < 10
    tools = session()
    await tools.get_neighbors("Ann Lee", "person.friend")
    with pytest.raises(Refused, match="too many steps"):
        for number in range(20):
            await tools.argmax(f"#{number}", "person.age")
    assert len(tools.variables) < 10


async def test_strict_is_the_reference() -> None:
    strict, relaxed = session(strict=True), session()
    for tools in (strict, relaxed):
        await tools.get_neighbors("Ann Lee", "person.home")
        await tools.get_neighbors("#0", "city.mayor")
        await tools.get_neighbors("Ann Lee", "person.friend")
        await tools.get_neighbors("#0", "city.people")
    with pytest.raises(Refused, match=r"politician and #2 of type person.*equal types"):
        await strict.intersection("#1", "#2")
    assert await relaxed.answer(await relaxed.intersection("#1", "#2")) == ["m.bob"]
    # the question's own entities are no answer
    assert await strict.answer(3) == ["m.bob"]
    assert await relaxed.answer(3) == ["m.ann", "m.bob"]
    # entities are m. or f.; a type is nothing to start from
    for name in ("Group", "person"):
        with pytest.raises(Refused, match="is neither"):
            await strict.get_relations(name)
    assert await relaxed.get_relations("Group") == ["person.friend"]
    assert await relaxed.get_relations("person") == ["person.friend", "person.home"]
    number = await relaxed.get_neighbors("person", "person.friend")
    assert await relaxed.answer(number) == ["m.bob", "m.cat"]


class Slow:
    async def select(self, query: str) -> list[str]:
        raise TooCostly

    async def close(self) -> None: ...


async def test_what_takes_too_long_is_refused() -> None:
    tools = Session(Slow(), ONTOLOGY, ENTITIES)
    with pytest.raises(Refused, match="too long"):
        await tools.get_relations("Ann Lee")


async def test_a_program_is_asked_about_once() -> None:
    asked: list[str] = []

    class Counting(OxigraphGraph):
        async def select(self, query: str) -> list[str]:
            asked.append(query)
            return await super().select(query)

    tools = Session(Counting(make_store(TRIPLES)), ONTOLOGY, ENTITIES)
    await tools.get_relations("Ann Lee")
    await tools.get_neighbors("Ann Lee", "person.friend")
    await tools.get_neighbors("m.ann", "person.home")
    assert len(asked) == 1

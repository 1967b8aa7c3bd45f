"""What the seven tools do: sets of entities, named #0, #1, …, each a type and a program.

Invariants: text of the model is compared with what exists and never becomes part of a query otherwise
(invariant 10); a call that cannot be carried out is a `Refused` with words that help, and makes no
variable; lists are sorted, so an episode reads the same in every process (invariant 8).

Rules (`spec/tasks.md` §3). `strict` is the reference: an intersection wants equal types, relations and
attributes are those of AgentBench's vocabulary, entities are `m.` or `f.`, and the entities of the question
are taken out of the answer. All of these refuse a part of the official solutions; without `strict` an
intersection wants any two sets, every relation and attribute of the ontology counts, `g.` entities and
names of types (all their instances) can be asked about, and the answer is what the program gives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from agentrl.tasks.knowledgegraph.backend import Graph, TooCostly
from agentrl.tasks.knowledgegraph.ontology import Ontology
from agentrl.tasks.knowledgegraph.programs import (
    MAX_SIZE,
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

NUMBER = "number"
_ENTITY = {True: re.compile(r"[mf]\.[A-Za-z0-9_]+"), False: re.compile(r"[mfg]\.[A-Za-z0-9_]+")}
_VARIABLE = re.compile(r"#([0-9]{1,4})")


class Refused(Exception):
    """The call cannot be carried out; its text is for the model."""


@dataclass(frozen=True, slots=True)
class Variable:
    type: str
    program: Program


class Session:
    """The variables of one episode."""

    def __init__(
        self, graph: Graph, ontology: Ontology, entities: Mapping[str, str], strict: bool = False
    ) -> None:
        self.graph = graph
        self.ontology = ontology
        self.entities = entities
        self.strict = strict
        self.variables: list[Variable] = []
        self._predicates: dict[Program, list[str]] = {}

    # -- the tools

    async def get_relations(self, name: str) -> list[str]:
        found = await self._outgoing(self._thing(name))
        return [predicate for predicate in found if predicate in self.ontology.relations]

    async def get_neighbors(self, name: str, relation: str) -> int:
        """The number of the new variable, as of every tool that makes one."""
        known = await self.get_relations(name)
        if relation not in known:
            raise Refused(f"{relation} is no relation of {name}.")
        return self._add(self.ontology.range(relation), Join(self._thing(name), relation))

    async def intersection(self, first: str, second: str) -> int:
        left, right = self._set(first), self._set(second)
        if self.strict and left.type != right.type:
            raise Refused(
                f"{first} is of type {left.type} and {second} of type {right.type}: an intersection "
                "needs equal types."
            )
        return self._add(left.type, And(left.program, right.program))

    async def get_attributes(self, name: str) -> list[str]:
        found = await self._outgoing(self._set(name).program)
        return [predicate for predicate in found if predicate in self.ontology.attributes]

    async def argmax(self, name: str, attribute: str) -> int:
        return await self._extreme(name, attribute, largest=True)

    async def argmin(self, name: str, attribute: str) -> int:
        return await self._extreme(name, attribute, largest=False)

    async def count(self, name: str) -> int:
        return self._add(NUMBER, Count(self._set(name).program))

    # -- the answer

    async def answer(self, number: int) -> list[str]:
        """What variable `number` holds."""
        if not 0 <= number < len(self.variables):
            raise Refused(f"There is no variable #{number}.")
        without = sorted(set(self.entities.values())) if self.strict else ()
        return await self._select(members(self.variables[number].program, without))

    # --

    async def _extreme(self, name: str, attribute: str, largest: bool) -> int:
        known = await self.get_attributes(name)
        if attribute not in known:
            raise Refused(f"{attribute} is no attribute of {name}.")
        found = self._set(name)
        kind = self.ontology.attributes[attribute][1]
        return self._add(found.type, Extreme(found.program, attribute, kind, largest))

    def _add(self, kind: str, program: Program) -> int:
        if program.size > MAX_SIZE:
            raise Refused("This variable would be made of too many steps.")
        self.variables.append(Variable(kind, program))
        return len(self.variables) - 1

    def _thing(self, name: str) -> Program:
        """An entity, a set, or (not `strict`) the name of a type."""
        name = name.strip()
        if name.startswith("#"):
            return self._set(name).program
        known = self.entities.get(name, name)
        if _ENTITY[self.strict].fullmatch(known):
            return Entity(known)
        if not self.strict and known in self.ontology.types:
            return Instances(known)
        names = ", ".join(self.entities)
        raise Refused(
            f"{name[:80]} is neither a variable (#0, #1, …) nor one of the entities: {names}."
        )

    def _set(self, name: str) -> Variable:
        name = name.strip()
        match = _VARIABLE.fullmatch(name)
        if match is None:
            raise Refused(f"{name[:80]} is no variable; variables are written #0, #1, …")
        number = int(match[1])
        if number >= len(self.variables):
            raise Refused(f"There is no variable #{number}.")
        variable = self.variables[number]
        if isinstance(variable.program, Count):
            raise Refused(f"#{number} is a number: it can only be the answer.")
        return variable

    async def _outgoing(self, program: Program) -> list[str]:
        if program not in self._predicates:
            self._predicates[program] = await self._select(outgoing(program))
        return self._predicates[program]

    async def _select(self, query: str) -> list[str]:
        try:
            return await self.graph.select(query)
        except TooCostly:
            raise Refused("This takes too long to find out.") from None

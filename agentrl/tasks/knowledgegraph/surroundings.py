"""A small graph in which a record's calls give exactly its answer, and much else could be asked.

The official records name the path and the answer but not what lies between; it is invented backwards from
the answer (`spec/tasks.md` §3, "Rebuilding a Freebase sub-graph"). So answers and paths are real, the
surroundings are synthetic: a test of reasoning with the tools, easier than the whole of Freebase. Generated
records get their graph in the same way.

How: `_solve` gives every step of the solution the set that it has to hold: both sides of an intersection the
wanted set and strangers of their own, an extreme at least two losers, a step from a set fresh sources. Then
`_surround` adds relations and attributes, by seed. Invariants: a pair (member, predicate) that a step of the
solution reads is never extended, so no invention changes the answer; an invented relation, other than an
inverse, leads to invented nodes only, so other paths do not end in the answer by accident; relations of
the solution occur at other nodes too, so that a relation list gives nothing away.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from agentrl.errors import DataError
from agentrl.tasks.knowledgegraph.backend import Text, Triple
from agentrl.tasks.knowledgegraph.ontology import TOPIC, Ontology
from agentrl.tasks.knowledgegraph.programs import (
    NAME,
    TYPE,
    And,
    Count,
    Entity,
    Extreme,
    Instances,
    Join,
    Kind,
    Program,
)
from agentrl.tasks.knowledgegraph.records import MAKES_VARIABLE, Record

LETTERS = "0123456789bcdfghjklmnpqrstvwxyz_"
MEMBERS = 6
"""Members of one set that get invented relations; of hundreds of answers the first few are enough."""


@dataclass(frozen=True, slots=True)
class Richness:
    """How much is invented."""

    relations: int = 8
    """Of each type, beside those of the solution."""
    attributes: int = 3
    chance: float = 0.7
    """That a node has one of its type's relations."""
    nodes: int = 40
    """Invented nodes at most."""
    deeper: bool = True
    """Invented nodes have relations too."""


def gold_program(record: Record, ontology: Ontology) -> Program:
    """The program of the record's last variable; needs no graph."""
    programs: list[Program] = []

    def thing(name: str) -> Program:
        if name.startswith("#"):
            return programs[int(name[1:])]
        return Instances(name) if name in ontology.types else Entity(name)

    for action in record.actions:
        first, *rest = action.arguments
        match action.tool:
            case "get_neighbors":
                programs.append(Join(thing(first), rest[0]))
            case "intersection":
                programs.append(And(thing(first), thing(rest[0])))
            case "argmax" | "argmin":
                kind: Kind = ontology.attributes.get(rest[0], (TOPIC, "number"))[1]
                programs.append(Extreme(thing(first), rest[0], kind, action.tool == "argmax"))
            case "count":
                programs.append(Count(thing(first)))
            case other:
                assert other not in MAKES_VARIABLE
    return programs[-1]


def surround(
    record: Record, ontology: Ontology, rng: random.Random, richness: Richness
) -> tuple[Triple, ...]:
    """The triples of the record's graph. Raises `DataError` where none can hold its answer."""
    return _Builder(record, ontology, rng, richness).build()


class _Builder:
    def __init__(
        self, record: Record, ontology: Ontology, rng: random.Random, richness: Richness
    ) -> None:
        self.record, self.ontology, self.random, self.richness = record, ontology, rng, richness
        self.triples: dict[Triple, None] = {}
        self.types: dict[str, dict[str, None]] = {}
        """Of every node, in the order of invention."""
        self.read: set[tuple[str, str]] = set()
        """(node, predicate) that the solution reads."""
        self.read_everywhere: set[str] = set()
        """Relations that the solution reads at all instances of a type."""
        self.typed_by_hand: set[str] = set()
        self.sets: list[list[str]] = []
        """Of the solution, roots included."""
        self.used = {*record.entities.values(), *record.answers}
        self.solution: dict[str, dict[str, None]] = {}
        """Type -> predicates of the solution that its instances have."""
        self.invented: dict[str, list[str]] = {}
        """Type -> nodes that are not of the solution."""
        self.room = richness.nodes
        self.menus: dict[str, list[str]] = {}
        self.attribute_menus: dict[str, list[str]] = {}

    def build(self) -> tuple[Triple, ...]:
        program = gold_program(self.record, self.ontology)
        targets = list(self.record.answers)
        if isinstance(program, Count):
            number = self.record.answers[0]
            if len(targets) != 1 or not number.isdecimal() or number == "0":
                raise self._impossible(f"a count cannot be {targets}")
            program, targets = program.of, [self.fresh() for _ in range(int(number))]
        self._solve(program, targets)
        self._surround()
        self._name_and_type()
        return tuple(self.triples)

    # -- the solution

    def _solve(self, program: Program, targets: list[str]) -> None:
        """Make `program` hold exactly `targets`."""
        match program:
            case And(left, right) if left == right:
                self._solve(left, targets)
            case And(left, right):
                self._solve(left, self._with_strangers(targets))
                self._solve(right, self._with_strangers(targets))
            case Extreme(of, attribute, kind, largest):
                losers = [self.fresh() for _ in range(self.random.randint(2, 4))]
                best, *others = _extreme_values(kind, largest, len(losers), self.random)
                for node, value in [
                    *((t, best) for t in targets),
                    *zip(losers, others, strict=True),
                ]:
                    self.triples[node, attribute, value] = None
                    self.read.add((node, attribute))
                self._solve(of, self._shuffled([*targets, *losers]))
                domain = self.ontology.attributes.get(attribute, (TOPIC, kind))[0]
                self.solution.setdefault(domain, {})[attribute] = None
                self._dull_attributes(losers, targets, attribute)
            case Join(of, relation):
                self._lead(of, relation, targets)
            case _:
                raise self._impossible("it does not start with get_neighbors")

    def _lead(self, of: Program, relation: str, targets: list[str]) -> None:
        """Edges by which `relation` leads from `of` to exactly `targets`."""
        domain, target_type = self.ontology.domain(relation), self.ontology.range(relation)
        self.sets.append(targets)
        for target in targets:
            self._type(target, target_type)
        match of:
            case Entity(identifier):
                sources = [identifier]
                if (identifier, relation) in self.read:
                    raise self._impossible(f"two steps read {relation} of {identifier}")
            case Instances(kind):
                sources = [self.fresh() for _ in range(self.random.randint(1, 2))]
                for source in sources:
                    self.triples[source, TYPE, kind] = None
                self.read_everywhere.add(relation)
                self.typed_by_hand.add(kind)
            case _:
                most = min(3, len(targets))
                sources = [self.fresh() for _ in range(self.random.randint(1, most))]
        self.solution.setdefault(domain, {})[relation] = None
        for source in sources:
            self._type(source, domain)
            self.read.add((source, relation))
        for place, target in enumerate(targets):
            chosen = sources[place] if place < len(sources) else self.random.choice(sources)
            self.triples[chosen, relation, target] = None
        if isinstance(of, (Entity, Instances)):
            self.sets.append(sources)
        else:
            self._solve(of, sources)

    def _with_strangers(self, targets: list[str]) -> list[str]:
        strangers = [self.fresh() for _ in range(self.random.randint(1, 3))]
        return self._shuffled([*targets, *strangers])

    def _shuffled(self, nodes: list[str]) -> list[str]:
        self.random.shuffle(nodes)
        return nodes

    def _dull_attributes(self, losers: list[str], targets: list[str], read: str) -> None:
        """Other attributes of the same set, by which never the targets alone win."""
        kinds = dict.fromkeys(kind for node in losers for kind in self.types.get(node, ()))
        for kind in kinds:
            for attribute in self._attributes(kind):
                if attribute == read:
                    continue
                values = _values(
                    self.ontology.attributes[attribute][1], len(losers) + MEMBERS, self.random
                )
                nodes = [losers[0], *targets[:MEMBERS], *losers[2:], losers[1]]
                if any((node, attribute) in self.read for node in nodes):
                    continue
                for node, value in zip(nodes, _spread(values, len(nodes)), strict=True):
                    self.triples[node, attribute, value] = None
                    self.read.add((node, attribute))

    # -- what is around it

    def _surround(self) -> None:
        known = list(dict.fromkeys(node for nodes in self.sets for node in nodes[:MEMBERS]))
        for node in known:
            self._extend(node)
        if self.richness.deeper:
            for node in [node for nodes in self.invented.values() for node in nodes]:
                self._extend(node)
        for subject, predicate, thing in list(self.triples):
            back = self.ontology.inverse.get(predicate)
            if back is not None and back in self.ontology.relations and isinstance(thing, str):
                self._invent(thing, back, subject)

    def _extend(self, node: str) -> None:
        for kind in dict.fromkeys([*self.types[node], TOPIC]):
            for relation in self._relations(kind):
                if self.random.random() < self.richness.chance:
                    for _ in range(self.random.choice((1, 1, 2))):
                        self._lead_away(node, relation)
            for attribute in self._attributes(kind):
                if (node, attribute) not in self.read:
                    (value,) = _values(self.ontology.attributes[attribute][1], 1, self.random)
                    self.triples[node, attribute, value] = None
                    self.read.add((node, attribute))

    def _lead_away(self, node: str, relation: str) -> None:
        kind = self.ontology.range(relation)
        fitting = self.invented.setdefault(kind, [])
        if self.room and (not fitting or self.random.random() < 0.4):
            self.room -= 1
            target = self.fresh()
            self._type(target, kind)
            fitting.append(target)
        elif fitting:
            target = self.random.choice(fitting)
        else:
            return
        self._invent(node, relation, target)

    def _invent(self, node: str, relation: str, target: str) -> None:
        if (node, relation) not in self.read and relation not in self.read_everywhere:
            self.triples[node, relation, target] = None

    def _relations(self, kind: str) -> list[str]:
        if kind not in self.menus:
            self.menus[kind] = self._menu(
                self.ontology.relations_of(kind), kind, self.richness.relations
            )
        return self.menus[kind]

    def _attributes(self, kind: str) -> list[str]:
        if kind not in self.attribute_menus:
            attributes = self.ontology.attributes_of(kind)
            self.attribute_menus[kind] = self._menu(attributes, kind, self.richness.attributes)
        return self.attribute_menus[kind]

    def _menu(self, all_of_them: list[str], kind: str, count: int) -> list[str]:
        """The predicates that nodes of a type may have in this graph."""
        used = [p for p in self.solution.get(kind, ()) if p in all_of_them]
        others = [p for p in all_of_them if p not in used]
        return sorted([*used, *self.random.sample(others, min(count, len(others)))])

    # -- nodes

    def fresh(self) -> str:
        while True:
            name = "m.0" + "".join(self.random.choices(LETTERS, k=6))
            if name not in self.used:
                self.used.add(name)
                return name

    def _type(self, node: str, kind: str) -> None:
        self.types.setdefault(node, {})[kind] = None

    def _name_and_type(self) -> None:
        """Names of what has one, and types, except of a type whose instances the solution reads."""
        names = {identifier: name for name, identifier in self.record.entities.items()}
        for node, kinds in self.types.items():
            for kind in kinds:
                if kind not in self.typed_by_hand:
                    self.triples[node, TYPE, kind] = None
        for node, name in (names | dict(self.record.names)).items():
            self.triples[node, NAME, Text(name, "english")] = None

    def _impossible(self, why: str) -> DataError:
        return DataError(f"knowledgegraph record {self.record.qid!r} cannot be rebuilt: {why}")


# -- values


def _values(kind: Kind, count: int, rng: random.Random) -> list[Text]:
    """Different values in ascending order."""
    if kind == "number":
        numbers = sorted(rng.sample(range(1, 10_000), count))
        return [Text(str(number), "integer") for number in numbers]
    days = sorted(rng.sample(range(120 * 336), count))
    return [
        Text(f"{1900 + day // 336}-{day // 28 % 12 + 1:02d}-{day % 28 + 1:02d}", "date")
        for day in days
    ]


def _extreme_values(kind: Kind, largest: bool, losers: int, rng: random.Random) -> list[Text]:
    """The winning value, then those of the losers."""
    values = _values(kind, losers + 1, rng)
    if largest:
        values.reverse()
    best, *others = values
    rng.shuffle(others)
    return [best, *others]


def _spread(values: list[Text], count: int) -> list[Text]:
    """`count` of ascending values: the smallest first, the largest last."""
    return [*values[: count - 1], values[-1]]

"""Seeded questions of every shape of the official records, over little worlds of their own.

Invariants: a sample is a function of (seed, level, split, index) alone (invariant 8). The text of a
question decides by hash which split may ask it, so no question is in two splits; all splits share one
vocabulary. The answer is a set of invented entities (or a number) which no text ever shows; `surroundings`
makes the graph in which the record's calls lead to it.

Level `easy` asks with the very words of the relations, one to three steps from a name. `medium` has dotted
relations, one wording for each, inverses, and longer ways; `hard` several wordings, four steps, three names,
and extremes after intersections.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from agentrl.errors import ConfigError
from agentrl.randomness import stream
from agentrl.tasks.knowledgegraph.backend import Triple
from agentrl.tasks.knowledgegraph.records import Action, Record
from agentrl.tasks.knowledgegraph.schemas import EASY, RICH, Schema
from agentrl.tasks.knowledgegraph.surroundings import LETTERS, Richness, surround

BUCKETS = {"train": range(0, 80), "dev": range(80, 90), "std": range(90, 100)}
"""Hundredths of all questions that belong to each split."""


@dataclass(frozen=True)
class Level:
    schema: Schema
    shapes: tuple[str, ...]
    steps: tuple[int, int]
    """Relations from a name to the end of one way."""
    richness: Richness
    reworded: bool = False
    plain: bool = False
    """The words of the question are the relations themselves."""


LEVELS = {
    "easy": Level(
        EASY, ("way", "way", "both", "count", "extreme"), (1, 3),
        Richness(relations=5, attributes=2, chance=1.0, nodes=10), plain=True,
    ),
    "medium": Level(
        RICH, ("way", "both", "count", "extreme", "both-way", "both-count"), (2, 3),
        Richness(relations=8, attributes=2, chance=0.9, nodes=24),
    ),
    "hard": Level(
        RICH, ("way", "count", "extreme", "both-way", "both-count", "both-extreme", "three"), (2, 4),
        Richness(relations=12, attributes=2, chance=0.9, nodes=40), reworded=True,
    ),
}  # fmt: skip


def check_level(name: str) -> Level:
    if name not in LEVELS:
        raise ConfigError(
            f"config key 'tasks.knowledgegraph.level': {name!r} is no level; choose one of "
            f"{', '.join(LEVELS)}"
        )
    return LEVELS[name]


@lru_cache(maxsize=1024)
def generate(level_name: str, split: str, index: int, seed: int = 0) -> Record:
    """The record of one sample."""
    level = check_level(level_name)
    rng = stream(seed, "knowledgegraph", level_name, split, index)
    shape = rng.choice(level.shapes)
    while True:
        writer = _Writer(level, rng)
        question = _SHAPES[shape](writer)
        if question is not None and bucket(question) in BUCKETS[split]:
            return writer.record(question, f"{level_name}-{split}-{index}")


def triples(level_name: str, split: str, index: int, seed: int = 0) -> tuple[Triple, ...]:
    """The graph of the same sample."""
    level = check_level(level_name)
    rng = stream(seed, "knowledgegraph-graph", level_name, split, index)
    record = generate(level_name, split, index, seed)
    return surround(record, level.schema.ontology, rng, level.richness)


def bucket(question: str) -> int:
    """0-99 by the words of the question."""
    digest = hashlib.blake2b(" ".join(question.lower().split()).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % 100


@dataclass(frozen=True, slots=True)
class Found:
    """A set that the question speaks of: its type, the words for it, the variable that holds it."""

    type: str
    words: str
    variable: str


@dataclass
class _Writer:
    """Writes the calls of one record down while it words the question."""

    level: Level
    random: random.Random
    actions: list[Action] = field(default_factory=list)
    entities: dict[str, str] = field(default_factory=dict)
    variables: int = 0

    def way(self, end: str, steps: int) -> Found | None:
        """From a new name, over `steps` relations, to the type `end`; None where none leads there."""
        ontology = self.level.schema.ontology
        relations: list[str] = []
        start = end
        for _ in range(steps):
            leading = [name for name, (_, target) in ontology.relations.items() if target == start]
            if not leading:
                return None
            relations.insert(0, self.random.choice(leading))
            start = ontology.domain(relations[0])
        free = [name for name in self.level.schema.names[start] if name not in self.entities]
        name = self.random.choice(free)
        self.entities[name] = self._identifier()
        found = Found(start, name, self.entities[name])
        for relation in relations:
            found = self.step(found, relation)
        return found

    def step(self, of: Found, relation: str) -> Found:
        self.actions.append(Action("get_relations", (of.variable,)))
        variable = self._call("get_neighbors", of.variable, relation)
        ways = self.level.schema.phrases[relation]
        way = self.random.choice(ways) if self.level.reworded else ways[0]
        return Found(self.level.schema.ontology.range(relation), way.format(of.words), variable)

    def onward(self, of: Found) -> Found:
        return self.step(of, self.random.choice(self.level.schema.ontology.relations_of(of.type)))

    def both(self, end: str, *steps: int) -> Found | None:
        """What several ways to the type `end` have in common."""
        found = self.way(end, steps[0])
        words = [found.words] if found else []
        for length in steps[1:]:
            other = self.way(end, length)
            if found is None or other is None:
                return None
            words.append(other.words)
            found = Found(end, "", self._call("intersection", found.variable, other.variable))
        if found is None:
            return None
        if self.level.plain:
            return replace(found, words=" that is also ".join(words))
        noun = self.level.schema.nouns[end]
        together = f"{', '.join(words[:-1])} and {words[-1]}"
        return replace(found, words=f"the {noun} that are at once {together}")

    def extreme(self, of: Found) -> Found:
        attribute = self.random.choice(self.level.schema.ontology.attributes_of(of.type))
        tool = self.random.choice(("argmin", "argmax"))
        self.actions.append(Action("get_attributes", (of.variable,)))
        variable = self._call(tool, of.variable, attribute)
        words = self.level.schema.extremes[attribute][tool == "argmax"]
        if self.level.plain:
            return replace(of, words=f"{of.words} with {words}", variable=variable)
        return replace(of, words=f"the one {words} among {of.words}", variable=variable)

    def count(self, of: Found) -> Found:
        return Found("number", of.words, self._call("count", of.variable))

    def ask(self, found: Found) -> str:
        verb = "count" if found.type == "number" else "find"
        return (
            f"{verb} {found.words}" if self.level.plain else f"{verb.capitalize()} {found.words}."
        )

    def end(self) -> str:
        return self.random.choice(sorted(self.level.schema.nouns))

    def length(self, most: int | None = None) -> int:
        low, high = self.level.steps
        return self.random.randint(min(low, most or high), min(high, most or high))

    def record(self, question: str, qid: str) -> Record:
        counted = self.actions[-1].tool == "count"
        answers = (
            [str(self.random.randint(2, 5))]
            if counted
            else [self._identifier() for _ in range(self.random.randint(1, 3))]
        )
        return Record(question, self.entities, tuple(self.actions), tuple(answers), {}, qid)

    def _call(self, tool: str, *arguments: str) -> str:
        self.actions.append(Action(tool, arguments))
        self.variables += 1
        return f"#{self.variables - 1}"

    def _identifier(self) -> str:
        return "m.0" + "".join(self.random.choices(LETTERS, k=6))


def _then(writer: _Writer, found: Found | None, *more: Callable[[Found], Found]) -> str | None:
    """The question for what `more` makes of `found`."""
    for further in more:
        found = None if found is None else further(found)
    return None if found is None else writer.ask(found)


_SHAPES: dict[str, Callable[[_Writer], str | None]] = {
    "way": lambda w: _then(w, w.way(w.end(), w.length())),
    "both": lambda w: _then(w, w.both(w.end(), w.length(2), 1)),
    "count": lambda w: _then(w, w.way(w.end(), w.length(2)), w.count),
    "extreme": lambda w: _then(w, w.way(w.end(), w.length(2)), w.extreme),
    "both-way": lambda w: _then(w, w.both(w.end(), 1, w.length(2)), w.onward),
    "both-count": lambda w: _then(w, w.both(w.end(), w.length(2), 1), w.count),
    "both-extreme": lambda w: _then(w, w.both(w.end(), w.length(2), 2), w.extreme),
    "three": lambda w: _then(w, w.both(w.end(), w.length(2), 2, 1)),
}
"""Shape of a question -> writes it; None where this draw leads nowhere."""

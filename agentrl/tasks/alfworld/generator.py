"""Writes ALFWorld games as the same JSON as the official files, from a drawn layout.

- A game is a function of (seed, level, split, index): invariant 8.
- No game is in two splits (see `layouts`).
- The goal does not hold at the start, and the walkthrough wins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from random import Random
from string import Template
from typing import Any, Literal

from agentrl.errors import ConfigError
from agentrl.randomness import stream
from agentrl.tasks.alfworld.catalog import LAMP, OPENABLE, THINGS
from agentrl.tasks.alfworld.domain import domain_text
from agentrl.tasks.alfworld.engine import Game
from agentrl.tasks.alfworld.goals import TYPES, goal_of
from agentrl.tasks.alfworld.layouts import LEVELS, Layout, draw
from agentrl.tasks.alfworld.planner import solve

Language = Literal["agentbench", "alfworld"]
"""The two command languages: `put X in/on Y` (AgentBench), `move X to Y` (alfworld >= 0.4)."""

# The sentences of ALFWorld's goal templates: {0} the target, {1} the destination or lamp.
_SENTENCES = {
    "pick_and_place": ("put a {0} in {1}", "put some {0} on {1}"),
    "pick_clean_then_place": ("put a clean {0} in {1}", "clean some {0} and put it in {1}"),
    "pick_heat_then_place": ("put a hot {0} in {1}", "heat some {0} and put it in {1}"),
    "pick_cool_then_place": ("put a cool {0} in {1}", "cool some {0} and put it in {1}"),
    "look_at_obj": ("look at {0} under the {1}", "examine the {0} with the {1}"),
    "pick_two_obj": ("put two {0} in {1}", "find two {0} and put them in {1}"),
}
_PLACED = (
    "(exists (?r - receptacle ?o - object) (and (objectType ?o {0}Type)"
    " (receptacleType ?r {1}Type) (inReceptacle ?o ?r)%s))"
)
_GOALS = {
    "pick_and_place": _PLACED % "",
    "pick_clean_then_place": _PLACED % " (cleanable ?o) (isClean ?o)",
    "pick_heat_then_place": _PLACED % " (heatable ?o) (isHot ?o)",
    "pick_cool_then_place": _PLACED % " (coolable ?o) (isCool ?o)",
    "look_at_obj": "(and (exists (?t - object ?r - receptacle ?a - agent ?l - location) (and"
    " (objectType ?t {1}Type) (toggleable ?t) (isToggled ?t) (inReceptacle ?t ?r)"
    " (receptacleAtLocation ?r ?l) (atLocation ?a ?l)))"
    " (exists (?o - object ?a - agent) (and (objectType ?o {0}Type) (holds ?a ?o))))",
    "pick_two_obj": "(exists (?r - receptacle ?o1 - object ?o2 - object) (and (not (= ?o1 ?o2))"
    " (objectType ?o1 {0}Type) (objectType ?o2 {0}Type) (receptacleType ?r {1}Type)"
    " (inReceptacle ?o1 ?r) (inReceptacle ?o2 ?r)))",
}
_MANGLED = (("|", "_bar_"), ("+", "_plus_"), ("-", "_minus_"), (".", "_dot_"))
_BASINS = {"SinkBasin": "Sink", "BathtubBasin": "Bathtub"}
_ABLE = {"heat": "heatable", "cool": "coolable", "clean": "cleanable", "slice": "sliceable"}
_HELP = r'''
action help {
  template :: "help";
  feedback :: "#help.feedback#";
  grammar :: """{"help.feedback": [{"rhs": "Available commands:\n  look\n  inventory\n  go to (receptacle)\n  open (receptacle)\n  close (receptacle)\n  take (object) from (receptacle)\n  move (object) to (receptacle)\n  examine (something)\n  use (object)\n  heat (object) with (receptacle)\n  clean (object) with (receptacle)\n  cool (object) with (receptacle)\n  slice (object) with (object)\n"}]}""";
}
'''


class Generator:
    """The games of one level. `types`: the task types to make, in turn over the indices."""

    def __init__(
        self,
        level: str,
        language: Language = "agentbench",
        types: Sequence[str] = TYPES,
        seed: int = 0,
    ) -> None:
        if level not in LEVELS:
            raise ConfigError(
                f"config key 'tasks.alfworld.level': {level!r} is not one of {', '.join(LEVELS)}"
            )
        self.level, self.language, self.types = level, language, tuple(types)
        self.seed = seed

    def layout(self, split: str, index: int) -> tuple[Layout, Random]:
        """What the game is about, and the stream that decides the rest of it."""
        kind = self.types[index % len(self.types)]
        for attempt in range(10_000):
            rng = stream(self.seed, "alfworld-game", self.level, kind, split, index, attempt)
            drawn = draw(rng, kind, LEVELS[self.level])
            if drawn is not None and drawn.split() == split:
                return drawn, rng
        raise AssertionError(f"no {self.level} {kind} game for {split}/{index} in 10,000 draws")

    def game(self, split: str, index: int) -> Game:
        """The game, in memory; `game(...).data` is what a file of it holds."""
        layout, rng = self.layout(split, index)
        where = f"alfworld/{self.level}/{split}/{index}"
        data = write(layout, rng, self.language, where)
        game = Game.parse(data, where)
        world = game.start()
        walkthrough = solve(world, goal_of(game))
        assert walkthrough and not world.won, f"{where} is won at the start or cannot be solved"
        data["walkthrough"] = walkthrough
        return replace(game, data=data, walkthrough=tuple(walkthrough))


def save(game: Mapping[str, Any], path: Path) -> None:
    """One game's JSON object to disk, for TextWorld or as `source: official`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dict(game)), encoding="utf-8")


def write(layout: Layout, rng: Random, language: Language, name: str) -> dict[str, Any]:
    """The JSON object of a game, without a walkthrough."""
    sentence = rng.choice(_SENTENCES[layout.type])
    return {
        "pddl_domain": domain_text(with_help=language == "alfworld"),
        "grammar": grammar_text(
            language, sentence.format(layout.target.lower(), layout.destination.lower())
        ),
        "pddl_problem": _problem(layout, rng, name),
        "solvable": True,
        "walkthrough": [],
    }


@cache
def _template() -> Template:
    text = resources.files(__package__).joinpath("game.twl2").read_text(encoding="utf-8")
    return Template(text)


def grammar_text(language: Language, task: str) -> str:
    """The grammar of a game in one of the two languages; `task` is the sentence of its goal."""
    if language == "agentbench":
        return _template().substitute(task=task, place="lend", put="put", into="in/on")
    return _template().substitute(task=task, place="r", put="move", into="to") + _HELP


def _problem(layout: Layout, rng: Random, name: str) -> str:
    """The PDDL problem: every receptacle at a location of its own, the agent apart from all."""
    taken: set[str] = set()

    def identity(kind: str) -> str:
        """A mangled `Class|x|y|z`, as ALFRED names things; its order decides the numbers."""
        while True:
            parts = [_BASINS.get(kind, kind), *(f"{rng.uniform(-4, 4):+06.2f}" for _ in range(3))]
            text = "|".join([*parts, kind] if kind in _BASINS else parts)
            for sign, word in _MANGLED:
                text = text.replace(sign, word)
            if text not in taken:
                taken.add(text)
                return text

    kinds = sorted({kind for kind, _ in layout.receptacles})
    classes = sorted({thing for _, things in layout.receptacles for thing in things})
    locations = [f"loc_bar_{i}" for i in range(len(layout.receptacles) + 1)]
    receptacles, things = list[str](), list[str]()
    facts = ["(= (total-cost) 0)", f"(atLocation agent1 {locations[0]})"]
    facts += [f"(canContain {k}Type {t}Type)" for k in kinds for t in classes if _may_hold(k, t)]
    for (kind, contents), location in zip(layout.receptacles, locations[1:], strict=True):
        receptacle = identity(kind)
        receptacles.append(receptacle)
        facts.append(f"(receptacleType {receptacle} {kind}Type)")
        facts.append(f"(receptacleAtLocation {receptacle} {location})")
        if kind in OPENABLE:
            facts.append(f"(openable {receptacle})")
        for thing_class in contents:
            thing = identity(thing_class)
            things.append(thing)
            facts.append(f"(objectType {thing} {thing_class}Type)")
            facts.append(f"(inReceptacle {thing} {receptacle})")
            facts.append(f"(wasInReceptacle {thing} {receptacle})")
            facts.append(f"(objectAtLocation {thing} {location})")
            facts += [f"({predicate} {thing})" for predicate in _affordances(thing_class)]
    # The domain names these types, so they are declared in every game.
    rtypes = sorted({*kinds, "SinkBasin", "Microwave", "Fridge"})
    otypes = sorted({*classes, "Knife", "ButterKnife"})
    return "\n".join(
        [
            f"(define (problem {name.replace('/', '-')})",
            "(:domain alfred)",
            "(:objects",
            "agent1 - agent",
            f"{' '.join(locations)} - location",
            f"{' '.join(receptacles)} - receptacle",
            f"{' '.join(things)} - object",
            f"{' '.join(f'{kind}Type' for kind in rtypes)} - rtype",
            f"{' '.join(f'{kind}Type' for kind in otypes)} - otype",
            ")",
            "(:init",
            *facts,
            ")",
            f"(:goal {_GOALS[layout.type].format(layout.target, layout.destination)})",
            "(:metric minimize (total-cost)))",
            "",
        ]
    )


def _may_hold(receptacle: str, thing: str) -> bool:
    return thing != LAMP and receptacle in THINGS[thing].places


def _affordances(thing: str) -> list[str]:
    if thing == LAMP:
        return ["toggleable"]
    can = THINGS[thing].can
    out = ["pickupable", *(word for ability, word in _ABLE.items() if ability in can)]
    return [*out, "isReceptacleObject"] if "hold" in can else out

"""Plays ALFWorld games (`.tw-pddl`) in plain Python, text for text as TextWorld does.

A `Game` is what a file says and never changes; a `World` is one game being played. Facts that the
reference planner makes so and that the code keeps:

- `go to` is offered for every receptacle but those at the present place;
- `examine` is offered for receptacles here and for the held object only;
- `use`, `clean`, `heat`, `cool` ask for no open door and stay on offer after use;
- lists in a text follow the order of the mangled ids, commands are sorted;
- a command that is not admissible changes nothing and says "Nothing happens.".
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from agentrl.errors import DataError
from agentrl.tasks.alfworld.domain import CHANGING, PARAMETERS, check_domain
from agentrl.tasks.alfworld.grammar import Call, Each, Grammar, read_grammar
from agentrl.tasks.alfworld.pddl import Query, compile_formula, leaves, read_problem, type_predicate

NOTHING = "Nothing happens."
Action: TypeAlias = tuple[str, ...]
"""An action of the domain and its arguments in the order of `PARAMETERS`."""
_FREE_OF_EFFECT = frozenset(["look", "inventory", "help", "examinereceptacle", "examineobject"])


@dataclass(frozen=True, slots=True)
class Entity:
    """`id` as in the problem (`apple_bar_...`), `name` as the texts say it (`apple 1`)."""

    id: str
    name: str
    type: str


@dataclass(frozen=True)
class Game:
    """One game file, read. `where` names it in errors."""

    where: str
    data: Mapping[str, Any]
    entities: Mapping[str, Entity]
    init: Mapping[str, frozenset[tuple[str, ...]]]
    goal: Query
    grammar: Grammar
    actions: frozenset[str]
    walkthrough: tuple[str, ...]
    solvable: bool
    _commands: dict[Action, str] = field(default_factory=dict, compare=False, repr=False)
    _ways: dict[str, dict[str, Action]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def load(cls, path: Path) -> Game:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: cannot be read: {error}") from None
        try:
            data = json.loads(text)
        except ValueError as error:
            raise DataError(f"{path}: not valid JSON: {error}") from None
        return cls.parse(data, str(path))

    @classmethod
    def parse(cls, data: Any, where: str) -> Game:
        """A game from its JSON object; `DataError` says which part of `where` is wrong."""
        if not isinstance(data, dict):
            raise DataError(f"{where}: a game must be a JSON object, not {type(data).__name__}")
        for key in ("pddl_domain", "grammar", "pddl_problem"):
            if not isinstance(data.get(key), str):
                raise DataError(f"{where}: key '{key}' is missing or not text")
        walkthrough = data.get("walkthrough") or ()
        if not isinstance(walkthrough, list | tuple) or not all(
            isinstance(command, str) for command in walkthrough
        ):
            raise DataError(f"{where}: key 'walkthrough' must be a list of commands")
        part = "pddl_domain"
        try:
            actions, arity = check_domain(data["pddl_domain"])
            part = "grammar"
            grammar = _checked_grammar(data["grammar"], actions)
            for atom in chain.from_iterable(query.atoms for query in grammar.queries()):
                if atom[0].removeprefix("not_") in arity:
                    _check_atom(atom[0].removeprefix("not_"), len(atom) - 1, arity)
            part = "pddl_problem"
            problem = read_problem(data["pddl_problem"])
            goal = compile_formula(problem.goal)
            init: dict[str, set[tuple[str, ...]]] = defaultdict(set)
            for predicate, *arguments in problem.init:
                _check_atom(predicate, len(arguments), arity)
                init[predicate].add(tuple(arguments))
            for predicate, *terms in leaves(problem.goal):
                _check_atom(predicate, len(terms), arity)
            if len(init["atlocation"]) != 1:
                raise DataError(f"atLocation must hold once, not {len(init['atlocation'])} times")
            standing = [fact[0] for fact in init["receptacleatlocation"]]
            if len(set(standing)) != len(standing):
                raise DataError("a receptacle stands at two locations")
        except DataError as error:
            raise DataError(f"{where}: {part}: {error}") from None
        named = {name for facts in init.values() for fact in facts for name in fact}
        for name, kind in problem.types.items():
            init[type_predicate(kind)].add((name,))
        return cls(
            where=where,
            data=data,
            entities=_entities(named, problem.types),
            init={predicate: frozenset(facts) for predicate, facts in init.items()},
            goal=goal,
            grammar=grammar,
            actions=actions,
            walkthrough=tuple(walkthrough),
            solvable=bool(data.get("solvable", True)),
        )

    def start(self) -> World:
        return World(self)

    @cached_property
    def intro(self) -> str:
        """The opening text: welcome line, room, task."""
        return self._derive("intro")

    @cached_property
    def task(self) -> str:
        """What is to be done, as the opening says it: "put a hot apple in fridge"."""
        return self._derive("task").removeprefix("Your task is to: ").strip().rstrip(".")

    def _derive(self, rule: str) -> str:
        try:
            return self.grammar.derive((Call(rule),), self.init, self.entities, {})
        except DataError as error:
            raise DataError(f"{self.where}: grammar: {error}") from None

    def command(self, action: Action) -> str:
        """How `action` is written in the language of this game."""
        text = self._commands.get(action)
        if text is None:
            template = self.grammar.actions[action[0]].template
            text = self.grammar.derive(template, self.init, self.entities, _binding(action))
            self._commands[action] = text
        return text

    def ways_from(self, location: str) -> dict[str, Action]:
        """The `go to` commands on offer at a location."""
        ways = self._ways.get(location)
        if ways is None:
            actions: list[Action] = [
                ("gotolocation", self.agent, location, place, receptacle)
                for receptacle, place in self.places.items()
                if place != location
            ]
            ways = self._ways[location] = {self.command(action): action for action in actions}
        return ways

    @cached_property
    def agent(self) -> str:
        return next(iter(self.init["atlocation"]))[0]

    @cached_property
    def receptacles(self) -> tuple[str, ...]:
        """All that stand somewhere, in the order in which the opening lists them."""
        return tuple(sorted({r for r, _ in self.init.get("receptacleatlocation", ())}))

    @cached_property
    def places(self) -> Mapping[str, str]:
        """Receptacle -> location."""
        facts = sorted(self.init.get("receptacleatlocation", ()))  # a set has no order of its own
        return {fact[0]: fact[1] for fact in facts}

    @cached_property
    def receptacles_at(self) -> Mapping[str, tuple[str, ...]]:
        out: dict[str, list[str]] = defaultdict(list)
        for receptacle, location in sorted(self.init.get("receptacleatlocation", ())):
            out[location].append(receptacle)
        return {location: tuple(found) for location, found in out.items()}

    @cached_property
    def object_types(self) -> Mapping[str, tuple[str, ...]]:
        return _multimap(self.init.get("objecttype", ()))

    @cached_property
    def receptacle_types(self) -> Mapping[str, tuple[str, ...]]:
        return _multimap(self.init.get("receptacletype", ()))

    def fits(self, thing: str, receptacle: str) -> tuple[str, str] | None:
        """The object and receptacle type that let `thing` be put there, or None."""
        allowed = self.init.get("cancontain", frozenset())
        for receptacle_type in self.receptacle_types.get(receptacle, ()):
            for object_type in self.object_types.get(thing, ()):
                if (receptacle_type, object_type) in allowed:
                    return object_type, receptacle_type
        return None

    def is_true(self, predicate: str, *arguments: str) -> bool:
        """Whether a fact that no action changes holds."""
        return arguments in self.init.get(predicate, ())

    def is_kind(self, receptacle: str, kind: str) -> bool:
        return kind in self.receptacle_types.get(receptacle, ())


class World:
    """A game being played. Read `feedback`, `commands` and `won`; call `step`."""

    __slots__ = ("_actions", "facts", "feedback", "game", "last", "moves", "won")

    def __init__(self, game: Game) -> None:
        self.game = game
        self.facts: dict[str, set[tuple[str, ...]] | frozenset[tuple[str, ...]]] = dict(game.init)
        for predicate in CHANGING:
            self.facts[predicate] = set(game.init.get(predicate, ()))
            self.facts[f"not_{predicate}"] = set()
        self.feedback = game.intro
        self.moves = 0
        self.last: Action | None = None
        self._settle()

    @property
    def commands(self) -> list[str]:
        """The admissible commands, sorted."""
        return sorted(self._actions)

    @property
    def actions(self) -> Mapping[str, Action]:
        """Admissible command -> action."""
        return self._actions

    @property
    def location(self) -> str:
        return next(iter(self.facts["atlocation"]))[1]

    @property
    def here(self) -> tuple[str, ...]:
        """The receptacles at the agent's place."""
        return self.game.receptacles_at.get(self.location, ())

    @property
    def held(self) -> tuple[str, ...]:
        return tuple(sorted(thing for _, thing in self.facts["holds"]))

    def is_true(self, predicate: str, *arguments: str) -> bool:
        return arguments in self.facts.get(predicate, ())

    def contents(self, receptacle: str) -> tuple[str, ...]:
        return tuple(sorted(o for o, r in self.facts["inreceptacle"] if r == receptacle))

    def accessible(self, receptacle: str) -> bool:
        """Open, or without a door."""
        return not self.is_true("openable", receptacle) or self.is_true("opened", receptacle)

    def step(self, command: str) -> bool:
        """Carry out an admissible command and return True, or change nothing and return False."""
        action = self._actions.get(command.strip())
        self.last = action
        if action is None:
            self.feedback = NOTHING
            return False
        self._apply(action)
        self.moves += 1
        text = self.game.grammar.actions[action[0]].feedback
        try:
            self.feedback = self.game.grammar.derive(
                text, self.facts, self.game.entities, _binding(action)
            )
        except DataError as error:
            raise DataError(f"{self.game.where}: grammar: {error}") from None
        if action[0] not in _FREE_OF_EFFECT:
            self._settle()
        return True

    def fork(self) -> World:
        """An independent copy, for looking ahead."""
        copy = World.__new__(World)
        copy.game, copy.feedback, copy.moves = self.game, self.feedback, self.moves
        copy.last, copy.won, copy._actions = self.last, self.won, self._actions
        copy.facts = dict(self.facts)
        for predicate in CHANGING:
            copy.facts[predicate] = set(self.facts[predicate])
            copy.facts[f"not_{predicate}"] = set(self.facts[f"not_{predicate}"])
        return copy

    def _settle(self) -> None:
        self.won = self.game.goal.holds(self.facts, {})
        self._actions = self._applicable()

    def _applicable(self) -> dict[str, Action]:
        game, agent, location = self.game, self.game.agent, self.location
        init, offered = game.init, self.game.actions
        actions: list[Action] = [("look", agent, location), ("inventory", agent), ("help", agent)]
        held = self.held
        empty_handed = not self.facts["holdsany"]
        for thing in held:
            actions.append(("examineobject", agent, thing))
        for receptacle in self.here:
            actions.append(("examinereceptacle", agent, receptacle))
            openable = self.is_true("openable", receptacle)
            accessible = not openable or self.is_true("opened", receptacle)
            if openable:
                name = "closeobject" if accessible else "openobject"
                actions.append((name, agent, location, receptacle))
            for thing, place in self.facts["inreceptacle"]:
                if place != receptacle:
                    continue
                if accessible and empty_handed and (thing,) in init.get("pickupable", ()):
                    actions.append(("pickupobject", agent, location, thing, receptacle))
                if (thing,) in init.get("toggleable", ()):
                    actions.append(("toggleobject", agent, location, thing, receptacle))
            for thing in held:
                fit = game.fits(thing, receptacle) if accessible else None
                if fit is not None:
                    actions.append(("putobject", agent, location, thing, receptacle, *fit))
                for name, able, kind in _TREATMENTS:
                    if (thing,) in init.get(able, ()) and game.is_kind(receptacle, kind):
                        actions.append((name, agent, location, receptacle, thing))
        for knife in held:
            if any(kind in _KNIVES for kind in game.object_types.get(knife, ())):
                for thing, place in self.facts["objectatlocation"]:
                    if place == location and (thing,) in init.get("sliceable", ()):
                        actions.append(("sliceobject", agent, location, thing, knife))
        out = {game.command(action): action for action in actions if action[0] in offered}
        return out | game.ways_from(location)

    def _apply(self, action: Action) -> None:
        name, agent, *rest = action
        match name:
            case "look" | "inventory" | "help" | "examinereceptacle" | "examineobject":
                self._add("checked", rest[0] if rest else agent)
            case "gotolocation":
                self._remove("atlocation", agent, rest[0])
                self._add("atlocation", agent, rest[1])
            case "openobject":
                self._add("opened", rest[1])
                self._add("checked", rest[1])
            case "closeobject":
                self._remove("opened", rest[1])
            case "pickupobject":
                location, thing, receptacle = rest
                self._remove("inreceptacle", thing, receptacle)
                self._remove("objectatlocation", thing, location)
                self._add("holds", agent, thing)
                self._add("holdsany", agent)
            case "putobject":
                location, thing, receptacle = rest[:3]
                self._remove("holds", agent, thing)
                self._remove("holdsany", agent)
                self._add("inreceptacle", thing, receptacle)
                self._add("objectatlocation", thing, location)
            case "cleanobject":
                self._add("isclean", rest[2])
            case "heatobject":
                self._add("ishot", rest[2])
                self._remove("iscool", rest[2])
            case "coolobject":
                self._add("iscool", rest[2])
                self._remove("ishot", rest[2])
            case "toggleobject":
                self._add("istoggled", rest[1])
                (self._remove if self.is_true("ison", rest[1]) else self._add)("ison", rest[1])
            case "sliceobject":
                self._add("issliced", rest[1])

    def _add(self, predicate: str, *arguments: str) -> None:
        self._changing(predicate).add(arguments)
        self._changing(f"not_{predicate}").discard(arguments)

    def _remove(self, predicate: str, *arguments: str) -> None:
        self._changing(predicate).discard(arguments)
        self._changing(f"not_{predicate}").add(arguments)

    def _changing(self, predicate: str) -> set[tuple[str, ...]]:
        facts = self.facts[predicate]
        assert isinstance(facts, set)
        return facts


_KNIVES = frozenset(["knifetype", "butterknifetype"])
_TREATMENTS = (
    ("cleanobject", "cleanable", "sinkbasintype"),
    ("heatobject", "heatable", "microwavetype"),
    ("coolobject", "coolable", "fridgetype"),
)


def _binding(action: Action) -> dict[str, str]:
    return {
        f"?{name}": value for name, value in zip(PARAMETERS[action[0]], action[1:], strict=True)
    }


def _multimap(pairs: Any) -> dict[str, tuple[str, ...]]:
    out: dict[str, list[str]] = defaultdict(list)
    for key, value in sorted(pairs):
        out[key].append(value)
    return {key: tuple(values) for key, values in out.items()}


@lru_cache(maxsize=256)
def _checked_grammar(text: str, actions: frozenset[str]) -> Grammar:
    grammar = read_grammar(text)
    for rule in ("intro", "task", "list_empty", "list_separator", "list_last_separator"):
        if rule not in grammar.rules:
            raise DataError(f"rule '{rule}' is missing")
    for name in sorted(actions):
        if name not in grammar.actions:
            raise DataError(f"no text for action '{name}' of the domain")
        for symbol in grammar.actions[name].template:
            atoms = symbol.query.atoms if isinstance(symbol, Each) and symbol.query else ()
            if any(atom[0] in CHANGING for atom in atoms) or isinstance(symbol, Call):
                raise DataError(f"the template of '{name}' depends on facts that change")
    return grammar


def _check_atom(predicate: str, arguments: int, arity: Mapping[str, int]) -> None:
    if predicate not in arity:
        raise DataError(f"predicate '{predicate}' is not in the domain")
    if arity[predicate] != arguments:
        raise DataError(
            f"predicate '{predicate}' takes {arity[predicate]} arguments, not {arguments}"
        )


def _entities(named: set[str], types: Mapping[str, str]) -> dict[str, Entity]:
    """Display names as ALFWorld gives them: the class, counted down over the sorted ids."""
    ordered = sorted(named)
    left = Counter(kind for name in ordered if (kind := _class(name)) is not None)
    out = {}
    for name in ordered:
        kind = _class(name)
        if kind is None:
            out[name] = Entity(name, f"{name} ", types[name])
            continue
        out[name] = Entity(name, f"{kind} {left[kind]}", types[name])
        left[kind] -= 1
    return out


def _class(name: str) -> str | None:
    if "_bar_" not in name:
        return None
    return name.split("_bar_", 1)[0] + ("basin" if "basin" in name else "")

"""What to do next towards a goal, given which receptacles' contents are known.

With everything known this is the oracle that writes walkthroughs and proves games solvable; with
what an agent has seen so far, and `search` for the rest, it is the expert.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agentrl.tasks.alfworld.engine import Action, World
from agentrl.tasks.alfworld.goals import TREATMENTS, Goal

Known = Mapping[str, tuple[str, ...]]
"""Receptacle -> the objects in it, for those whose contents have been seen."""
_KNIVES = ("knifetype", "butterknifetype")


@dataclass(frozen=True, slots=True)
class Planner:
    """One decision: read-only view of `world` through what is `known`.

    `believed`: objects taken for treated although they are not (a mistake of the agent's).
    """

    world: World
    goal: Goal
    known: Known
    believed: frozenset[str] = field(default=frozenset())

    def next_action(self) -> Action | None:
        """The next step towards the goal, or None where something has to be found first."""
        held = next(iter(self.world.held), None)
        if self.goal.sliced and not any(self._is_sliced(thing) for thing in self._targets()):
            return self._slice(held)
        if held is None:
            return self._fetch(self._wanted())
        if not self.is_target(held):
            return self._put_down(held)
        if self.goal.type == "look_at_obj":
            return self._use_lamp()
        if not self.is_treated(held):
            return self._treat(held)
        return self._deliver(held, self.destination(held))

    def search(self) -> Action | None:
        """Look into the next receptacle: likely ones first, in the order of the opening text.

        The destination comes last (its contents seldom help), what cannot hold the object never
        before all others. None where everything has been seen.
        """
        game = self.world.game
        unseen = [r for r in game.receptacles if r not in self.known]
        if not unseen:
            return None
        place = min(unseen, key=lambda r: (self._unlikely(r), self._is_destination(r)))
        if place not in self.world.here:
            return self._go(place)
        if not self.world.accessible(place):
            return self._open(place)
        return ("examinereceptacle", game.agent, place)

    def is_target(self, thing: str) -> bool:
        return self.goal.target in self.world.game.object_types.get(thing, ())

    def is_treated(self, thing: str) -> bool:
        if self.goal.type not in TREATMENTS or thing in self.believed:
            return True
        return self.world.is_true(TREATMENTS[self.goal.type][0], thing)

    def destination(self, thing: str) -> str | None:
        """Where to bring `thing`: with two to bring, where the other is; else here, else first."""
        game = self.world.game
        fitting = [r for r in game.receptacles if self._is_destination(r) and game.fits(thing, r)]
        if self.goal.type == "pick_two_obj":
            return max(fitting, key=self._count, default=None)
        return min(fitting, key=lambda r: r not in self.world.here, default=None)

    def _count(self, receptacle: str) -> int:
        return sum(self.is_target(thing) for thing in self.known.get(receptacle, ()))

    def _targets(self) -> Iterable[str]:
        yield from self.world.held
        for things in self.known.values():
            yield from filter(self.is_target, things)

    def _wanted(self) -> list[tuple[str, str]]:
        """Known (object, receptacle) pairs that are worth taking."""
        placed = ""
        if self.goal.type == "pick_two_obj":
            full = [r for r in self.known if self._is_destination(r) and self._count(r)]
            placed = max(full, key=self._count, default="")
        return [
            (thing, receptacle)
            for receptacle, things in self.known.items()
            for thing in things
            if self.is_target(thing)
            and receptacle != placed
            and (not self.goal.sliced or self._is_sliced(thing))
        ]

    def _is_destination(self, receptacle: str) -> bool:
        return self.world.game.is_kind(receptacle, self.goal.destination)

    def _unlikely(self, receptacle: str) -> bool:
        game = self.world.game
        sought = self.goal.target
        if self.goal.type == "look_at_obj" and any(map(self.is_target, self.world.held)):
            return game.is_true("openable", receptacle)
        return not any(
            game.is_true("cancontain", kind, sought)
            for kind in game.receptacle_types.get(receptacle, ())
        )

    def _is_sliced(self, thing: str) -> bool:
        return self.world.is_true("issliced", thing)

    def _fetch(self, candidates: list[tuple[str, str]]) -> Action | None:
        if not candidates:
            return None
        here, order = self.world.here, self.world.game.receptacles.index
        thing, place = min(candidates, key=lambda c: (c[1] not in here, order(c[1]), c[0]))
        return self._reach(place) or (
            "pickupobject",
            self.world.game.agent,
            self.world.location,
            thing,
            place,
        )

    def _treat(self, thing: str) -> Action | None:
        _, action, appliance = TREATMENTS[self.goal.type]
        game = self.world.game
        places = [r for r in game.receptacles if game.is_kind(r, appliance)]
        place = min(places, key=lambda r: r not in self.world.here, default=None)
        if place is None:
            return None
        if place not in self.world.here:
            return self._go(place)
        return (action, game.agent, self.world.location, place, thing)

    def _use_lamp(self) -> Action | None:
        game = self.world.game
        lamps = [
            (thing, place)
            for place, things in self.known.items()
            for thing in things
            if self.goal.lamp in game.object_types.get(thing, ())
        ]
        if not lamps:
            return None
        lamp, place = min(lamps, key=lambda pair: pair[1] not in self.world.here)
        if place not in self.world.here:
            return self._go(place)
        return ("toggleobject", game.agent, self.world.location, lamp, place)

    def _slice(self, held: str | None) -> Action | None:
        game = self.world.game
        knives = [
            (thing, place)
            for place, things in self.known.items()
            for thing in things
            if any(kind in _KNIVES for kind in game.object_types.get(thing, ()))
        ]
        if held is None:
            return self._fetch(knives)
        if not any(kind in _KNIVES for kind in game.object_types.get(held, ())):
            return self._put_down(held)
        for place, things in self.known.items():
            for thing in filter(self.is_target, things):
                if place not in self.world.here:
                    return self._go(place)
                return ("sliceobject", game.agent, self.world.location, thing, held)
        return None

    def _put_down(self, thing: str) -> Action | None:
        """Put a thing that is in the way where it fits: here, or at the nearest open place."""
        game, world = self.world.game, self.world
        for place in world.here:
            if world.accessible(place) and game.fits(thing, place):
                return self._put(thing, place)
        fitting = [r for r in game.receptacles if game.fits(thing, r)]
        nearest = min(fitting, key=lambda r: game.is_true("openable", r), default=None)
        return self._deliver(thing, nearest)

    def _deliver(self, thing: str, place: str | None) -> Action | None:
        return None if place is None else self._reach(place) or self._put(thing, place)

    def _put(self, thing: str, place: str) -> Action:
        game = self.world.game
        fit = game.fits(thing, place)
        assert fit is not None
        return ("putobject", game.agent, self.world.location, thing, place, *fit)

    def _reach(self, place: str) -> Action | None:
        """Go to `place` and open it; None where both are done."""
        if place not in self.world.here:
            return self._go(place)
        return None if self.world.accessible(place) else self._open(place)

    def _go(self, place: str) -> Action:
        game = self.world.game
        return ("gotolocation", game.agent, self.world.location, game.places[place], place)

    def _open(self, place: str) -> Action:
        return ("openobject", self.world.game.agent, self.world.location, place)


def everything(world: World) -> dict[str, tuple[str, ...]]:
    """The contents of every receptacle."""
    return {receptacle: world.contents(receptacle) for receptacle in world.game.receptacles}


def solve(world: World, goal: Goal, limit: int = 100) -> list[str] | None:
    """Commands that win from here, by one who knows where things are; None if none are found."""
    ahead = world.fork()
    commands: list[str] = []
    while not ahead.won:
        action = Planner(ahead, goal, everything(ahead)).next_action()
        if action is None or len(commands) == limit:
            return None
        commands.append(ahead.game.command(action))
        if not ahead.step(commands[-1]):
            return None
    return commands

"""Draws what a generated game is about: room, goal, receptacles and what lies in them.

Splits are disjoint by content: a hash of a layout's signature names the one split it may be in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from random import Random

from agentrl.tasks.alfworld.catalog import LAMP, LAMP_PLACES, OPENABLE, ROOMS, THINGS

SPLITS = {"train": range(0, 60), "dev": range(60, 80), "std": range(80, 100)}
"""Split -> its percent of all possible games."""


@dataclass(frozen=True, slots=True)
class Level:
    """How big a game is; ranges are inclusive.

    `closed`: most receptacles with a door. `odd`: share of added receptacles that could not hold
    the target. `spares`: target instances beyond those needed. `decoy`: chance of an instance at
    the destination that does not fulfil the goal alone. `floor_plan`: as many of each receptacle
    as a real room has, not just a few.
    """

    receptacles: tuple[int, int]
    things: tuple[int, int]
    closed: int
    odd: float
    spares: tuple[int, int]
    decoy: float
    floor_plan: bool = False


LEVELS = {
    "easy": Level((4, 5), (2, 4), closed=2, odd=0.0, spares=(0, 0), decoy=0.0),
    "medium": Level((6, 9), (5, 12), closed=4, odd=0.33, spares=(0, 1), decoy=0.25),
    "hard": Level(
        (10, 38), (15, 56), closed=38, odd=0.0, spares=(0, 3), decoy=0.5, floor_plan=True
    ),
}

_ABILITY = {
    "pick_clean_then_place": ("clean", "SinkBasin"),
    "pick_heat_then_place": ("heat", "Microwave"),
    "pick_cool_then_place": ("cool", "Fridge"),
}
_ROOMS = {
    "pick_clean_then_place": ("kitchen", "bathroom"),
    "pick_heat_then_place": ("kitchen",),
    "pick_cool_then_place": ("kitchen",),
    "look_at_obj": ("bedroom", "livingroom"),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """A game before it is written down. `receptacles`: (type, types of the things in it).

    `destination` is a receptacle type, or the lamp's type for look_at_obj.
    """

    type: str
    room: str
    target: str
    destination: str
    receptacles: tuple[tuple[str, tuple[str, ...]], ...]

    def signature(self) -> str:
        """Equal for two games that differ only in numbering, order, coordinates or wording."""
        stock = sorted((kind, sorted(things)) for kind, things in self.receptacles)
        return json.dumps([self.type, self.room, self.target, self.destination, stock])

    def split(self) -> str:
        """The only split that may hold this layout."""
        digest = hashlib.blake2b(self.signature().encode(), digest_size=8).digest()
        percent = int.from_bytes(digest, "big") % 100
        return next(name for name, part in SPLITS.items() if percent in part)


def draw(rng: Random, task_type: str, level: Level) -> Layout | None:
    """One layout, or None where the draw does not work out (drawing again is cheap)."""
    room_name = rng.choice(_ROOMS.get(task_type, tuple(ROOMS)))
    room = ROOMS[room_name]
    ability, appliance = _ABILITY.get(task_type, ("", ""))
    target = rng.choice([t for t in room.things if not ability or ability in THINGS[t].can])
    homes = [r for r in room.receptacles if r in THINGS[target].places]
    if task_type == "look_at_obj":
        destination = ""
        needed = [rng.choice([r for r in room.receptacles if r in LAMP_PLACES])]
    else:
        destination = rng.choice([r for r in homes if r != appliance] or [""])
        needed = [destination, *([appliance] if appliance else [])]
    sources = [r for r in homes if r != destination]
    if not sources or "" in needed:
        return None
    if not any(r in sources for r in needed):
        needed.append(rng.choice(sources))
    stock = _furnish(rng, room.receptacles, needed, homes, level)
    if stock is None:
        return None
    contents: list[list[str]] = [[] for _ in stock]

    def put(thing: str, places: Collection[str]) -> None:
        fitting = [i for i, r in enumerate(stock) if r in places]
        if fitting:
            contents[rng.choice(fitting)].append(thing)

    for _ in range((2 if task_type == "pick_two_obj" else 1) + rng.randint(*level.spares)):
        put(target, sources)
    if (ability or task_type == "pick_two_obj") and rng.random() < level.decoy:
        put(target, [destination])
    if task_type == "look_at_obj":
        put(LAMP, LAMP_PLACES)
    others = [thing for thing in room.things if thing != target]
    wanted = rng.randint(*level.things)
    for _ in range(5 * wanted):
        if sum(map(len, contents)) >= wanted:
            break
        thing = rng.choice(others)
        put(thing, THINGS[thing].places)
    if sum(map(len, contents)) < level.things[0]:
        return None
    stocked = tuple((kind, tuple(things)) for kind, things in zip(stock, contents, strict=True))
    return Layout(task_type, room_name, target, destination or LAMP, stocked)


def _furnish(
    rng: Random,
    ranges: dict[str, tuple[int, int]],
    needed: list[str],
    homes: list[str],
    level: Level,
) -> list[str] | None:
    """Receptacle types, `needed` among them; None where they do not fit the level."""
    stock = list(needed)
    if level.floor_plan:
        for kind, (least, most) in ranges.items():
            stock += [kind] * (rng.randint(least, most) - stock.count(kind))
    else:
        for _ in range(rng.randint(*level.receptacles) - len(needed)):
            free = [r for r in ranges if stock.count(r) < ranges[r][1]]
            likely = [r for r in free if r in homes]
            stock.append(rng.choice(free if not likely or rng.random() < level.odd else likely))
    fewest, most = level.receptacles
    if not fewest <= len(stock) <= most or sum(r in OPENABLE for r in stock) > level.closed:
        return None
    return stock

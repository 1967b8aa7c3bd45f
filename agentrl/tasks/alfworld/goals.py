"""What a game asks for, read from its PDDL goal: one of ALFWorld's six task types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from agentrl.errors import DataError
from agentrl.tasks.alfworld.engine import Game

TaskType = Literal[
    "pick_and_place",
    "pick_clean_then_place",
    "pick_heat_then_place",
    "pick_cool_then_place",
    "look_at_obj",
    "pick_two_obj",
]
TYPES: tuple[TaskType, ...] = get_args(TaskType)
"""AgentBench's names, in the order of its index files."""

TREATMENTS = {
    "pick_clean_then_place": ("isclean", "cleanobject", "sinkbasintype"),
    "pick_heat_then_place": ("ishot", "heatobject", "microwavetype"),
    "pick_cool_then_place": ("iscool", "coolobject", "fridgetype"),
}
"""Task type -> the fact wanted of the object, the action that brings it about, the appliance."""


@dataclass(frozen=True, slots=True)
class Goal:
    """`target`, `lamp`: object types; `destination`: receptacle type ("" for look_at_obj)."""

    type: str
    target: str
    destination: str = ""
    lamp: str = ""
    sliced: bool = False


def goal_of(game: Game) -> Goal:
    """The goal in words; `DataError` where it is none of the six types."""
    atoms = game.goal.atoms
    unary = {(atom[0], atom[1]) for atom in atoms if len(atom) == 2}
    object_types = {atom[1]: atom[2] for atom in atoms if atom[0] == "objecttype"}
    destinations = {atom[2] for atom in atoms if atom[0] == "receptacletype"}
    held = [atom[2] for atom in atoms if atom[0] == "holds"]
    lamps = [object_types.get(x, "") for predicate, x in unary if predicate == "istoggled"]
    sliced = any(predicate == "issliced" for predicate, _ in unary)
    if held and lamps and held[0] in object_types:
        return Goal("look_at_obj", object_types[held[0]], "", lamps[0], sliced)
    targets = {kind for name, kind in object_types.items()}
    if len(targets) == 1 and len(destinations) == 1:
        target, destination = targets.pop(), destinations.pop()
        if len(object_types) == 2:
            return Goal("pick_two_obj", target, destination, "", sliced)
        for kind, (fact, _, _) in TREATMENTS.items():
            if any(predicate == fact for predicate, _ in unary):
                return Goal(kind, target, destination, "", sliced)
        return Goal("pick_and_place", target, destination, "", sliced)
    raise DataError(f"{game.where}: the goal is none of ALFWorld's six task types")

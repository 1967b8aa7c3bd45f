"""How a game is told to a policy: two styles, neither of which says where anything is.

`agentbench` gives the game's own texts and the admissible commands, as AgentBench's FC version
does. `compact` is for policies of a million parameters: short sentences, lower case, every word
after a space (so that a small BPE makes one token of each), the task repeated at the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from agentrl.messages import Message
from agentrl.tasks.alfworld.engine import World

SYSTEM = (
    "You are in a house and have a task to do there. In every turn call the tool take_action once, "
    "with one of the available actions, copied word for word. Look around, find what you need, and "
    'go on until the task is done. An answer of "Nothing happens." means that the action was not '
    "possible at that moment."
)
_ARRIVAL = re.compile(r"^You arrive at loc \S+\. ")
_STATES = (("ishot", "hot"), ("iscool", "cool"), ("isclean", "clean"), ("issliced", "sliced"))


@dataclass(frozen=True, slots=True)
class Style:
    """`admissible`: end every observation with the commands that are possible."""

    prompt: Literal["compact", "agentbench"]
    admissible: bool

    def opening(self, world: World) -> tuple[Message, ...]:
        game = world.game
        if self.prompt == "compact":
            names = ", ".join(game.entities[r].name for r in game.receptacles)
            return (Message("user", self.remind(world, f"you see {names}.")),)
        room = game.intro.split("\n\n", 1)[-1]
        return (Message("system", SYSTEM), Message("user", self.remind(world, room)))

    def observation(self, world: World, possible: bool) -> str:
        """What the last command brought; `possible` is False where nothing happened."""
        if self.prompt == "agentbench":
            hint = "" if possible else " That is not one of the available actions."
            return _ARRIVAL.sub("", world.feedback) + hint
        if not possible:
            return "you can not do that now, nothing happens."
        return f"you {_event(world)}.{_hand(world)}"

    def remind(self, world: World, text: str) -> str:
        """The text with what every observation ends with."""
        if self.prompt == "compact":
            actions = f" Actions: {', '.join(world.commands)}." if self.admissible else ""
            return f"{text}{actions} Task: {world.game.task}."
        if not self.admissible:
            return text
        return "\n".join([text, "", "AVAILABLE ACTIONS:", *world.commands])


def _event(world: World) -> str:
    """The last action as the shortest sentence about "you"; only what the game's text tells too."""
    game, action = world.game, world.last
    assert action is not None
    names = {argument: entity.name for argument, entity in game.entities.items()}
    match action:
        case ("gotolocation" | "openobject" | "examinereceptacle", *_, place):
            side = _side(world, place)
            if not world.accessible(place):
                return f"see {names[place]} closed"
            things = ", ".join(names[thing] for thing in world.contents(place)) or "nothing"
            return f"see {side} {names[place]}: {things}"
        case ("closeobject", *_, place):
            return f"close {names[place]}"
        case ("pickupobject", _, _, thing, place):
            return f"take {names[thing]} from {names[place]}"
        case ("putobject", _, _, thing, place, _, _):
            return f"put {names[thing]} {_side(world, place)} {names[place]}"
        case ("cleanobject" | "heatobject" | "coolobject", _, _, place, thing):
            return f"{action[0].removesuffix('object')} {names[thing]} with {names[place]}"
        case ("toggleobject", _, _, thing, _):
            return f"use {names[thing]}"
        case ("sliceobject", _, _, thing, knife):
            return f"slice {names[thing]} with {names[knife]}"
        case _:
            told = re.sub(r"\b(a|an|the|you) ", "", " ".join(world.feedback.lower().split()))
            return told.rstrip(".")


def _side(world: World, place: str) -> str:
    return "in" if world.is_true("openable", place) else "on"


def _hand(world: World) -> str:
    out = ""
    for thing in world.held:
        states = [word for fact, word in _STATES if world.is_true(fact, thing)]
        out += f" holding {' '.join([*states, world.game.entities[thing].name])}."
    return out

"""Solves a game as a policy could: by looking for things, with what it has seen and nothing else.

It plays along in a copy of the world but reads there only what the game's answers say: the
contents of receptacles that were shown to it. Noise makes it err as a learner does; it notices
and goes on from where it stands, so that most mistakes cost turns, not the episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from agentrl.messages import Message
from agentrl.tasks.alfworld.engine import Action, Game
from agentrl.tasks.alfworld.goals import goal_of
from agentrl.tasks.alfworld.planner import Planner, solve
from agentrl.tasks.base import Expert, call_message

TOOL = "take_action"
_LOOKAHEAD = 20
"""Turns before the end from which the shortest way to the goal is compared with those left."""


class AlfworldExpert(Expert):
    """`noise`: chance per decision of a plausible mistake.

    Without noise, and only when no more turns are left than the shortest way needs, it goes that
    way (it knows where things are): the proof that the sample is solvable. `fallbacks` counts them.
    """

    def __init__(self, game: Game, max_turns: int, rng: Random, noise: float = 0.0) -> None:
        self.goal = goal_of(game)
        self.world = game.start()
        self.max_turns, self.noise, self.rng = max_turns, noise, rng
        self.turns = 0
        self.fallbacks = 0
        self.seen: dict[str, tuple[str, ...]] = {}
        self.skipped: set[str] = set()
        self.believed: set[str] = set()
        self._command: str | None = None

    def act(self, messages: Sequence[Message]) -> Message:
        """The next command; its effect is taken up at the next call."""
        self._take_up()
        action = self._decide()
        if self.noise and self.rng.random() < self.noise:
            action = self._err(action)
        self.turns += 1
        self._command = self.world.game.command(action)
        return call_message(TOOL, {"action": self._command}, f"call_{self.turns}")

    def _take_up(self) -> None:
        """Carry out the last command in the copy, and see what its answer shows."""
        if self._command is None or not self.world.step(self._command):
            return
        match self.world.last:
            case ("gotolocation" | "openobject" | "examinereceptacle", *_, place):
                shown = place
            case ("pickupobject", _, _, _, place):
                shown = place
            case ("putobject", _, _, thing, place, _, _):
                shown = place
                self.believed.discard(thing)
            case _:
                return
        if self.world.accessible(shown):
            self.seen[shown] = self.world.contents(shown)
            self.skipped.discard(shown)

    def _decide(self) -> Action:
        action = self._explore()
        left = self.max_turns - self.turns
        if self.noise or left > _LOOKAHEAD:
            return action
        way = solve(self.world, self.goal)
        if not way or left > len(way) or way[0] == self.world.game.command(action):
            return action
        self.fallbacks += 1
        return self.world.actions[way[0]]

    def _explore(self) -> Action:
        for _ in range(2):
            planner = Planner(self.world, self.goal, self.seen, frozenset(self.believed))
            action = planner.next_action() or planner.search()
            if action is not None:
                return action
            # All has been looked at: what was passed over must hold it.
            for place in self.skipped:
                del self.seen[place]
            self.skipped.clear()
        return ("look", self.world.game.agent, self.world.location)

    def _err(self, action: Action) -> Action:
        """A mistake that fits the moment: walk elsewhere, pass over a door, a wrong thing, no care."""
        match action:
            case ("openobject", agent, location, place):
                held = next(iter(self.world.held), None)
                if held is not None and (fit := self.world.game.fits(held, place)):
                    return ("putobject", agent, location, held, place, *fit)
                known = self.seen.get(place, ())
                if known:
                    return ("pickupobject", agent, location, known[0], place)
                self.seen[place] = ()
                self.skipped.add(place)
                return self._explore()
            case ("pickupobject", agent, location, thing, place):
                others = [
                    other
                    for other in self.seen.get(place, ())
                    if other != thing and self.world.game.is_true("pickupable", other)
                ]
                if others:
                    return ("pickupobject", agent, location, self.rng.choice(others), place)
            case ("cleanobject" | "heatobject" | "coolobject", *_, thing):
                self.believed.add(thing)
                return self._explore()
        return self._stray(action)

    def _stray(self, action: Action) -> Action:
        """Go to some receptacle other than the right one."""
        right = action[4] if action[0] == "gotolocation" else ""
        game = self.world.game
        ways = game.ways_from(self.world.location).values()
        return self.rng.choice([way for way in ways if way[4] != right] or [action])

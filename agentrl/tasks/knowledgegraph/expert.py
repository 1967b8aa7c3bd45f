"""An agent that knows the calls of the solution, and can be made unreliable.

With `noise` n it errs with probability n at each decision, in ways a beginner would: another relation of
those it read, the wrong direction or attribute of an extreme, an answer before the end. It goes on from what
it got; when a call is refused after a mistake, and sometimes before that, it returns to where it erred.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.messages import Message
from agentrl.randomness import stream
from agentrl.tasks.base import Expert, call_message
from agentrl.tasks.knowledgegraph.prompts import final_answer, read_made
from agentrl.tasks.knowledgegraph.records import MAKES_VARIABLE, Action, Record

SECOND_THOUGHT = 0.2
"""Chance that the expert notices a mistake right after it."""
EARLY = 0.5
"""How much rarer than other mistakes it stops early: there are many occasions."""
PARAMETERS = {
    "get_relations": ("variable",),
    "get_neighbors": ("variable", "relation"),
    "intersection": ("variable1", "variable2"),
    "get_attributes": ("variable",),
    "argmax": ("variable", "attribute"),
    "argmin": ("variable", "attribute"),
    "count": ("variable",),
}
_OPPOSITE = {"argmax": "argmin", "argmin": "argmax"}


class KGExpert(Expert):
    """Acts on one record; `act` takes the messages that are new."""

    def __init__(self, record: Record, *, seed: int = 0, noise: float = 0.0) -> None:
        self.record = record
        self.noise = noise
        self.random = stream(seed, "knowledgegraph-expert")
        self.names = {identifier: name for name, identifier in record.entities.items()}
        self.calls = 0
        self.place = 0
        """Of the next action of the solution."""
        self.variables: list[int] = []
        """Variable of the solution -> variable of this episode."""
        self.listed: list[str] = []
        """The last list of relations or attributes."""
        self.mistake: tuple[int, int] | None = None
        """Where the first mistake was: place, and variables of the solution by then."""
        self.gives_up = False

    def act(self, messages: Sequence[Message]) -> Message:
        if self.calls:
            self._read(messages[-1].content if messages else "")
        if self.gives_up or self.place == len(self.record.actions) or self._stops_early():
            return Message("assistant", final_answer(self.variables[-1] if self.variables else 0))
        action = self.record.actions[self.place]
        self.calls += 1
        arguments = [self._typed(argument) for argument in action.arguments]
        tool = action.tool
        if self._slips():
            tool, arguments = self._spoil(action, arguments)
        return call_message(
            tool, dict(zip(PARAMETERS[tool], arguments, strict=True)), f"call_{self.calls}"
        )

    def _read(self, reply: str) -> None:
        """Take in what the last call brought, and decide where to go on."""
        action = self.record.actions[self.place]
        if action.tool in MAKES_VARIABLE:
            number = read_made(reply)
            if number is None:
                self.gives_up = self.mistake is None  # the task refuses the solution itself
                self._return_to_mistake()
                return
            self.variables.append(number)
        else:
            self.listed = [name.strip() for name in reply.partition("[")[2].rstrip("]").split(",")]
        self.place += 1
        if self.mistake and self.random.random() < SECOND_THOUGHT:
            self._return_to_mistake()

    def _return_to_mistake(self) -> None:
        if self.mistake:
            self.place, count = self.mistake
            del self.variables[count:]
        self.mistake = None

    def _slips(self) -> bool:
        return self.noise > 0 and self.random.random() < self.noise

    def _stops_early(self) -> bool:
        return bool(self.variables) and self.random.random() < self.noise * EARLY

    def _spoil(self, action: Action, arguments: list[str]) -> tuple[str, list[str]]:
        """The call with a mistake, where one is possible."""
        wrong = action.tool, arguments
        others = [name for name in self.listed if name and name != arguments[-1]]
        if action.tool == "get_neighbors" and others:
            wrong = action.tool, [arguments[0], self.random.choice(others)]
        elif action.tool in _OPPOSITE:
            attribute = self.random.choice(others) if others else arguments[1]
            wrong = self.random.choice(
                [(_OPPOSITE[action.tool], arguments), (action.tool, [arguments[0], attribute])]
            )
        if wrong != (action.tool, arguments) and self.mistake is None:
            self.mistake = (self.place, len(self.variables))
        return wrong

    def _typed(self, argument: str) -> str:
        """An argument of the solution as it is typed in this episode."""
        if argument.startswith("#"):
            return f"#{self.variables[int(argument[1:])]}"
        return str(self.names.get(argument, argument))

"""The opening messages and the replies, in two styles; neither shows an identifier of an entity.

`compact`: no system prompt and few words, for policies of a million parameters. `agentbench`: instructions
in our own words, then the question and its entities as AgentBench orders them, replies that begin with
"Observation:". The worked example of the reference (broken in several ways, `spec/tasks.md` §3) is one of
our own here, and stands in the system prompt: no message of a prompt is then mistaken for the policy's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from agentrl.messages import Message
from agentrl.tasks.knowledgegraph.records import Record

Style = Literal["compact", "agentbench"]

SYSTEM = """You answer questions with the help of a knowledge graph. It holds entities, relations between \
them, and attributes of them. You look at it through tools; what you find are variables, which are sets of \
entities and are called #0, #1, #2 and so on, in the order in which they come about.
Begin with the entities that the question names, and give them to the tools by these names. In every turn \
call one tool and read what it says before you go on. Choose relations and attributes only from what \
get_relations and get_attributes have listed.{types}
When a variable holds the answer, write its number instead of a call, in this form and with nothing behind it:
Final Answer: #2
You have at most {turns} turns."""
TYPES = """ In place of an entity you may give the name of a type, such as common.topic: it stands for \
everything of that type."""

EXAMPLE = """Here is a worked example.
Question: Which of the lakes of Norland that lie in a national park is the deepest?
Entities: [Norland, national park]
get_relations(variable="Norland")
Observation: [location.country.capital, location.country.lakes]
get_neighbors(variable="Norland", relation="location.country.lakes")
Observation: #0 is a set of geography.lake
get_relations(variable="national park")
Observation: [protected.category.areas]
get_neighbors(variable="national park", relation="protected.category.areas")
Observation: #1 is a set of protected.area
get_relations(variable="#1")
Observation: [protected.area.country, protected.area.lakes]
get_neighbors(variable="#1", relation="protected.area.lakes")
Observation: #2 is a set of geography.lake
intersection(variable1="#0", variable2="#2")
Observation: #3 is a set of geography.lake
get_attributes(variable="#3")
Observation: [geography.lake.area, geography.lake.depth]
argmax(variable="#3", attribute="geography.lake.depth")
Observation: #4 is a set of geography.lake
Final Answer: #4"""

_MADE = re.compile(r"(?:Observation: )?#([0-9]+) ")
_ANSWER = re.compile(r"(?:Find|Final) Answer: *#([0-9]+)")
_OBSERVATION = "Observation:"


def opening(
    record: Record, style: Style, max_turns: int, strict: bool, one_shot: bool
) -> tuple[Message, ...]:
    names = ", ".join(record.entities)
    if style == "compact":
        return (Message("user", " ".join(f"{record.question} entities {names}".split())),)
    system = SYSTEM.format(turns=max_turns, types="" if strict else TYPES)
    if one_shot:
        system = f"{system}\n\n{EXAMPLE}"
    return (
        Message("system", system),
        Message("user", f"{record.question}\nEntities: [{names}]"),
    )


def listed(style: Style, names: Sequence[str]) -> str:
    """Relations or attributes."""
    return _observed(style, f"[{', '.join(names)}]")


def made(style: Style, number: int, kind: str) -> str:
    """A new variable."""
    if style == "compact":
        return f"#{number} {kind}"
    what = "a number" if kind == "number" else f"a set of {kind}"
    return _observed(style, f"#{number} is {what}")


def refused(style: Style, why: str) -> str:
    return _observed(style, f"Error: {why}")


def _observed(style: Style, text: str) -> str:
    return text if style == "compact" else f"{_OBSERVATION} {text}"


def read_made(reply: str) -> int | None:
    """The number of the variable that a reply names as new."""
    match = _MADE.match(reply)
    return int(match[1]) if match else None


def final_answer(number: int) -> str:
    return f"Final Answer: #{number}"


def read_final_answer(text: str) -> int | None:
    """The first answer in a message; what stands behind an invented observation does not count."""
    spoken = text.partition(_OBSERVATION)[0].replace("\\_", "_")
    match = _ANSWER.search(spoken)
    return int(match[1][:9]) if match else None

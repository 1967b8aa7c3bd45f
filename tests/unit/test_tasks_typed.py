"""What a person types becomes the message that an agent would have sent."""

from __future__ import annotations

import json

import pytest

from agentrl.messages import Message, ToolSpec
from agentrl.tasks.typed import UnclearLine, read_line, usage


def tool(name: str, **properties: object) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ToolSpec(name, "", {**schema, "additionalProperties": False})


TEXT = {"type": "string"}
ACT = tool("take_action", action=TEXT)
HOP = tool("get_neighbors", variable=TEXT, relation=TEXT)
COMMIT = tool("commit", answers={"type": "array", "items": TEXT})
GUESS = tool("guess", number={"type": "integer", "minimum": 1})
STOP = tool("stop")
TOOLS = [ACT, HOP, COMMIT, GUESS, STOP]


def call(line: str, tools: list[ToolSpec] = TOOLS) -> tuple[str, object]:
    [made] = read_line(tools, line).tool_calls
    return made.name, json.loads(made.arguments)


@pytest.mark.parametrize(
    ("line", "name", "arguments"),
    [
        ("take_action go to desk 1", "take_action", {"action": "go to desk 1"}),
        ("  take_action   it's “here” ", "take_action", {"action": "it's “here”"}),
        ('take_action {"action": "look"}', "take_action", {"action": "look"}),
        ("take_action {not json", "take_action", {"action": "{not json"}),
        ("get_neighbors #0 a.b.c", "get_neighbors", {"variable": "#0", "relation": "a.b.c"}),
        ('get_neighbors "New York" a.b', "get_neighbors", {"variable": "New York", "relation": "a.b"}),
        ("commit 12", "commit", {"answers": ["12"]}),
        ("commit Montréal, Canada", "commit", {"answers": ["Montréal, Canada"]}),
        ('commit ["a", "b"]', "commit", {"answers": ["a", "b"]}),
        ("guess 7", "guess", {"number": 7}),
        ("stop", "stop", {}),
    ],
)  # fmt: skip
def test_lines(line: str, name: str, arguments: object) -> None:
    assert call(line) == (name, arguments)


def test_the_only_tool_need_not_be_named() -> None:
    assert call("go to desk 1", [ACT]) == ("take_action", {"action": "go to desk 1"})
    assert call("take_action go", [ACT]) == ("take_action", {"action": "go"})


def test_words_without_a_tool() -> None:
    assert read_line(TOOLS, ": Final Answer: #2") == Message("assistant", "Final Answer: #2")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("go to desk 1", "'go' is no tool; there are take_action, get_neighbors,"),
        ("take_action", "'action' is a required property"),
        ("take_action", "Type: take_action ACTION"),
        ("get_neighbors #0", "'relation' is a required property"),
        ("get_neighbors New York a.b", "3 words for get_neighbors VARIABLE RELATION"),
        ("get_neighbors it's a.b", r"No closing quotation; or give JSON: get_neighbors \{"),
        ("guess seven", "'seven' is not of type 'integer'"),
        ("guess 0", "0 is less than the minimum of 1"),
        ("stop now", "1 words for stop"),
    ],
)
def test_a_slip_costs_no_turn_and_says_what_to_type(line: str, hint: str) -> None:
    with pytest.raises(UnclearLine, match=hint):
        read_line(TOOLS, line)


def test_usage() -> None:
    assert [usage(tool) for tool in (ACT, HOP, STOP)] == [
        "take_action ACTION",
        "get_neighbors VARIABLE RELATION",
        "stop",
    ]

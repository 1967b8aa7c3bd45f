"""A line that a person types, as the message of an agent.

take_action go to desk 1                          one text argument: the rest of the line
go to desk 1                                      the same, where the task has one tool only
get_neighbors #0 film.film.directed_by            several: a word each, "…" around words with spaces
commit_final_answer 12                            a list: one value
commit_final_answer ["a", "b"]                    JSON, where an argument is no text
get_neighbors {"variable": "#0", "relation": …}   JSON, always
: Final Answer: #2                                said without a tool
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.messages import Message, ToolSpec
from agentrl.tasks.base import call_message, check_arguments


class UnclearLine(ValueError):
    """The line is no message; says how to write one. It costs the person no turn."""


def read_line(tools: Sequence[ToolSpec], line: str, call_id: str = "call_0") -> Message:
    """The assistant message that `line` stands for; its arguments fit the tool's schema.

    Raises:
        UnclearLine: with what to type instead.
    """
    text = line.strip()
    if text.startswith(":"):
        return Message("assistant", text[1:].strip())
    name, _, rest = text.partition(" ")
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None and len(tools) == 1:
        tool, rest = tools[0], text
    if tool is None:
        names = ", ".join(tool.name for tool in tools)
        raise UnclearLine(f"{name!r} is no tool; there are {names} (and help, expert, quit)")
    message = call_message(tool.name, _arguments(tool, rest.strip()), call_id)
    _, problem = check_arguments(tools, message.tool_calls[0])
    if problem is not None:
        raise UnclearLine(f"{problem}\nType: {usage(tool)}")
    return message


def usage(tool: ToolSpec) -> str:
    """How a call of `tool` is typed."""
    return " ".join([tool.name, *(name.upper() for name in _properties(tool))])


def _properties(tool: ToolSpec) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    return properties


def _arguments(tool: ToolSpec, rest: str) -> dict[str, Any]:
    properties = _properties(tool)
    whole = _json(rest) if rest.startswith("{") else None
    if isinstance(whole, dict):
        return whole
    if not rest:
        return {}
    if len(properties) == 1:
        return {name: _value(schema, rest) for name, schema in properties.items()}
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise UnclearLine(f"{error}; or give JSON: {tool.name} {{…}}") from None
    if len(words) > len(properties):
        raise UnclearLine(
            f'{len(words)} words for {usage(tool)}: put "…" around words with spaces, or give JSON'
        )
    pairs = zip(properties.items(), words, strict=False)
    return {name: _value(schema, word) for (name, schema), word in pairs}


def _value(schema: Mapping[str, Any], text: str) -> Any:
    kind = schema.get("type", "string")
    if kind == "string":
        return text
    value = _json(text)
    if kind == "array" and not isinstance(value, list):
        return [text]
    return text if value is None else value  # what does not fit is told by the schema


def _json(text: str) -> Any:
    """None where it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None

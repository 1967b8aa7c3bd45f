"""From what a policy wrote to a message with tool calls; nothing it writes raises.

Invariant (pitfall 9): a broken call becomes a tool call whose arguments are certainly not a JSON
object, so `check_arguments` answers the model and no tool runs.
"""

from __future__ import annotations

import json
import re
from typing import Any

from renderers import ParsedResponse, ParsedToolCall, ToolCallParseStatus

from agentrl.messages import MAX_DEPTH, Message, ToolCall, clean, deeper_than

_NAME = re.compile(r'"name"\s*:\s*"((?:[^"\\]|\\.)*)"')
_ARGUMENTS = re.compile(r'"arguments"\s*:\s*')


def parse_call(text: str, *keys: str) -> ParsedToolCall:
    """One `{"name": ..., "arguments": {...}}` object; anything else gets a status that says why.

    `keys`: what arguments may be called, the first one that is there counts; by default `arguments`.
    """
    text = text.strip()
    data = _read(text)
    if data is None:
        return ParsedToolCall(raw=text, status=ToolCallParseStatus.INVALID_JSON)
    if not isinstance(data, dict):
        return ParsedToolCall(raw=text, status=ToolCallParseStatus.MALFORMED_STRUCTURE)
    key = next((key for key in keys if key in data), "arguments")
    name, arguments = data.get("name"), data.get(key)
    if not isinstance(name, str) or not name:
        return ParsedToolCall(raw=text, status=ToolCallParseStatus.MISSING_NAME)
    if not isinstance(arguments, dict):
        wrong = json_text(arguments) if key in data else None
        return ParsedToolCall(text, name, wrong, status=ToolCallParseStatus.MALFORMED_STRUCTURE)
    return ParsedToolCall(text, name, arguments)


def parse_arguments(name: str, text: str) -> ParsedToolCall:
    """A call whose name stands outside of its arguments, `text`."""
    arguments = _read(text)
    if isinstance(arguments, dict):
        return ParsedToolCall(text, name, arguments)
    status = "INVALID_JSON" if arguments is None else "MALFORMED_STRUCTURE"
    return ParsedToolCall(text, name, text, status=ToolCallParseStatus[status])


def to_message(response: ParsedResponse, turn: int) -> Message:
    """The assistant message of a parsed completion; call ids are `call_<turn>_<place>`."""
    calls = tuple(
        _to_call(call, f"call_{turn}_{place}") for place, call in enumerate(response.tool_calls)
    )
    return Message("assistant", clean(response.content or ""), calls)


def json_text(value: Any, **options: Any) -> str:
    """JSON with its letters as they are, except where they could not be encoded."""
    text = json.dumps(value, ensure_ascii=False, **options)
    return text if clean(text) == text else json.dumps(value, **options)


def _to_call(call: ParsedToolCall, call_id: str) -> ToolCall:
    # Parsers of the package differ in what they let through as a name.
    name = call.name if isinstance(call.name, str) else ""
    if call.status is ToolCallParseStatus.OK and name and isinstance(call.arguments, dict):
        return ToolCall(call_id, clean(name), json_text(call.arguments))
    raw = clean(call.raw)
    if not name and (found := _NAME.search(raw)):
        name = found.group(1)
    wrong = [call.arguments] if isinstance(call.arguments, str) else []
    after = [raw[found.end() :] for found in [_ARGUMENTS.search(raw)] if found]
    # As much of the raw text as shows the model's fault, but certainly not a JSON object.
    candidates = (text for text in [*wrong, *after, raw] if not _is_object(text))
    return ToolCall(call_id, clean(name), next(candidates, f"<tool_call>{raw}"))


def _read(text: str) -> Any:
    """A JSON value; None for what is none, for `null`, and for what is nested too deep."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return None if deeper_than(value, MAX_DEPTH) else value


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
    except RecursionError:
        # Only this thread's stack was too small: another reader may well manage to read it.
        return True

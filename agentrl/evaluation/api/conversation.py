"""What is said to a model and what it answers, whatever protocol carries it.

Invariant: a broken call is data. It reaches the environment as the model wrote it, which answers
it; in the history it stands in a form that every endpoint takes (pitfall 9).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from agentrl.evaluation.api.usage import Usage
from agentrl.messages import MAX_DEPTH, Message, ToolSpec, clean, deeper_than

FinishReason = Literal["stop", "length", "refused"]
EMPTY = "(empty)"
"""Stands where a message is blank and a protocol takes no blank one."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


class Garbage(ValueError):
    """An answer that does not follow its protocol."""


@dataclass(frozen=True, slots=True)
class Said:
    """A message of an episode. `by` and `native` are set where a model spoke."""

    message: Message
    by: str | None = None
    native: Any = None
    """The model's own form of it (thinking that it wants to see again), for that model only."""


@dataclass(frozen=True, slots=True)
class Request:
    """All that a model is told for one turn. `temperature` and `seed`: None sends none."""

    history: Sequence[Said]
    tools: Sequence[ToolSpec] = ()
    temperature: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    message: Message
    finish_reason: FinishReason
    usage: Usage | None
    """None where the endpoint did not say."""
    served: str | None
    """The model that the endpoint says has answered."""
    native: Any = None


def with_own_ids(message: Message, turn: int, used: set[str]) -> Message:
    """The same message with call ids that are unique in the episode and that every protocol takes."""
    calls = []
    for place, call in enumerate(message.tool_calls):
        if not _ID.fullmatch(call.id) or call.id in used:
            own = f"call_{turn}_{place}"
            while own in used:  # a model may have thought of it first
                own += "_"
            call = replace(call, id=own)
        used.add(call.id)
        calls.append(call)
    return replace(message, tool_calls=tuple(calls))


def safe_name(name: str) -> str:
    """A tool's name as endpoints take it; the model may have invented another."""
    return _UNFIT.sub("_", name)[:64] or "unknown"


def safe_arguments(text: str) -> dict[str, Any]:
    """Arguments as an object; what is none stands under `unparsed`."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        value = None
    fits = isinstance(value, dict) and not deeper_than(value, MAX_DEPTH)
    return value if fits else {"unparsed": text}


def text_of(value: Any) -> str:
    """Text of a content that is text, null, or a list of parts. Raises `Garbage`."""
    if value is None:
        return ""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        parts = (part.get("text") for part in value if isinstance(part, dict))
        return clean("".join(part for part in parts if isinstance(part, str)))
    raise Garbage(f"content is {type(value).__name__}")


def count(data: Any, *names: str) -> int:
    """A number of tokens at `data[name][name]…`; 0 where it is not given. Raises `Garbage`."""
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    if data is None:
        return 0
    if isinstance(data, bool) or not isinstance(data, int) or data < 0:
        raise Garbage(f"{'.'.join(names)} is {data!r}")
    return data


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")

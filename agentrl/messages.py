"""Chat messages, tool specifications, tool calls and episode statuses, in OpenAI's shapes.

The lowest floor of the house: imports nothing of the package and no third-party code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
MAX_DEPTH = 64
"""Deeper JSON is broken: whoever prints or checks it recursively would fail."""


class Status(StrEnum):
    """How an episode stands. The values are the wire strings of the AgentBench protocol.

    Exactly one of four kinds of ending applies, each with its own counter (invariant 4):
    finished by the task (`COMPLETED`), truncated (`LIMIT_REACHED`, `CONTEXT_LIMIT`), unusable
    action (`INVALID_ACTION`, `VALIDATION_FAILED`), infrastructure (`TASK_ERROR`, `CANCELLED`).
    """

    RUNNING = "running"
    COMPLETED = "completed"
    LIMIT_REACHED = "task limit reached"
    CONTEXT_LIMIT = "agent context limit"
    INVALID_ACTION = "agent invalid action"
    VALIDATION_FAILED = "agent validation failed"
    TASK_ERROR = "task error"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"

    @property
    def is_infrastructure(self) -> bool:
        """True where the episode says nothing about the policy and must carry no reward."""
        return self in (Status.TASK_ERROR, Status.CANCELLED)

    @property
    def is_truncation(self) -> bool:
        return self in (Status.LIMIT_REACHED, Status.CONTEXT_LIMIT)

    @property
    def is_invalid(self) -> bool:
        return self in (Status.INVALID_ACTION, Status.VALIDATION_FAILED)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One function the agent may call; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    def to_openai(self) -> dict[str, Any]:
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters),
            },
        }


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as the model wrote it. `arguments` is the raw text: it may not be valid JSON."""

    id: str
    name: str
    arguments: str

    def to_openai(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `tool_call_id` and `name` are set on role `tool` only."""

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    def to_openai(self) -> dict[str, Any]:
        """The OpenAI chat-completions object; empty fields are left out, `content` never is."""
        out: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            out["tool_calls"] = [call.to_openai() for call in self.tool_calls]
        if self.tool_call_id is not None:
            out["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            out["name"] = self.name
        return out

    @classmethod
    def from_openai(cls, data: Mapping[str, Any]) -> Message:
        """Inverse of `to_openai`; a null content or null `tool_calls` reads as empty."""
        calls = tuple(
            ToolCall(call.get("id") or "", call["function"]["name"], call["function"]["arguments"])
            for call in data.get("tool_calls") or ()
        )
        return cls(
            role=data["role"],
            content=data.get("content") or "",
            tool_calls=calls,
            tool_call_id=data.get("tool_call_id"),
            name=data.get("name"),
        )


def clean(text: str) -> str:
    """Text that can be encoded: lone surrogates, which JSON escapes can make, become `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def deeper_than(value: Any, depth: int) -> bool:
    """Whether lists and objects of a JSON value are nested deeper than `depth`."""
    level = [value]
    for _ in range(depth):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True

"""Anthropic's messages. Thinking goes back to the model that thought it, block by block."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agentrl.config.api_models import ModelConfig
from agentrl.evaluation.api.conversation import (
    EMPTY,
    Answer,
    FinishReason,
    Garbage,
    Request,
    Said,
    count,
    safe_arguments,
    safe_name,
)
from agentrl.evaluation.api.usage import Usage
from agentrl.messages import Message, ToolCall, clean

PATH = "/messages"
VERSION = "2023-06-01"
_CACHE = {"cache_control": {"type": "ephemeral"}}
_FINISH: Mapping[str, FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}


def headers(key: str | None) -> dict[str, str]:
    return {"anthropic-version": VERSION} | ({} if key is None else {"x-api-key": key})


def body(name: str, config: ModelConfig, request: Request) -> dict[str, Any]:
    system = [said.message.content for said in request.history if said.message.role == "system"]
    out: dict[str, Any] = {
        "model": config.model,
        "max_tokens": config.max_output_tokens,
        "messages": _messages(name, request),
    }
    if any(text.strip() for text in system):
        out["system"] = "\n\n".join(system)
    if request.tools:
        out["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": dict(tool.parameters),
            }
            for tool in request.tools
        ]
    if request.temperature is not None:
        out["temperature"] = request.temperature
    if config.prompt_cache:
        # What stands up to here is the beginning of the next request.
        last = out["messages"][-1]["content"]
        last[-1] = last[-1] | _CACHE
    return out | config.parameters


def parse(data: Mapping[str, Any]) -> Answer:
    """Raises `Garbage`."""
    content = data.get("content")
    if not isinstance(content, list):
        raise Garbage("it has no content")
    texts: list[str] = []
    calls: list[ToolCall] = []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text" and isinstance(block.get("text"), str):
            texts.append(clean(block["text"]))
        elif kind == "tool_use":
            calls.append(_call(block))
        elif kind not in ("thinking", "redacted_thinking"):
            raise Garbage(f"a block of type {kind!r}")
    finish, usage = data.get("stop_reason"), data.get("usage")
    thought = len(content) > len(texts) + len(calls)
    return Answer(
        Message("assistant", "\n".join(filter(str.strip, texts)), tuple(calls)),
        _FINISH.get(finish, "stop") if isinstance(finish, str) else "stop",
        _usage(usage) if isinstance(usage, dict) and "output_tokens" in usage else None,
        data.get("model"),
        content if thought and (calls or any(map(str.strip, texts))) else None,
    )


def _messages(name: str, request: Request) -> list[dict[str, Any]]:
    """Roles take turns; the results of calls stand before anything else that is said."""
    out: list[dict[str, Any]] = []
    for said in request.history:
        role = said.message.role
        if role == "system":
            continue
        role = "assistant" if role == "assistant" else "user"
        if not out or out[-1]["role"] != role:
            out.append({"role": role, "content": []})
        out[-1]["content"] += _blocks(name, said)
    for message in out:
        message["content"].sort(key=lambda block: block["type"] != "tool_result")
    if not out or out[0]["role"] != "user":
        out.insert(0, {"role": "user", "content": [{"type": "text", "text": EMPTY}]})
    return out


def _blocks(name: str, said: Said) -> Iterator[dict[str, Any]]:
    message = said.message
    if message.role == "tool":
        yield {
            "type": "tool_result",
            "tool_use_id": message.tool_call_id,
            "content": message.content,
        }
        return
    if said.native and said.by == name:
        for block in said.native:
            fits = block["type"] != "tool_use" or isinstance(block["input"], dict)
            yield block if fits else block | {"input": safe_arguments(json.dumps(block["input"]))}
        return
    if message.content.strip() or not message.tool_calls:
        yield {"type": "text", "text": message.content if message.content.strip() else EMPTY}
    for call in message.tool_calls:
        yield {
            "type": "tool_use",
            "id": call.id,
            "name": safe_name(call.name),
            "input": safe_arguments(call.arguments),
        }


def _call(block: Mapping[str, Any]) -> ToolCall:
    name, call_id = block.get("name"), block.get("id")
    if not isinstance(name, str) or "input" not in block:
        raise Garbage("a tool_use block has no name or no input")
    arguments = json.dumps(block["input"], ensure_ascii=False)
    return ToolCall(call_id if isinstance(call_id, str) else "", clean(name), clean(arguments))


def _usage(usage: Mapping[str, Any]) -> Usage:
    return Usage(
        count(usage, "input_tokens"),
        count(usage, "cache_read_input_tokens"),
        count(usage, "cache_creation_input_tokens"),
        count(usage, "output_tokens"),
    )

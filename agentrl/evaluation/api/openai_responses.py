"""OpenAI's responses, without state on the server: every request carries the whole history.

Thinking is given back to the model that thought it where the answer has it in a form that can be
(`parameters: {include: [reasoning.encrypted_content]}`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agentrl.config.api_models import ModelConfig
from agentrl.evaluation.api.conversation import (
    Answer,
    FinishReason,
    Garbage,
    Request,
    Said,
    count,
    safe_arguments,
    safe_name,
    text_of,
)
from agentrl.evaluation.api.openai_chat import headers
from agentrl.evaluation.api.usage import Usage
from agentrl.messages import Message, ToolCall, ToolSpec, clean

PATH = "/responses"
__all__ = ["PATH", "body", "headers", "parse"]

_INCOMPLETE: Mapping[str, FinishReason] = {
    "max_output_tokens": "length",
    "content_filter": "refused",
}


def body(name: str, config: ModelConfig, request: Request) -> dict[str, Any]:
    out: dict[str, Any] = {
        "model": config.model,
        "input": [item for said in request.history for item in _items(name, said)],
        "max_output_tokens": config.max_output_tokens,
        "store": False,
    }
    if request.tools:
        out["tools"] = [_tool(tool) for tool in request.tools]
    if request.temperature is not None:
        out["temperature"] = request.temperature
    return out | config.parameters


def parse(data: Mapping[str, Any]) -> Answer:
    """Raises `Garbage`."""
    output = data.get("output")
    if not isinstance(output, list) or data.get("status") == "failed":
        raise Garbage("it has no output")
    texts: list[str] = []
    calls: list[ToolCall] = []
    thinking: list[Any] = []
    for item in output:
        kind = item.get("type") if isinstance(item, dict) else None
        if kind == "message":
            parts = item.get("content")
            texts.append(text_of(parts))
            for part in parts if isinstance(parts, list) else []:
                if isinstance(part, dict) and isinstance(part.get("refusal"), str):
                    texts.append(clean(part["refusal"]))
        elif kind == "function_call":
            calls.append(_call(item))
        elif kind == "reasoning" and item.get("encrypted_content"):
            thinking.append(item)
    why = (data.get("incomplete_details") or {}).get("reason")
    usage = data.get("usage")
    return Answer(
        Message("assistant", "\n".join(filter(None, texts)), tuple(calls)),
        _INCOMPLETE.get(str(why), "length") if data.get("status") == "incomplete" else "stop",
        _usage(usage) if isinstance(usage, dict) and "output_tokens" in usage else None,
        data.get("model"),
        thinking or None,
    )


def _items(name: str, said: Said) -> Iterator[dict[str, Any]]:
    message = said.message
    if message.role == "tool":
        yield {
            "type": "function_call_output",
            "call_id": message.tool_call_id,
            "output": message.content,
        }
        return
    if said.native and said.by == name:
        yield from said.native
    if message.content or not message.tool_calls:
        yield {"role": message.role, "content": message.content}
    for call in message.tool_calls:
        arguments = json.dumps(safe_arguments(call.arguments), ensure_ascii=False)
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": safe_name(call.name),
            "arguments": arguments,
        }


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {"type": "function", **tool.to_openai()["function"], "strict": False}


def _call(item: Mapping[str, Any]) -> ToolCall:
    name, arguments, call_id = item.get("name"), item.get("arguments"), item.get("call_id")
    if not isinstance(name, str) or not isinstance(arguments, str):
        raise Garbage("a function call has no name or no arguments")
    return ToolCall(call_id if isinstance(call_id, str) else "", clean(name), clean(arguments))


def _usage(usage: Mapping[str, Any]) -> Usage:
    cached = count(usage, "input_tokens_details", "cached_tokens")
    return Usage(
        max(0, count(usage, "input_tokens") - cached), cached, 0, count(usage, "output_tokens")
    )

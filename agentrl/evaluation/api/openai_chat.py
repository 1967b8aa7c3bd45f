"""OpenAI's chat completions, as most servers speak them (vLLM, SGLang, llama.cpp, gateways)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentrl.config.api_models import ModelConfig
from agentrl.evaluation.api.conversation import (
    Answer,
    FinishReason,
    Garbage,
    Request,
    count,
    safe_arguments,
    safe_name,
    text_of,
)
from agentrl.evaluation.api.usage import Usage
from agentrl.messages import Message, ToolCall, clean

PATH = "/chat/completions"
_FINISH: Mapping[str, FinishReason] = {"length": "length", "content_filter": "refused"}


def headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def body(name: str, config: ModelConfig, request: Request) -> dict[str, Any]:
    """A request; `parameters` may bring a limit of tokens under a name of its own."""
    out: dict[str, Any] = {
        "model": config.model,
        "messages": [_message(said.message) for said in request.history],
    }
    if "max_tokens" not in config.parameters:
        out["max_completion_tokens"] = config.max_output_tokens
    if request.tools:
        out["tools"] = [tool.to_openai() for tool in request.tools]
    if request.temperature is not None:
        out["temperature"] = request.temperature
    if request.seed is not None:
        out["seed"] = request.seed
    return out | config.parameters


def parse(data: Mapping[str, Any]) -> Answer:
    """Raises `Garbage`."""
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise Garbage("it has no choices[0].message")
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise Garbage("tool_calls is no list")
    finish = choice.get("finish_reason")
    text = text_of(message.get("content")) or text_of(message.get("refusal"))
    usage = data.get("usage")
    return Answer(
        Message("assistant", text, tuple(_call(call) for call in calls)),
        _FINISH.get(finish, "stop") if isinstance(finish, str) else "stop",
        _usage(usage) if isinstance(usage, dict) and "completion_tokens" in usage else None,
        data.get("model"),
    )


def _message(message: Message) -> dict[str, Any]:
    out: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        out["content"] = message.content or None
        out["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": safe_name(call.name),
                    "arguments": json.dumps(safe_arguments(call.arguments), ensure_ascii=False),
                },
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        out["tool_call_id"] = message.tool_call_id
    return out


def _call(call: Any) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise Garbage("a tool call has no function with a name")
    arguments = function.get("arguments")
    if not isinstance(arguments, str):  # some servers give the object itself
        arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
    call_id = call.get("id")
    return ToolCall(
        call_id if isinstance(call_id, str) else "", clean(function["name"]), clean(arguments)
    )


def _usage(usage: Mapping[str, Any]) -> Usage:
    cached = count(usage, "prompt_tokens_details", "cached_tokens")
    return Usage(
        max(0, count(usage, "prompt_tokens") - cached), cached, 0, count(usage, "completion_tokens")
    )

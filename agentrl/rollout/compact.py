"""The chat format of the tiny policy: as few tokens as possible, and still JSON tool calls.

    <bos><user>OBSERVATION<assistant>{"name":"take_action","arguments":{"action":"look"}}<end>
    <user>REPLY<assistant>...

(without the line break). No tool list and no system prompt of its own; what a task says in a
system message stands at the head of the first block. The fixed pieces of a call are added tokens
of the tokenizer, so an action costs little more than its words; the text of a call is still read
by `json.loads` (spec/mini.md §2).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from renderers import ParsedResponse

from agentrl.messages import ToolSpec
from agentrl.rollout.encoding import Part, Trust
from agentrl.rollout.parsing import json_text, parse_call
from agentrl.rollout.parts import Dialogue, PartsRenderer

BOS, USER, ASSISTANT, END, PAD = "<bos>", "<user>", "<assistant>", "<end>", "<pad>"
CONTROL = (PAD, BOS, USER, ASSISTANT, END)

CHAT_TEMPLATE = (
    "{{ '<bos>' }}{% for m in messages %}{% if m['role'] == 'assistant' %}"
    "{{ '<assistant>' + m['content'] }}{% for c in m['tool_calls'] or [] %}"
    "{{ '{\"name\":' + c['function']['name']|tojson + ',\"arguments\":' }}"
    "{{ c['function']['arguments'] if c['function']['arguments'] is string "
    "else c['function']['arguments']|tojson(separators=(',', ':')) }}{{ '}' }}{% endfor %}"
    "{{ '<end>' }}{% else %}"
    "{% if loop.first or messages[loop.index0 - 1]['role'] == 'assistant' %}{{ '<user>' }}"
    "{% else %}{{ '\\n' }}{% endif %}{{ m['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
"""The same format for readers that know templates only, and for the audit."""


class CompactRenderer(PartsRenderer):
    name = "compact"
    close = END
    control = CONTROL
    template = CHAT_TEMPLATE

    def preamble(self, messages: Dialogue, tools: Dialogue | None) -> tuple[list[Part], int]:
        return [Part(BOS, trust=Trust.CONTROL)], 0

    def block(self, messages: Dialogue, first: int) -> Iterator[Part]:
        for offset, message in enumerate(messages):
            index = first + offset
            yield Part("\n", index) if offset else Part(USER, index, Trust.CONTROL)
            yield Part(message["content"], index, content=True)

    def assistant(
        self, message: Mapping[str, Any], index: int, following: str | None
    ) -> Iterator[Part]:
        yield Part(ASSISTANT, index, Trust.CONTROL)
        yield Part(assistant_text(message), index, Trust.PIECES, sampled=True, content=True)
        yield Part(END, index, Trust.CONTROL, sampled=True, content=True)

    def generation_prompt(self) -> list[Part]:
        return [Part(ASSISTANT, trust=Trust.CONTROL)]

    def glue(self) -> list[Part]:
        return []

    def parse_text(self, text: str, tools: Collection[str] = ()) -> ParsedResponse:
        if text.lstrip().startswith("{"):
            return ParsedResponse(content="", tool_calls=[parse_call(text)])
        return ParsedResponse(content=text)


def assistant_text(message: Mapping[str, Any]) -> str:
    """What the policy is to write for an assistant message: content, then its calls."""
    calls = message.get("tool_calls") or ()
    return (message.get("content") or "") + "".join(_call_text(c["function"]) for c in calls)


def _call_text(function: Mapping[str, Any]) -> str:
    arguments = function["arguments"]
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
        arguments = json_text(value, separators=(",", ":"))
    except (ValueError, RecursionError):
        pass  # a broken call stands as it was written
    return f'{{"name":{json_text(function["name"])},"arguments":{arguments}}}'


def pieces(tools: Iterable[ToolSpec]) -> list[str]:
    """The fixed text of calls to `tools`, as the added tokens of a tokenizer.

    For arguments p, q of type string: `{"name":"NAME","arguments":{"p":"`, `","q":"`, `"}}`; an
    array of strings opens with `["`, goes on with `","` and ends with `"]`. Other types are left
    to the ordinary tokens.
    """
    found: dict[str, None] = {}
    for tool in tools:
        for piece in _tool_pieces(tool):
            # A byte-level decoder reads added tokens too, so they hold nothing but plain ASCII.
            if all("!" <= letter <= "~" for letter in piece):
                found[piece] = None
    return list(found)


def _tool_pieces(tool: ToolSpec) -> Iterator[str]:
    head = f'{{"name":{json_text(tool.name)},"arguments":{{'
    properties = dict(tool.parameters.get("properties", {}))
    required = [name for name in tool.parameters.get("required", ()) if name in properties]
    order = required + [name for name in properties if name not in required]
    if not required:
        yield head + "}}"
    before = ""
    for place, name in enumerate(order):
        quotes = _quotes(properties[name])
        if quotes is None:
            return
        opening, between, closing = quotes
        yield (
            f"{before},{json_text(name)}:{opening}"
            if place
            else f"{head}{json_text(name)}:{opening}"
        )
        if between:
            yield between
        yield closing + "}}"
        before = closing


def _quotes(schema: Mapping[str, Any]) -> tuple[str, str, str] | None:
    if schema.get("type") == "string":
        return '"', "", '"'
    items = schema.get("items")
    if (
        schema.get("type") == "array"
        and isinstance(items, Mapping)
        and items.get("type") == "string"
    ):
        return '["', '","', '"]'
    return None


def corpus(texts: Iterable[str]) -> Iterator[str]:
    """What is left of `texts` for the ordinary tokens: strings inside of JSON, and plain text.

    A text that is a JSON object (the arguments of a call, or a whole call) counts by the strings
    in it, escaped as the policy will have to write them; any other text is taken as it stands.
    """
    for text in texts:
        try:
            value = json.loads(text) if text.startswith("{") else None
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            yield from _strings(
                value["arguments"] if {"name", "arguments"} == value.keys() else value
            )
        else:
            yield text


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield json_text(value)[1:-1]
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif value is not None:
        yield json.dumps(value)

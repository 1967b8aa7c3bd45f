"""ChatML with Hermes-style tool calls, as Qwen2.5 was trained on it; SmolLM2 learns it here.

    <|im_start|>system ... <tools> one JSON a line </tools> ... <|im_end|>
    <|im_start|>assistant
    <tool_call>
    {"name": "look", "arguments": {}}
    </tool_call><|im_end|>
    <|im_start|>user
    <tool_response>
    REPLY
    </tool_response><|im_end|>

The newline behind `<|im_end|>` is the template's, so it is the environment's (pitfall 2).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar

from renderers import ParsedResponse, ToolCallParseStatus

from agentrl.rollout.encoding import Part, Trust
from agentrl.rollout.parsing import json_text, parse_call
from agentrl.rollout.parts import Dialogue, PartsRenderer

START, END, END_OF_TEXT = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
CALL, CALL_END = "<tool_call>", "</tool_call>"
DEFAULT_SYSTEM = "You are a helpful assistant."

_TOOLS_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_FOOT = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    f"within {CALL}{CALL_END} XML tags:\n{CALL}\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n' + CALL_END
)


def chat_template(system: str) -> str:
    """The format as a template; `system` stands where a conversation has no system message."""
    return (
        "{% set system = messages[0]['content'] if messages[0]['role'] == 'system' else "
        + repr(system)
        + " %}{{ '<|im_start|>system\\n' + system }}{% if tools %}{{ '\\n\\n'"
        f" + {_TOOLS_HEAD!r} }}}}"
        "{% for tool in tools %}{{ '\\n' + tool|tojson }}{% endfor %}"
        f"{{{{ {_TOOLS_FOOT!r} }}}}"
        "{% endif %}{{ '<|im_end|>\\n' }}"
        "{% for m in messages %}"
        "{% set tool_before = not loop.first and messages[loop.index0 - 1]['role'] == 'tool' %}"
        "{% set tool_after = not loop.last and messages[loop.index0 + 1]['role'] == 'tool' %}"
        "{% if m['role'] == 'assistant' %}{{ '<|im_start|>assistant\\n' + m['content'] }}"
        "{% for c in m['tool_calls'] or [] %}{% if m['content'] or not loop.first %}{{ '\\n' }}{% endif %}"
        "{{ '<tool_call>\\n{\"name\": ' + c['function']['name']|tojson + ', \"arguments\": ' }}"
        "{{ c['function']['arguments'] if c['function']['arguments'] is string "
        "else c['function']['arguments']|tojson }}{{ '}\\n</tool_call>' }}{% endfor %}"
        "{{ '<|im_end|>\\n' }}"
        "{% elif m['role'] == 'tool' %}{% if not tool_before %}{{ '<|im_start|>user' }}{% endif %}"
        "{{ '\\n<tool_response>\\n' + m['content'] + '\\n</tool_response>' }}"
        "{% if not tool_after %}{{ '<|im_end|>\\n' }}{% endif %}"
        "{% elif not (loop.first and m['role'] == 'system') %}"
        "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )


CHAT_TEMPLATE = chat_template(DEFAULT_SYSTEM)


class ChatMLRenderer(PartsRenderer):
    name = "chatml"
    close = END
    control: ClassVar[tuple[str, ...]] = (START, END)
    template = CHAT_TEMPLATE
    default_system: ClassVar[str | None] = DEFAULT_SYSTEM
    """Where a conversation has no system message; None: nothing stands there."""

    def get_stop_token_ids(self) -> list[int]:
        end_of_text = self.encoder.token_id(END_OF_TEXT)
        return [self._close] if end_of_text is None else [self._close, end_of_text]

    def preamble(self, messages: Dialogue, tools: Dialogue | None) -> tuple[list[Part], int]:
        given = messages[0]["role"] == "system"
        index = 0 if given else -1
        system = messages[0]["content"] if given else self.default_system
        if system is None and not tools:
            return [], 0
        parts = _open("system", index)
        if system is not None:
            parts.append(Part(system, index, content=given))
        if tools:
            listed = "".join("\n" + json_text(tool) for tool in tools)
            head = _TOOLS_HEAD if system is None else f"\n\n{_TOOLS_HEAD}"
            parts += [Part(head, index, Trust.PIECES), Part(listed, index)]
            parts += [Part(_TOOLS_FOOT, index, Trust.PIECES)]
        return [*parts, *_shut(index)], int(given)

    def block(self, messages: Dialogue, first: int) -> Iterator[Part]:
        roles = ["", *(message["role"] for message in messages), ""]
        for offset, message in enumerate(messages):
            index, before, after = first + offset, roles[offset], roles[offset + 2]
            if message["role"] != "tool":
                yield from _open(message["role"], index)
                yield Part(message["content"], index, content=True)
                yield from _shut(index)
                continue
            head = "" if before == "tool" else f"{START}user"
            yield Part(f"{head}\n<tool_response>\n", index, Trust.CONTROL)
            yield Part(message["content"], index, content=True)
            yield Part("\n</tool_response>", index, Trust.CONTROL)
            if after != "tool":
                yield from _shut(index)

    def assistant(
        self, message: Mapping[str, Any], index: int, following: str | None
    ) -> Iterator[Part]:
        yield from _open("assistant", index)
        text = assistant_text(message)
        yield Part(text, index, Trust.PIECES, sampled=True, content=True, cut=True)
        yield Part(END, index, Trust.CONTROL, sampled=True, content=True)
        yield Part("\n", index)

    def generation_prompt(self) -> list[Part]:
        return _open("assistant", -1)

    def glue(self) -> list[Part]:
        return [Part("\n")]

    def parse_text(self, text: str, tools: Collection[str] = ()) -> ParsedResponse:
        content, *rest = re.split(CALL, text.removesuffix(END_OF_TEXT))
        calls, contents = [], [content.strip("\n")]
        for written in rest:
            body, closing, behind = written.partition(CALL_END)
            call = parse_call(body)
            if not closing:
                call.status = ToolCallParseStatus.UNCLOSED_BLOCK
            calls.append(call)
            contents.append(behind.strip("\n"))
        return ParsedResponse(content="\n".join(filter(None, contents)), tool_calls=calls)


class Qwen25Renderer(ChatMLRenderer):
    """Qwen2.5-Instruct."""

    name = "qwen2.5"
    default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    template = chat_template(default_system)


class SmolLM2Renderer(ChatMLRenderer):
    """SmolLM2-Instruct, which knows no tools: it learns Hermes' calls here."""

    name = "smollm2"
    default_system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    template = chat_template(default_system)


def assistant_text(message: Mapping[str, Any]) -> str:
    """What the policy is to write for an assistant message: content, then its calls."""
    content = message.get("content") or ""
    calls = [_call_text(call["function"]) for call in message.get("tool_calls") or ()]
    return "\n".join([content, *calls] if content else calls)


def _call_text(function: Mapping[str, Any]) -> str:
    arguments = function["arguments"]
    text = arguments if isinstance(arguments, str) else json_text(arguments)
    return f'{CALL}\n{{"name": {json_text(function["name"])}, "arguments": {text}}}\n{CALL_END}'


def _open(role: str, index: int) -> list[Part]:
    return [Part(f"{START}{role}\n", index, Trust.CONTROL)]


def _shut(index: int) -> list[Part]:
    return [Part(f"{END}\n", index, Trust.CONTROL)]

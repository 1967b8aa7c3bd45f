"""Llama 3.1 and 3.2: a call is a bare JSON object, its arguments are called parameters.

    <|start_header_id|>assistant<|end_header_id|>

    {"name": "look", "parameters": {}}<|eot_id|><|start_header_id|>ipython<|end_header_id|>

    "REPLY"<|eot_id|>

As in the models' own template the tools stand in the first user message, and what an environment
says is trimmed. What a policy said is not (the package `renderers` trims it, so that a prefix would
change), and several calls may stand side by side, with semicolons between them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from importlib.resources import files
from typing import Any

from renderers import ParsedResponse

from agentrl.rollout.encoding import Part, Trust
from agentrl.rollout.parsing import json_text, parse_call
from agentrl.rollout.parts import Dialogue, PartsRenderer

BOS, END = "<|begin_of_text|>", "<|eot_id|>"
HEADER, HEADER_END = "<|start_header_id|>", "<|end_header_id|>"
OTHER_STOPS = ("<|eom_id|>", "<|end_of_text|>")
PYTHON = "<|python_tag|>"
"""Llama 3.1 writes it before some calls."""

DATE = "26 Jul 2024"
"""Today's, as the template has it where nobody tells: a clock would change the prompt every day."""

CHAT_TEMPLATE = (files("agentrl.rollout") / "templates" / "llama-3.jinja").read_text("utf-8")

_FORMAT = (
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and its '
    "value}.Do not use variables.\n\n"
)
_TOOLS_OF_A_USER = (
    "Given the following functions, please respond with a JSON for a function call with its proper "
    f"arguments that best answers the given prompt.\n\n{_FORMAT}"
)
_TOOLS_OF_THE_SYSTEM = (
    "You have access to the following functions. To call a function, please respond with JSON for a "
    f"function call.{_FORMAT}"
)


class Llama3Renderer(PartsRenderer):
    name = "llama-3"
    close = END
    control = (BOS, HEADER, HEADER_END, END)
    template = CHAT_TEMPLATE

    def get_stop_token_ids(self) -> list[int]:
        others = (self.encoder.token_id(token) for token in OTHER_STOPS)
        return [self._close, *(token for token in others if token is not None)]

    def preamble(self, messages: Dialogue, tools: Dialogue | None) -> tuple[list[Part], int]:
        given = messages[0]["role"] == "system"
        index, used = (0, 1) if given else (-1, 0)
        listed = "".join(f"{json_text(tool, indent=4)}\n\n" for tool in tools or ())
        parts = [Part(BOS, trust=Trust.CONTROL), *_open("system", index)]
        if tools:
            parts.append(Part("Environment: ipython\n", index))
        parts.append(Part(f"Cutting Knowledge Date: December 2023\nToday Date: {DATE}\n\n", index))
        of_a_user = used < len(messages) and messages[used]["role"] == "user"
        if tools and not of_a_user:
            parts.append(Part(_TOOLS_OF_THE_SYSTEM + listed, index))
        if given:
            parts.append(Part(messages[0]["content"].strip(), index, content=True))
        parts.append(Part(END, index, Trust.CONTROL))
        if tools and of_a_user:
            parts += [*_open("user", used), Part(_TOOLS_OF_A_USER + listed, used)]
            parts.append(Part(messages[used]["content"].strip(), used, content=True))
            parts.append(Part(END, used, Trust.CONTROL))
            used += 1
        return parts, used

    def block(self, messages: Dialogue, first: int) -> Iterator[Part]:
        for offset, message in enumerate(messages):
            index, role, text = first + offset, message["role"], message["content"]
            yield from _open("ipython" if role == "tool" else role, index)
            yield Part(json_text(text) if role == "tool" else text.strip(), index, content=True)
            yield Part(END, index, Trust.CONTROL)

    def assistant(
        self, message: Mapping[str, Any], index: int, following: str | None
    ) -> Iterator[Part]:
        yield from _open("assistant", index)
        text = assistant_text(message)
        yield Part(text, index, Trust.PIECES, sampled=True, content=True, cut=True)
        yield Part(END, index, Trust.CONTROL, sampled=True, content=True)

    def generation_prompt(self) -> list[Part]:
        return _open("assistant", -1)

    def glue(self) -> list[Part]:
        return []

    def parse_text(self, text: str, tools: Collection[str] = ()) -> ParsedResponse:
        said = text.strip().removeprefix(PYTHON).lstrip()
        if not said.startswith("{"):
            return ParsedResponse(content=text.strip())
        return ParsedResponse(
            content="",
            tool_calls=[parse_call(one, "parameters", "arguments") for one in _split(said)],
        )


def assistant_text(message: Mapping[str, Any]) -> str:
    """What the policy is to write: calls alone where there are any, for text hides a call here."""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return "; ".join(map(_call_text, calls)) if calls else message.get("content") or ""


def _call_text(function: Mapping[str, Any]) -> str:
    arguments = function["arguments"]
    text = arguments if isinstance(arguments, str) else json_text(arguments)
    return f'{{"name": {json_text(function["name"])}, "parameters": {text}}}'


def _split(text: str) -> list[str]:
    """The JSON objects that semicolons part; the whole where it is anything else."""
    found, position = [], 0
    try:
        while True:
            _, end = json.JSONDecoder().raw_decode(text, position)
            found.append(text[position:end])
            rest = text[end:].lstrip()
            if not rest:
                return found
            if not rest.startswith(";"):
                return [text]
            position = len(text) - len(rest[1:].lstrip())
    except (ValueError, RecursionError):
        return [text]


def _open(role: str, index: int) -> list[Part]:
    return [Part(f"{HEADER}{role}{HEADER_END}\n\n", index, Trust.CONTROL)]

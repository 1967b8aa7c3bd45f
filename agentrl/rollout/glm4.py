"""GLM-4-0414: a call is the tool's name behind the role, and its arguments on the next line.

    <|user|>
    You see a desk 1.<|assistant|>look
    {"at": "desk 1"}<|observation|>
    A lamp.<|assistant|>
    It is a lamp.<|user|>

The token that ends a message is the role of the next one: a policy that has called a tool writes
`<|observation|>` itself. Several parts of one message (a word, then a call) have `<|assistant|>`
between them. Where a policy ended with another role than the one that answers, both stand there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from renderers import ParsedResponse, ParsedToolCall, RenderedTokens

from agentrl.rollout.encoding import Part, Trust
from agentrl.rollout.parsing import json_text, parse_arguments
from agentrl.rollout.parts import Dialogue, PartsRenderer

START, END_OF_TEXT = "[gMASK]<sop>", "<|endoftext|>"
SYSTEM, USER, ASSISTANT, OBSERVATION = "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"

CHAT_TEMPLATE = (files("agentrl.rollout") / "templates" / "glm-4.jinja").read_text("utf-8")

_INTRODUCTION = (
    "你是一个名为 ChatGLM 的人工智能助手。你是基于智谱 AI 公司训练的语言模型 GLM-4 模型开发的，你的任务是针对"
    "用户的问题和要求提供适当的答复和支持。\n\n# 可用工具"
)
_HOW = "在调用上述函数时，请使用 Json 格式表示调用的参数。"
_NAME = re.compile(r"[A-Za-z_][\w.-]*")


class Glm4Renderer(PartsRenderer):
    name = "glm-4"
    close = OBSERVATION
    control = ("[gMASK]", "<sop>", SYSTEM, USER, ASSISTANT, OBSERVATION)
    template = CHAT_TEMPLATE

    def get_stop_token_ids(self) -> list[int]:
        end_of_text = self.encoder.token_id(END_OF_TEXT)
        roles = [self._close, self._id(USER)]
        return roles if end_of_text is None else [*roles, end_of_text]

    def preamble(self, messages: Dialogue, tools: Dialogue | None) -> tuple[list[Part], int]:
        parts = [Part(START, trust=Trust.CONTROL)]
        if tools:
            functions = [tool.get("function", tool) for tool in tools]
            listed = "".join(
                f"\n\n## {function['name']}\n\n{json_text(function, indent=4)}\n{_HOW}"
                for function in functions
            )
            parts += [Part(SYSTEM, trust=Trust.CONTROL), Part(f"\n{_INTRODUCTION}{listed}")]
        return parts, 0

    def block(self, messages: Dialogue, first: int) -> Iterator[Part]:
        for offset, message in enumerate(messages):
            index = first + offset
            yield Part(_opener(message["role"]), index, Trust.CONTROL)
            yield Part("\n", index)
            yield Part(message["content"], index, content=True)

    def after_close(self, block: list[Part]) -> list[Part]:
        return block[1:]

    def assistant(
        self, message: Mapping[str, Any], index: int, following: str | None
    ) -> Iterator[Part]:
        content = message.get("content") or ""
        yield Part(ASSISTANT, index, Trust.CONTROL)
        spoken: list[tuple[str, Trust]] = []
        if content.startswith(ASSISTANT):  # as the policy wrote it
            for text in content.removeprefix(ASSISTANT).split(ASSISTANT):
                spoken += [(ASSISTANT, Trust.CONTROL), (text, Trust.PIECES)]
        else:
            for text in assistant_texts(message):
                spoken += [(ASSISTANT, Trust.CONTROL), (text, Trust.PIECES)]
        for number, (text, trust) in enumerate(spoken[1:]):
            yield Part(text, index, trust, sampled=True, content=True, cut=number == 0)
        if following is None:
            if content.startswith(ASSISTANT):
                return
            following = "tool" if message.get("tool_calls") else "user"
        yield Part(_opener(following), index, Trust.CONTROL, sampled=True, content=True)

    def generation_prompt(self) -> list[Part]:
        return [Part(ASSISTANT, trust=Trust.CONTROL)]

    def glue(self) -> list[Part]:
        return []

    def extended(
        self, prompt: list[int], completion: list[int], new_messages: Dialogue
    ) -> RenderedTokens:
        block = list(self.block(new_messages, 0))
        if completion and self.is_closed(completion, new_messages[0]["role"]):
            block = self.after_close(block)
        return self._rendered(
            [*prompt, *completion], [*block, *self.generation_prompt()], new_messages
        )

    def is_closed(self, completion: Sequence[int], following: str | None) -> bool:
        return following is not None and completion[-1] == self._id(_opener(following))

    def verbatim(self, completion: str) -> str:
        return ASSISTANT + completion

    def parse_text(self, text: str, tools: Collection[str] = ()) -> ParsedResponse:
        contents: list[str] = []
        calls: list[ParsedToolCall] = []
        for part in text.removesuffix(END_OF_TEXT).split(ASSISTANT):
            head, newline, rest = part.partition("\n")
            name, rest = head.strip(), rest.strip()
            if name in tools or (_NAME.fullmatch(name) and rest.startswith("{")):
                calls.append(parse_arguments(name, rest))
            else:
                contents.append((head + newline + rest).strip())
        return ParsedResponse(content="\n".join(filter(None, contents)), tool_calls=calls)


def assistant_texts(message: Mapping[str, Any]) -> list[str]:
    """What the policy is to write behind each `<|assistant|>`: content, then its calls."""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    content = message.get("content") or ""
    texts = [f"\n{content}"] if content or not calls else []
    for function in calls:
        arguments = function["arguments"]
        text = arguments if isinstance(arguments, str) else json_text(arguments)
        texts.append(f"{function['name']}\n{text}")
    return texts


def _opener(role: str) -> str:
    return {"system": SYSTEM, "tool": OBSERVATION}.get(role, USER)

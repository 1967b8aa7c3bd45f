"""Qwen3: Hermes' calls, and thinking that stays in the history.

Qwen3's own template, and the package `renderers` with it, take earlier thinking out of the prompt, so
a policy would be trained on text that it never saw (pitfall 3). Here it stays. A message without
thinking has the empty block that Qwen3 writes; with thinking switched off that block is the
prompt's, not the policy's.

    <|im_start|>assistant
    <think>
    The desk is closed.
    </think>

    <tool_call>
    {"name": "open", "arguments": {}}
    </tool_call><|im_end|>
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from importlib.resources import files
from typing import Any

from renderers import ParsedResponse

from agentrl.rollout.chatml import END, START, ChatMLRenderer, assistant_text
from agentrl.rollout.encoding import Part, Trust

THINK, THINK_END = "<think>", "</think>"
NO_THINKING = f"{THINK}\n\n{THINK_END}\n\n"

CHAT_TEMPLATE = (files("agentrl.rollout") / "templates" / "qwen3.jinja").read_text("utf-8")


class Qwen3Renderer(ChatMLRenderer):
    name = "qwen3"
    control = (START, END, THINK, THINK_END)
    template = CHAT_TEMPLATE
    default_system = None
    thinks = True

    def assistant(
        self, message: Mapping[str, Any], index: int, following: str | None
    ) -> Iterator[Part]:
        text, opener = assistant_text(message), self._opener()
        if text.startswith(opener):  # as the policy wrote it
            text = text.removeprefix(opener)
        elif self.thinks and not _thought(message.get("content") or ""):
            text = NO_THINKING + text
        yield Part(opener, index, Trust.CONTROL)
        yield Part(text, index, Trust.PIECES, sampled=True, content=True, cut=True)
        yield Part(END, index, Trust.CONTROL, sampled=True, content=True)
        yield Part("\n", index)

    def generation_prompt(self) -> list[Part]:
        return [Part(self._opener(), -1, Trust.CONTROL)]

    def verbatim(self, completion: str) -> str:
        return self._opener() + completion

    def parse_text(self, text: str, tools: Collection[str] = ()) -> ParsedResponse:
        thinking, closed, said = text.partition(THINK_END)
        if not closed:
            thinking, said = (text, "") if text.lstrip().startswith(THINK) else ("", text)
        # Calls that are only thought of are not made.
        parsed = super().parse_text(said, tools)
        parsed.reasoning_content = thinking.replace(THINK, "", 1).strip("\n") or None
        return parsed

    def _opener(self) -> str:
        return f"{START}assistant\n" + ("" if self.thinks else NO_THINKING)


def _thought(content: str) -> bool:
    return THINK_END in content or content.startswith(THINK)


class Qwen3NoThinkingRenderer(Qwen3Renderer):
    """Qwen3 with thinking switched off (`enable_thinking=false`)."""

    name = "qwen3-no-thinking"
    thinks = False
    template = "{% set enable_thinking = false %}" + CHAT_TEMPLATE

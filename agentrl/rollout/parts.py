"""What a chat format has to say, and everything a renderer does with it.

The protocol is that of the package `renderers`. Invariants: a completion is never encoded again,
the next prompt is the old ids plus the environment's (1); tokens that the template puts around a
completion - a missing close, glue behind it - belong to the environment's side (pitfall 2);
replies of one turn make one block (pitfall 6).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from renderers import ParsedResponse, RenderedTokens, extract_message_tool_names
from renderers.base import reject_assistant_in_extension, trim_to_turn_close

from agentrl.errors import StateError
from agentrl.rollout.encoding import Part, TextEncoder

Dialogue = Sequence[Mapping[str, Any]]
"""Chat messages as OpenAI objects."""


class PartsRenderer(ABC):
    """A renderer whose format is given as parts. Subclasses say what stands around a message."""

    name: ClassVar[str]
    close: ClassVar[str]
    """The control token that ends an assistant message."""
    control: ClassVar[tuple[str, ...]]
    """Control tokens without which the format cannot be written."""
    template: ClassVar[str]
    """The same format for readers that know templates only, and for the audit."""
    thinks: ClassVar[bool] = False
    """Whether the policy may think before it speaks."""

    def __init__(self, tokenizer: Any) -> None:
        self.encoder = TextEncoder(tokenizer)
        missing = [token for token in self.control if self.encoder.token_id(token) is None]
        if missing:
            raise StateError(
                f"chat format {self.name!r} needs the token {missing[0]!r}, which the tokenizer of "
                "the policy does not have; set policy.chat_format to the format it was made for"
            )
        self._close = self._id(self.close)

    @property
    def is_prefix_stable(self) -> bool:
        return True

    @abstractmethod
    def preamble(self, messages: Dialogue, tools: Dialogue | None) -> tuple[list[Part], int]:
        """What stands before the dialogue, and how many messages it has used up."""

    @abstractmethod
    def block(self, messages: Dialogue, first: int) -> Iterator[Part]:
        """Consecutive messages of the environment; `first` is the index of the first of them."""

    @abstractmethod
    def assistant(
        self, message: Mapping[str, Any], index: int, following: str | None
    ) -> Iterator[Part]:
        """One assistant message with its opener, its close and the glue behind it.

        `following` is the role of the next message; None where there is none.
        """

    @abstractmethod
    def generation_prompt(self) -> list[Part]: ...

    @abstractmethod
    def glue(self) -> list[Part]:
        """What the template writes behind a close before the next message."""

    @abstractmethod
    def parse_text(self, text: str, tools: Collection[str] = ()) -> ParsedResponse:
        """What a completion says, its stop token taken off; `tools`: names of those there are."""

    def after_close(self, block: list[Part]) -> list[Part]:
        """A block that stands behind an assistant message."""
        return block

    def is_closed(self, completion: Sequence[int], following: str | None) -> bool:
        """Whether the policy itself wrote what stands between its message and the next one's text."""
        return completion[-1] == self._close

    def verbatim(self, completion: str) -> str:
        """The content of an assistant message that is rendered as this text, whatever it says."""
        return completion

    def get_stop_token_ids(self) -> list[int]:
        return [self._close]

    def render(
        self,
        messages: Dialogue,
        *,
        tools: Dialogue | None = None,
        add_generation_prompt: bool = False,
    ) -> RenderedTokens:
        if not messages:
            raise ValueError("no messages to render")
        parts, position = self.preamble(messages, tools)
        while position < len(messages):
            if messages[position]["role"] == "assistant":
                following = messages[position + 1]["role"] if position + 1 < len(messages) else None
                parts += self.assistant(messages[position], position, following)
                position += 1
                continue
            end = position
            while end < len(messages) and messages[end]["role"] != "assistant":
                end += 1
            block = list(self.block(messages[position:end], position))
            spoken = position > 0 and messages[position - 1]["role"] == "assistant"
            parts += self.after_close(block) if spoken else block
            position = end
        if add_generation_prompt:
            parts += self.generation_prompt()
        return self._rendered([], parts, messages)

    def render_ids(
        self,
        messages: Dialogue,
        *,
        tools: Dialogue | None = None,
        add_generation_prompt: bool = False,
    ) -> list[int]:
        rendered = self.render(messages, tools=tools, add_generation_prompt=add_generation_prompt)
        ids: list[int] = rendered.token_ids
        return ids

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: Dialogue,
        *,
        tools: Dialogue | None = None,
    ) -> RenderedTokens | None:
        if not previous_prompt_ids or not new_messages:
            return None
        if reject_assistant_in_extension(list(new_messages)):
            return None
        return self.extended(previous_prompt_ids, previous_completion_ids, new_messages)

    def extended(
        self, prompt: list[int], completion: list[int], new_messages: Dialogue
    ) -> RenderedTokens:
        """An episode's ids so far, what closes the turn where that is missing, and the next prompt."""
        previous = trim_to_turn_close(
            prompt, completion, {self._close}, synthesize_close=self._close
        )
        parts = [*self.glue(), *self.block(new_messages, 0), *self.generation_prompt()]
        return self._rendered(previous or [], parts, new_messages)

    def parse_response(
        self,
        token_ids: list[int],
        *,
        tools: Dialogue | None = None,
        prompt_ids: list[int] | None = None,
    ) -> ParsedResponse:
        ids = list(token_ids)
        while ids and ids[-1] in self.get_stop_token_ids():
            ids.pop()
        names = [tool.get("function", tool)["name"] for tool in tools or ()]
        return self.parse_text(self.encoder.decode(ids), names)

    def _rendered(
        self, previous: list[int], parts: Sequence[Part], messages: Dialogue
    ) -> RenderedTokens:
        encoded = self.encoder.encode(parts)
        before = len(previous)
        return RenderedTokens(
            token_ids=previous + [token for token, _ in encoded],
            message_indices=[-1] * before + [part.message for _, part in encoded],
            sampled_mask=[False] * before + [part.sampled for _, part in encoded],
            is_content=[False] * before + [part.content for _, part in encoded],
            message_roles=[message["role"] for message in messages],
            message_tool_names=extract_message_tool_names(list(messages)),
        )

    def _id(self, token: str) -> int:
        found = self.encoder.token_id(token)
        assert found is not None  # checked against `control` when the renderer was made
        return found

"""Messages to token ids and back, by the renderer that a policy was made for.

Invariant (1, pitfalls 3 and 4): a conversation rendered piece by piece, as a rollout does it, is the
conversation rendered whole. A renderer for which that does not hold is refused before any episode,
by name: it would train the policy on text that it never saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import renderers
from renderers import RenderedTokens, Renderer
from renderers.configs import config_from_name

from agentrl.errors import ConfigError, StateError
from agentrl.messages import Message, ToolCall, ToolSpec, clean
from agentrl.rollout.chatml import ChatMLRenderer, Qwen25Renderer, SmolLM2Renderer
from agentrl.rollout.compact import CompactRenderer
from agentrl.rollout.glm4 import Glm4Renderer
from agentrl.rollout.llama3 import Llama3Renderer
from agentrl.rollout.parsing import json_text, to_message
from agentrl.rollout.parts import PartsRenderer
from agentrl.rollout.qwen3 import Qwen3NoThinkingRenderer, Qwen3Renderer

OWN: Mapping[str, type[PartsRenderer]] = {
    renderer.name: renderer
    for renderer in (
        CompactRenderer,
        ChatMLRenderer,
        Qwen25Renderer,
        SmolLM2Renderer,
        Qwen3Renderer,
        Qwen3NoThinkingRenderer,
        Llama3Renderer,
        Glm4Renderer,
    )
}
"""By the name of the chat format: those of the package that rewrite history, or that let an
environment write control tokens, are written here."""


def create_renderer(kind: str, tokenizer: Any, tools: Sequence[ToolSpec] = ()) -> Renderer:
    """The renderer of chat format `kind`, probed with `tools`.

    `kind` is a name of `OWN` or of the package `renderers` ("glm-5", "gpt-oss", ...); those of the
    package that can think are used with thinking switched off. Raises `ConfigError` where the kind
    is unknown or rewrites history, `StateError` where the tokenizer does not fit.
    """
    if kind in OWN:
        renderer: Renderer = OWN[kind](tokenizer)
    else:
        try:
            config = config_from_name(kind)
        except ValueError:
            raise ConfigError(
                f"config key 'policy.chat_format': no chat format {kind!r}; known: "
                f"{', '.join(OWN)} and the names of the package renderers, such as gpt-oss"
            ) from None
        if config is not None and "enable_thinking" in type(config).model_fields:
            config = type(config)(thinking_retention="all", enable_thinking=False)
        try:
            renderer = renderers.create_renderer(tokenizer, config)
        except AssertionError as error:  # how the package says that a token is missing
            raise StateError(
                f"chat format {kind!r} does not fit the tokenizer of the policy: {error}; set "
                "policy.chat_format to the format it was made for"
            ) from None
    probe(renderer, kind, tools)
    return renderer


def render(
    renderer: Renderer,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec] = (),
    *,
    add_generation_prompt: bool = False,
) -> RenderedTokens:
    """A whole conversation; `sampled_mask` marks what a policy would have written."""
    return renderer.render(
        [sanitized(message).to_openai() for message in messages],
        tools=_tools(tools),
        add_generation_prompt=add_generation_prompt,
    )


def extension(
    renderer: Renderer,
    prompt: Sequence[int],
    completion: Sequence[int],
    replies: Sequence[Message],
    tools: Sequence[ToolSpec] = (),
) -> list[int]:
    """What the environment adds after `prompt + completion`, the next generation prompt included.

    All of it is the environment's, also a close that the policy was cut off from writing. Raises
    `ConfigError` where the renderer would change what stands before.
    """
    before = [*prompt, *completion]
    bridged = renderer.bridge_to_next_turn(
        list(prompt),
        list(completion),
        [sanitized(message).to_openai() for message in replies],
        tools=_tools(tools),
    )
    if bridged is None or bridged.token_ids[: len(before)] != before:
        raise ConfigError(
            f"renderer {type(renderer).__name__} cannot go on with a conversation without "
            f"rewriting it; set policy.chat_format to one that can: {', '.join(OWN)}"
        )
    ids: list[int] = bridged.token_ids[len(before) :]
    return ids


def parse_message(
    renderer: Renderer,
    completion: Sequence[int],
    tools: Sequence[ToolSpec] = (),
    *,
    prompt: Sequence[int] = (),
    turn: int = 0,
) -> Message:
    """The assistant message of a completion. Never raises: see `parsing`."""
    try:
        parsed = renderer.parse_response(
            list(completion), tools=_tools(tools), prompt_ids=list(prompt) or None
        )
    except (ValueError, RecursionError):
        # Some parsers of the package stumble over numbers too long or JSON too deep to read.
        return Message("assistant")
    return to_message(parsed, turn)


def sanitized(message: Message) -> Message:
    """The same message with text that can be encoded, whatever the environment said."""
    content = clean(message.content)
    return message if content == message.content else replace(message, content=content)


def probe(renderer: Renderer, kind: str, tools: Sequence[ToolSpec] = ()) -> None:
    """Render a fixed conversation in pieces and whole; raise `ConfigError` where they differ."""
    thinks = bool(getattr(getattr(renderer, "config", None), "enable_thinking", True))
    thinks = getattr(renderer, "thinks", thinks)
    told: list[Message] = [Message("system", "Be brief."), Message("user", "A room.\nGo on.")]
    ids = list(render(renderer, told, tools, add_generation_prompt=True).token_ids)
    for number, (message, replies) in enumerate(_conversation(tools, thinks, kind)):
        try:
            whole = list(render(renderer, [*told, message], tools).token_ids)
        except ValueError as error:
            raise ConfigError(
                f"config key 'policy.chat_format': {kind!r} cannot write turn {number + 1} of a "
                f"conversation with tools ({error}); use one of {', '.join(OWN)}"
            ) from None
        stops = [i for i, token in enumerate(whole) if token in renderer.get_stop_token_ids()]
        if whole[: len(ids)] != ids or not stops or stops[-1] < len(ids):
            raise _refused(kind, f"turn {number + 1} does not extend what stood before it")
        completion = whole[len(ids) : stops[-1] + 1]
        try:
            ids += completion + extension(renderer, ids, completion, replies, tools)
        except ConfigError:
            raise _refused(kind, f"it cannot be extended after turn {number + 1}") from None
        told += [message, *replies]
        if list(render(renderer, told, tools, add_generation_prompt=True).token_ids) != ids:
            raise _refused(kind, f"the text before turn {number + 2} is rewritten")


def _conversation(
    tools: Sequence[ToolSpec], thinks: bool, kind: str
) -> Iterator[tuple[Message, list[Message]]]:
    """Turns that templates are known to treat differently, with the replies to them."""
    spec = tools[0] if tools else ToolSpec("act", "", {"properties": {"text": {"type": "string"}}})
    properties = spec.parameters.get("properties", {})
    arguments = json_text({name: _example(schema) for name, schema in properties.items()})
    count = 0

    def calls(number: int, content: str = "") -> tuple[Message, list[Message]]:
        nonlocal count
        made = [ToolCall(f"call_{count + k}", spec.name, arguments) for k in range(number)]
        count += number
        replies = [Message("tool", "Done.\n", tool_call_id=c.id, name=c.name) for c in made]
        return Message("assistant", content, tuple(made)), replies

    yield calls(1)
    yield Message("assistant", "I am lost."), [Message("user", "Call a tool.")]
    # The compact format has one call a turn by definition: several replies stand for the block.
    message, replies = calls(1 if kind == "compact" else 2)
    yield message, [*replies, *replies][:2]
    yield calls(1, "<think>\nwell\n</think>\n\n" if thinks else "Well.")
    yield Message("assistant", "Yes."), [Message("user", "Again.")]


def _example(schema: Mapping[str, Any]) -> Any:
    return ["a b", "c"] if schema.get("type") == "array" else "a b"


def _refused(kind: str, why: str) -> ConfigError:
    return ConfigError(
        f"config key 'policy.chat_format': {kind!r} rewrites history ({why}), so a policy would be "
        f"trained on text that it never saw; use one of {', '.join(OWN)}"
    )


def _tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]] | None:
    return [tool.to_openai() for tool in tools] or None

"""Small tokenizers and tools for tests of chat formats."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from agentrl.messages import ToolSpec
from agentrl.rollout.chatml import CHAT_TEMPLATE
from agentrl.rollout.rendering import OWN
from agentrl.rollout.tokenizer import train_tokenizer
from agentrl.tasks.base import ToolEpisode, ToolResult


def tool(name: str, *strings: str, arrays: tuple[str, ...] = ()) -> ToolSpec:
    properties: dict[str, Any] = {s: {"type": "string"} for s in strings}
    properties |= {a: {"type": "array", "items": {"type": "string"}} for a in arrays}
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return ToolSpec(name, f"Do {name}.", schema)


TOOLS = (
    tool("take_action", "action"),
    tool("commit", arrays=("answers",)),
    tool("link", "a", "b"),
)
TEXTS = [
    "You are in the kitchen. You see a desk 1, a fridge 2 and 'Anna'.\nTask: go to desk 1.",
    '{"action": "go to desk 1"}',
    "No tool call found. Answer with one tool call.",
    "The arguments of take_action are not valid JSON.",
    '{"answers": ["Anna", "fridge 2"]}',
] * 2


QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2.5's tokenizer cuts text into words."""


def compact_tokenizer(vocab_size: int = 600) -> Any:
    return train_tokenizer(TEXTS, TOOLS, vocab_size)


def chatml_tokenizer(*pieces: str) -> Any:
    """A Qwen-like tokenizer; `pieces` become added tokens that are not special."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return bytes_tokenizer(special, pieces, "<|im_end|>", CHAT_TEMPLATE)


QWEN_PIECES = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
FAMILIES: dict[str, tuple[list[str], tuple[str, ...], str]] = {
    "qwen2.5": (["<|endoftext|>", "<|im_start|>", "<|im_end|>"], QWEN_PIECES, "<|im_end|>"),
    "smollm2": (["<|endoftext|>", "<|im_start|>", "<|im_end|>"], (), "<|im_end|>"),
    "qwen3": (
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        (*QWEN_PIECES, "<think>", "</think>"),
        "<|im_end|>",
    ),
    "llama-3": (
        [
            "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
            "<|eom_id|>", "<|eot_id|>", "<|python_tag|>",
        ],
        (),
        "<|eot_id|>",
    ),
    "glm-4": (
        [
            "<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>",
            "<|user|>", "<|assistant|>", "<|observation|>",
        ],
        (),
        "<|endoftext|>",
    ),
}  # fmt: skip
"""Special tokens, added tokens that are not special, and the end, of each family's tokenizer."""
FAMILIES["qwen3-no-thinking"] = FAMILIES["qwen3"]


def family_tokenizer(name: str) -> Any:
    """A byte-level tokenizer with the tokens of a family of models, and the template of `name`."""
    special, pieces, end = FAMILIES[name]
    return bytes_tokenizer(special, pieces, end, OWN[name].template)


def bytes_tokenizer(special: list[str], pieces: Iterable[str], end: str, template: str) -> Any:
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(QWEN_WORDS), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*TEXTS, "user\n assistant\n system\n ab abab\n\n\n"], trainer)
    tokenizer.add_tokens([AddedToken(p, normalized=False, special=False) for p in pieces])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=end,
        pad_token=special[0],
        extra_special_tokens=[token for token in special if token not in (end, special[0])],
        clean_up_tokenization_spaces=False,
        chat_template=template,
    )


BROKEN = [
    "",
    " ",
    "{",
    "}",
    "{}",
    "[]",
    "null",
    "42",
    '"text"',
    '{"name":"take_action"',
    '{"name":"take_action"}',
    '{"name":"take_action","arguments":',
    '{"name":"take_action","arguments":{"action":"look"}',
    '{"name":"take_action","arguments":{"action":"look"',
    '{"name":"take_action","arguments":{"action":"look',
    '{"name":"take_action","arguments":{"action":look}}',
    '{"name":"take_action","arguments":["look"]}',
    '{"name":"take_action","arguments":"look"}',
    '{"name":"take_action","arguments":"{\\"action\\":\\"look\\"}"}',
    '{"name":"take_action","arguments":null}',
    '{"name":"take_action","arguments":7}',
    '{"name":"take_action","arguments":{}}',
    '{"name":"take_action","arguments":{"action":7}}',
    '{"name":"take_action","arguments":{"action":["look"]}}',
    '{"name":"take_action","arguments":{"action":null}}',
    '{"name":"take_action","arguments":{"action":"look","more":1}}',
    '{"name":"take_action","arguments":{"Action":"look"}}',
    '{"name":"fly","arguments":{"action":"look"}}',
    '{"name":7,"arguments":{"action":"look"}}',
    '{"name":"","arguments":{"action":"look"}}',
    '{"name":["take_action"],"arguments":{"action":"look"}}',
    '{"arguments":{"action":"look"}}',
    '{"action":"look"}',
    '{"name":"take_action","arguments":{"action":"look"}}{"name":"take_action","arguments":{"action":"look"}}',
    '{"name":"take_action","arguments":{"action":"look"}} and then',
    'I do {"name":"take_action","arguments":{"action":"look"}}',
    '[{"name":"take_action","arguments":{"action":"look"}}]',
    '{"name":"take_action","arguments":{"name":"take_action","arguments":{"action":"look"}}}',
    '{"name":"take_action","parameters":{"action":"look"}}',
    "{'name':'take_action','arguments':{'action':'look'}}",
    '{"name":"take_action","arguments":{"action":"look",}}',
    '{"name":"take_action","arguments":{"action":"a\nb"}}',
    '{"name":"take_action","arguments":{"action":' + "[" * 200 + "]" * 200 + "}}",
    '{"name":"take_action","arguments":{"action":' + "[" * 5000 + "]" * 5000 + "}}",
    '{"name":"take_action","arguments":{"action":' + "[" * 5000,
    '{"name":"take_action","arguments":{"action":' + "9" * 5000 + "}}",
    '{"name":"take_action","arguments":{"action":NaN}}',
    '{"name":"take_action\\ud800","arguments":{"action":"look"}}',
    '{"name":"take_action","arguments":{"\\ud800":"look"}}',
]


class Recorder(ToolEpisode):
    """A fake tool that notes every call that reaches it."""

    def __init__(self):
        super().__init__(TOOLS, (), 1000)
        self.reached = []

    async def call(self, name, arguments):
        self.reached.append((name, arguments))
        return ToolResult("done")

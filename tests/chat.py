"""Small tokenizers and tools for tests of chat formats."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from agentrl.messages import ToolSpec
from agentrl.rollout.chatml import CHAT_TEMPLATE
from agentrl.rollout.tokenizer import train_tokenizer


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
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(QWEN_WORDS), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
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
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=["<|im_start|>"],
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )

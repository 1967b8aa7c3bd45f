"""The tiny policy's own byte-level BPE, in which a word is the same token wherever it stands.

Invariants: text -> ids -> text is exact for every string; a word has one form, whether it opens a
text, follows a space or follows a quote, so what is read in an observation can be copied into the
arguments of a call token by token (spec/mini.md §2); the same texts give the same tokenizer.

How: bytes are mapped to letters as in GPT-2; then every word (letters, digits, `_`, non-ASCII
bytes) gets a mark in front, and the single space between two words is dropped, for the mark says
it. The mark is the letter of byte 255, which no UTF-8 text contains. Decoding turns a mark behind
a word into a space and drops the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from agentrl.errors import ConfigError
from agentrl.messages import ToolSpec
from agentrl.rollout.compact import BOS, CHAT_TEMPLATE, CONTROL, END, PAD, corpus, pieces


def _byte_letters() -> list[str]:
    """GPT-2's printable letter for each of the 256 bytes."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (byte for byte in range(256) if byte not in printable)
    shifted = {byte: chr(256 + number) for number, byte in enumerate(others)}
    return [shifted.get(byte, chr(byte)) for byte in range(256)]


_LETTERS = _byte_letters()
_SPACE, _MARK = _LETTERS[ord(" ")], _LETTERS[255]
_WORD = "".join(
    letter
    for byte, letter in enumerate(_LETTERS)
    if (byte < 128 and (chr(byte).isalnum() or chr(byte) == "_")) or 128 <= byte < 255
)


def train_tokenizer(
    texts: Sequence[str], tools: Iterable[ToolSpec], vocab_size: int
) -> PreTrainedTokenizerFast:
    """A tokenizer of at most `vocab_size` tokens for the compact chat format.

    Args:
        texts: what is said in episodes: contents, and arguments of calls as JSON text.
        tools: their calls' fixed pieces become one token each.
    """
    fixed = pieces(tools)
    room = vocab_size - len(fixed)
    if room < len(CONTROL) + len(_LETTERS):
        raise ConfigError(
            f"config key 'policy.vocab_size': {vocab_size} leaves no room for the 256 bytes, "
            f"{len(CONTROL)} control tokens and {len(fixed)} pieces of tool calls; "
            f"set at least {len(CONTROL) + len(_LETTERS) + len(fixed)}"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.ByteLevel(),
            normalizers.Replace(Regex(f"(?<=[{_WORD}]){_SPACE}(?=[{_WORD}])"), _MARK),
            normalizers.Replace(Regex(f"(?<![{_WORD}{_MARK}])(?=[{_WORD}])"), _MARK),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex(f"{_MARK}[{_WORD}]+|[^{_WORD}{_MARK}]+"), behavior="isolated"
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Fuse(),
            decoders.Replace(Regex(f"(?<=[{_WORD}]){_MARK}"), _SPACE),
            decoders.Replace(_MARK, ""),
            decoders.ByteLevel(),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=room,
        initial_alphabet=sorted(_LETTERS),
        special_tokens=list(CONTROL),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(texts), trainer)
    tokenizer.add_tokens([AddedToken(piece, normalized=False, special=False) for piece in fixed])
    make: Any = PreTrainedTokenizerFast
    fast: PreTrainedTokenizerFast = make(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=END,
        pad_token=PAD,
        extra_special_tokens=[token for token in CONTROL if token not in (BOS, END, PAD)],
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )
    return fast

"""Text to token ids, with a say in who may write control tokens.

Invariant: only a template writes control tokens. An observation that contains the text of one
("<end>", "<|im_end|>") is encoded as plain text, so an environment cannot forge a turn.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tokenizers import Tokenizer


class Trust(IntEnum):
    """Which added tokens a part of a text may become."""

    TEXT = 0
    """None: what an environment says."""
    PIECES = 1
    """Those that are not special: what an assistant says (fixed JSON pieces, `<tool_call>`)."""
    CONTROL = 2
    """All: what the template says."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a rendered conversation.

    `message` is the index of the message that it belongs to, -1 for none. `cut` starts a new
    encoding, so that no token spans the edge before this part (what follows was sampled).
    """

    text: str
    message: int = -1
    trust: Trust = Trust.TEXT
    sampled: bool = False
    content: bool = False
    cut: bool = False


class TextEncoder:
    """Encodes parts with the tokenizer of a policy; neighbouring parts are merged as one text."""

    def __init__(self, tokenizer: Any) -> None:
        backend: Tokenizer = tokenizer.backend_tokenizer
        state = json.loads(backend.to_str())
        added = state["added_tokens"]
        state |= {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
        self._plain = Tokenizer.from_str(json.dumps(state))
        self._full = backend
        self._ids = {token["content"]: int(token["id"]) for token in added}
        pieces = [token["content"] for token in added if not token["special"]]
        self._patterns = {Trust.PIECES: _any_of(pieces), Trust.CONTROL: _any_of(self._ids)}

    def token_id(self, text: str) -> int | None:
        """Id of an added token; None where the tokenizer has no such token."""
        return self._ids.get(text)

    def encode_text(self, text: str) -> list[int]:
        """Ids of plain text, whatever it contains."""
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The exact text of `ids`, control tokens included."""
        text: str = self._full.decode(list(ids), skip_special_tokens=False)
        return text

    def encode(self, parts: Iterable[Part]) -> list[tuple[int, Part]]:
        """(id, part that it belongs to) pairs; a token that spans two parts belongs to the first."""
        out: list[tuple[int, Part]] = []
        waiting: list[Part] = []
        for part in parts:
            if part.cut:
                self._flush(waiting, out)
            pattern = self._patterns.get(part.trust)
            position = 0
            for match in pattern.finditer(part.text) if pattern else ():
                waiting.append(_slice(part, position, match.start()))
                self._flush(waiting, out)
                out.append((self._ids[match.group()], part))
                position = match.end()
            waiting.append(_slice(part, position, len(part.text)))
        self._flush(waiting, out)
        return out

    def _flush(self, waiting: list[Part], out: list[tuple[int, Part]]) -> None:
        parts = [part for part in waiting if part.text]
        waiting.clear()
        if not parts:
            return
        encoding = self._plain.encode("".join(p.text for p in parts), add_special_tokens=False)
        if len(parts) == 1:
            out += [(token, parts[0]) for token in encoding.ids]
            return
        starts = [0]
        for part in parts[:-1]:
            starts.append(starts[-1] + len(part.text))
        for token, (start, _) in zip(encoding.ids, encoding.offsets, strict=True):
            out.append((token, parts[bisect_right(starts, start) - 1]))


def _slice(part: Part, start: int, end: int) -> Part:
    if start == 0 and end == len(part.text):
        return part
    return Part(part.text[start:end], part.message, part.trust, part.sampled, part.content)


def _any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

"""MySQL 8's default collation (utf8mb4_0900_ai_ci) on Unicode strings: no case, no accents, no padding.

`Montréal` = `MONTREAL`, `ß` = `ss`, but `a` ≠ `a ` (NO PAD). The order is that of the Unicode
collation element table at its first level: white space, punctuation, symbols, currency, digits,
letters. It is exact for the characters below and for plain letters; other symbols stand between
punctuation and digits by code point, other letters after z by code point.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

CACHED = 128
"""Longest text whose key is remembered: what an agent makes up cannot fill the memory."""
_ORDER = (
    "\t\n\v\f\r\x85\u2028\u2029 _-‐‒–—―,;:!¡?¿.·'‘’‚‛‹›\"“”„‟«»()[]{}§¶@*/\\&#%‰†‡•′"
    "`´^¯¨¸°©®←↑→↓+±÷×<=>¬|¦~−"
)
_CURRENCY = "¤¢$£¥₩€₱₹₽"
_SYMBOLS, _AFTER_SYMBOLS = 0x1000, 0x200000
_RANKS = {
    **{c: i for i, c in enumerate(_ORDER)},
    **{c: _AFTER_SYMBOLS + i for i, c in enumerate(_CURRENCY)},
}
_LETTERS = str.maketrans(
    {"đ": "d", "ð": "d", "ø": "o", "ł": "l", "ħ": "h", "ґ": "г", "æ": "ae", "œ": "oe"}
)
_KEPT = frozenset("´¯¨¸йЙ")
"""Characters that Unicode decomposes but the collation keeps apart."""


def fold(text: str) -> str:
    """The string with case, accents and ignorable characters taken away."""
    return _short_fold(text) if len(text) <= CACHED else _fold(text)


def _fold(text: str) -> str:
    if text.isascii():
        folded = text.lower()
        return folded if folded.isprintable() else "".join(map(_fold_character, folded))
    return "".join(map(_fold_character, text))


@lru_cache(maxsize=8192)
def _fold_character(character: str) -> str:
    if character in _KEPT or character in _RANKS:
        return character.lower()
    if character in "Ŀŀ":  # Unicode's compatibility form has a dot that the collation ignores
        return "l"
    if unicodedata.category(character) in ("Cc", "Cf"):
        return ""
    parts = unicodedata.normalize("NFKD", character)
    kept = "".join(part for part in parts if not unicodedata.combining(part))
    return kept.casefold().translate(_LETTERS)


def sort_key(text: str) -> tuple[int, ...]:
    """Key that orders strings as the collation does; equal keys mean equal strings."""
    return _short_key(text) if len(text) <= CACHED else _key(text)


def _key(text: str) -> tuple[int, ...]:
    return tuple(map(_rank, fold(text)))


@lru_cache(maxsize=8192)
def _rank(character: str) -> int:
    rank = _RANKS.get(character)
    if rank is not None:
        return rank
    code = ord(character)
    return (2 * _AFTER_SYMBOLS if character.isalnum() else _SYMBOLS) + code


def compare(left: str, right: str) -> int:
    """-1, 0 or 1, as SQLite wants a collation."""
    if left == right:
        return 0
    a, b = sort_key(left), sort_key(right)
    return (a > b) - (a < b)


_short_fold = lru_cache(maxsize=32768)(_fold)
_short_key = lru_cache(maxsize=32768)(_key)

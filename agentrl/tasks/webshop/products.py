"""What a shop sells and what a sample asks for, whether generated or read from WebShop's files.

Invariant: the price of a product and the limit in an instruction are drawn from streams of their own,
named by the product (invariant 8). The reference draws both before it seeds its generator, so that two
of its workers disagree about the limit of the same sample.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from random import Random
from typing import Any

NO_LIMIT = 1_000_000.0
"""`price_upper` of a goal whose instruction names no limit (spec/tasks.md §5)."""
LIMITS = tuple(10.0 * step for step in range(1, 100))
Options = tuple[tuple[str, tuple[str, ...]], ...]
"""Option name -> values, in the order of the item page; all lower case."""


@dataclass(frozen=True, slots=True)
class Product:
    asin: str
    """Identity; in the shape of Amazon's for all but the easy level. Clicked in lower case."""
    name: str
    """The title."""
    description: str
    features: tuple[str, ...]
    """Bullet points; only the first one is searched, as in the reference."""
    price: float
    """What it costs, in dollars."""
    price_tag: str
    """What pages say: `$12.5`, or `$10.0 to $14.0` where the price depends on a choice."""
    options: Options
    attributes: tuple[str, ...]
    """What holds of it; no page lists them, the reward reads them."""
    query: str
    """The term it is filed under; no page shows it."""
    category: str
    product_category: str
    """`A › B › C`, the widest first."""
    rating: str = "N.A."
    reviews: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What search reads: title, description, first bullet point and options."""
        options = (f"{name}: {', '.join(values)}" for name, values in self.options)
        first = self.features[0] if self.features else ""
        return " ".join([self.name, self.description, first, ", and ".join(options)]).lower()

    @property
    def highest_price(self) -> float:
        """The most that the price tag says it may cost."""
        return float(self.price_tag.rpartition("$")[2])

    def to_json(self) -> str:
        return _to_json(self, _PRODUCT_FIELDS)

    @classmethod
    def from_json(cls, text: str) -> Product:
        return cls(*(_frozen(value) for value in json.loads(text)))


@dataclass(frozen=True, slots=True)
class Goal:
    """One sample: what the buyer wants. Everything but `instruction` is hidden from the agent."""

    asin: str
    """The product the instruction was written for; others may earn the reward too."""
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    """Values, without the names of the options."""
    price_upper: float
    query: str
    name: str
    product_category: str

    def to_json(self) -> str:
        return _to_json(self, _GOAL_FIELDS)

    @classmethod
    def from_json(cls, text: str) -> Goal:
        return cls(*(_frozen(value) for value in json.loads(text)))


_PRODUCT_FIELDS = tuple(field.name for field in fields(Product))
_GOAL_FIELDS = tuple(field.name for field in fields(Goal))


def draw_limit(price: float, rng: Random) -> float:
    """An upper price: the larger of two of the four next multiples of ten above `price`.

    `NO_LIMIT` where fewer than two multiples below 1,000 are left (spec/tasks.md §5).
    """
    above = [limit for limit in LIMITS if limit > price][:4]
    return max(rng.sample(above, 2)) if len(above) >= 2 else NO_LIMIT


def _to_json(record: Product | Goal, names: tuple[str, ...]) -> str:
    values = [getattr(record, name) for name in names]
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value

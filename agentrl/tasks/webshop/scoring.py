"""What a purchase earns: WebShop's reward, kept exactly (spec/tasks.md §5; WebShop's `engine/goal.py`).

    R = r_type · (attributes matched + options matched + [price ≤ limit]) / (attributes + options + 1)

Kept: thresholds, colour normalisation, substring tests, that a title's nouns are counted with repeats in
the denominator only. Not kept: a goal's options given as an object become (name, value) pairs in the
reference and then match nothing; here its values are meant.

Fuzzy comparison is `token_set_ratio` as thefuzz rounds it: 85.5 is the least that passes "> 85".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz, utils

from agentrl.tasks.webshop.nouns import Nouns
from agentrl.tasks.webshop.products import Goal, Product

# In alphabetic order, which decides which colour of two is meant.
COLORS = (
    "alabaster", "apricot", "aqua", "ash", "asphalt", "azure", "banana", "beige", "black", "blue",
    "blush", "bordeaux", "bronze", "brown", "burgundy", "camel", "camo", "caramel", "champagne",
    "charcoal", "cheetah", "chestnut", "chocolate", "christmas", "coffee", "cognac", "copper",
    "coral", "cranberry", "cream", "crystal", "dark", "denim", "eggplant", "elephant", "espresso",
    "fuchsia", "gold", "granite", "grape", "graphite", "grass", "gray", "green", "grey", "heather",
    "indigo", "ivory", "ivy", "khaki", "lavender", "lemon", "leopard", "light", "lilac", "lime",
    "magenta", "maroon", "mauve", "merlot", "midnight", "mint", "mocha", "multicolor", "mushroom",
    "mustard", "natural", "navy", "nude", "olive", "orange", "peach", "pewter", "pink", "plum",
    "purple", "rainbow", "red", "rose", "royal", "rust", "sand", "sapphire", "seashell", "silver",
    "skull", "slate", "steel", "stone", "stonewash", "sunflower", "tan", "taupe", "teal", "tiger",
    "turquoise", "violet", "walnut", "wheat", "white", "wine", "yellow",
)  # fmt: skip
_LATIN_1 = dict.fromkeys(range(128, 256))
"""What thefuzz leaves out before it compares."""


@dataclass(frozen=True, slots=True)
class Score:
    """The parts of a reward, each in [0, 1]."""

    type: float
    attributes: float
    """Share of the goal's attributes that were matched; 1 where it has none."""
    options: float
    price: float
    reward: float


def score(product: Product, chosen: Iterable[str], goal: Goal, nouns: Nouns) -> Score:
    """What buying `product` with the option values `chosen` earns for `goal`."""
    attributes = sum(has_attribute(product, attribute) for attribute in goal.attributes)
    options = count_options(list(chosen), goal.options)
    price = product.price <= goal.price_upper
    type_ = score_type(product, goal, nouns)
    parts = len(goal.attributes) + len(goal.options) + 1
    return Score(
        type=type_,
        attributes=_share(attributes, len(goal.attributes)),
        options=_share(options, len(goal.options)),
        price=float(price),
        reward=type_ * (attributes + options + price) / parts,
    )


def score_type(product: Product, goal: Goal, nouns: Nouns) -> float:
    """1 for the kind of product that is wanted, else 0.5; less where the titles share few nouns."""
    wanted = nouns.of(goal.name)
    shared = len(set(wanted) & set(nouns.of(product.name)))
    title = shared / len(wanted) if wanted else 0.2
    if title == 0:
        return 0.0
    if title < 0.1:
        return 0.1
    same_kind = (
        product.query == goal.query
        or len(_levels(product.product_category) & _levels(goal.product_category)) >= 2
        or title > 0.2
    )
    return 1.0 if same_kind else 0.5


def has_attribute(product: Product, attribute: str) -> bool:
    if any(alike(own, attribute) for own in product.attributes):
        return True
    texts = (product.name, " ".join(product.features), product.description)
    return any(attribute in text.lower() for text in texts)


def count_options(chosen: Sequence[str], wanted: Sequence[str]) -> int:
    """How many of the `wanted` values have a counterpart among the `chosen` ones."""
    normal = [base_color(value) for value in chosen]
    return sum(any(alike(own, base_color(value)) for own in normal) for value in wanted)


def base_color(value: str) -> str:
    """The first of `COLORS` that the text contains, in place of the whole text."""
    return next((color for color in COLORS if color in value), value)


def alike(left: str, right: str) -> bool:
    ratio = fuzz.token_set_ratio(left, right, processor=_plain)
    return round(ratio) > 85


def _plain(text: str) -> str:
    return utils.default_process(text.translate(_LATIN_1))


def _levels(category: str) -> set[str]:
    return {level.strip() for level in category.split("›")}


def _share(matched: int, of: int) -> float:
    return matched / of if of else 1.0

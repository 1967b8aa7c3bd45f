"""Seeded shops and what to buy in them, at three levels of difficulty.

Invariants: a product is a function of (seed, level, number of products, position) alone, a goal of
(seed, level, number of products, split, index) alone (invariant 8); positions are in the order of their
asins. Splits share the shop, as in WebShop, but no product is wanted in two splits (`split_of`) and no
instruction is in two (`bucket`). An instruction holds no word of the brand or model and no asin.

Level `easy`: titles of three words that say all there is to know, whole dollars, one or two options of
which every product of a kind has all. `medium`: brands, longer titles with some of the attributes, a
choice of options that differs by product. `hard`: attributes stand only in description and features, up
to three options, prices that depend on a choice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from agentrl.errors import ConfigError
from agentrl.randomness import derive, stream
from agentrl.tasks.webshop import vocabulary as words
from agentrl.tasks.webshop.products import NO_LIMIT, Goal, Options, Product, draw_limit

SPLITS = ("train",) * 8 + ("dev", "std")
"""Split of a product by its position, and of an instruction by its hash: 80, 10 and 10 %."""
_WORDINGS = 100
"""Instructions that are tried for one product before another is drawn."""
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Level:
    products: int
    """Size of the shop unless the options say otherwise."""
    per_page: int
    results: int
    """Products that one search finds, at most."""
    attributes: int
    """Of each product."""
    wanted: tuple[int, int]
    """Attributes in an instruction, fewest and most."""
    options: tuple[int, int]
    """Options in an instruction."""


LEVELS = {
    "easy": Level(1_000, per_page=4, results=12, attributes=2, wanted=(2, 2), options=(1, 2)),
    "medium": Level(5_000, per_page=10, results=50, attributes=4, wanted=(1, 2), options=(1, 2)),
    "hard": Level(10_000, per_page=10, results=50, attributes=5, wanted=(2, 3), options=(2, 3)),
}


def check_level(name: str) -> Level:
    if name not in LEVELS:
        raise ConfigError(
            f"config key 'tasks.webshop.level': {name!r} is no level; choose one of {', '.join(LEVELS)}"
        )
    return LEVELS[name]


def split_of(position: int) -> str:
    """The only split that may want the product at `position`."""
    return SPLITS[position % len(SPLITS)]


def bucket(instruction: str) -> str:
    """The only split that may hold this instruction, whatever shop it was written for."""
    digest = hashlib.blake2b(instruction.encode(), digest_size=8).digest()
    return SPLITS[int.from_bytes(digest, "big") % len(SPLITS)]


class Generator:
    def __init__(self, level: str, products: int | None = None, seed: int = 0) -> None:
        self.name, self.level, self.seed = level, check_level(level), seed
        self.count = products or self.level.products
        self._step = (26 * 10**self._width if level == "easy" else 36**8) // self.count

    def products(self) -> Iterator[Product]:
        """All of the shop, in the order of positions, made one by one."""
        return (self.product(position) for position in range(self.count))

    def product(self, position: int) -> Product:
        rng = stream(self.seed, "webshop-product", self.name, self.count, position)
        asin = self._asin(position)
        if self.name == "easy":
            return _easy(asin, *rng.choice(words.EASY_KINDS), rng)
        department, kind = rng.choice(words.KINDS)
        return _rich(asin, department, kind, self.level, rng, hard=self.name == "hard")

    def goal(self, split: str, index: int) -> Goal:
        rng = stream(self.seed, "webshop-goal", self.name, self.count, split, index)
        while True:
            position = rng.randrange(self.count)
            if split_of(position) != split:
                continue
            product = self.product(position)
            for _ in range(_WORDINGS):
                goal = self._goal(product, rng)
                if bucket(goal.instruction) == split:
                    return goal

    @property
    def _width(self) -> int:
        """Digits of an easy asin: the fewest with which a letter and a number name every product."""
        return max(2, len(str((self.count - 1) // 26)))

    def _asin(self, position: int) -> str:
        """Increases with the position; a letter and a number at level easy, else like Amazon's."""
        place = position * self._step
        place += derive(self.seed, "webshop-asin", position) % self._step
        if self.name == "easy":
            letter, number = divmod(place, 10**self._width)
            return f"{chr(ord('a') + letter)}{number:0{self._width}d}"
        digits = ""
        for _ in range(8):
            place, digit = divmod(place, 36)
            digits = _DIGITS[digit] + digits
        return "B0" + digits

    def _goal(self, product: Product, rng: Random) -> Goal:
        level = self.level
        attributes = rng.sample(product.attributes, rng.randint(*level.wanted))
        if self.name == "easy":
            attributes = list(product.attributes)  # in the order of the title
        most = min(level.options[1], len(product.options))
        axes = rng.sample(range(len(product.options)), rng.randint(level.options[0], most))
        chosen = [
            (product.options[axis][0], rng.choice(product.options[axis][1]))
            for axis in sorted(axes)
        ]
        limit = draw_limit(product.highest_price, rng)
        say = _easy_instruction if self.name == "easy" else _rich_instruction
        return Goal(
            asin=product.asin,
            instruction=say(product.query, attributes, chosen, limit, rng),
            attributes=tuple(attributes),
            options=tuple(value for _, value in chosen),
            price_upper=limit,
            query=product.query,
            name=product.name,
            product_category=product.product_category,
        )


# -- products


def _easy(asin: str, department: words.Department, kind: words.Kind, rng: Random) -> Product:
    attributes = tuple(rng.sample(department.easy_attributes, 2))
    price = rng.randint(10, 58)  # every limit above has two digits as well
    place = department.kinds.index(kind)
    return Product(
        asin=asin,
        name=" ".join([*attributes, kind.noun]),
        description=f"this {kind.noun} is {attributes[0]} and {attributes[1]} .",
        features=attributes,
        price=float(price),
        price_tag=f"${price}",
        options=tuple(
            (axis, _four(values, place)) for axis, values in department.easy_axes.items()
        ),
        attributes=attributes,
        query=kind.noun,
        category=department.category,
        product_category=" › ".join([department.root, *kind.shelf]),
    )


def _rich(
    asin: str,
    department: words.Department,
    kind: words.Kind,
    level: Level,
    rng: Random,
    *,
    hard: bool,
) -> Product:
    brand = rng.choice(words.BRAND_HEADS) + rng.choice(words.BRAND_TAILS)
    model = f"{rng.choice(_DIGITS[10:])}{rng.choice(_DIGITS[10:])}-{rng.randint(100, 999)}"
    use, other = rng.sample(kind.uses, 2)
    attributes = tuple(rng.sample(department.attributes, level.attributes))
    shown, told = (0, 2) if hard else (2, 1)
    rest = attributes[shown + told :]
    title = kind.query.title()
    if hard:
        name = f"{brand} {title} for {use.title()}, {model}"
    else:
        name = f"{brand} {attributes[0].title()} {title} with {attributes[1].title()}, {model}"
    qualities = " and ".join(attributes[shown : shown + told])
    features = [f"{each.capitalize()}: {rng.choice(_PRAISE)}" for each in rest]
    features.append(f"Made for {use}, and just as good for {other}.")
    price, tag = _price(kind, rng, ranged=hard and rng.random() < 0.25)
    reviews = rng.sample(words.REVIEWS, rng.randint(0, 3))
    stars = [count for count, _ in reviews]
    return Product(
        asin=asin,
        name=name,
        description=rng.choice(_DESCRIPTIONS).format(b=brand, q=kind.query, u=use, a=qualities),
        features=tuple(features),
        price=price,
        price_tag=tag,
        options=_options(department, kind, rng),
        attributes=attributes,
        query=kind.query,
        category=department.category,
        product_category=" › ".join([department.root, *kind.shelf]),
        rating=f"{sum(stars) / len(stars):.1f}" if stars else "N.A.",
        reviews=tuple(f"{count} of 5 stars. {text}" for count, text in reviews),
    )


_PRAISE = (
    "you will notice the difference from the first day.",
    "tested in our own workshop before it is packed.",
    "what our customers ask for most.",
    "no compromise on quality.",
    "carefully selected for this series.",
    "as it should be.",
)
_DESCRIPTIONS = (
    "This {q} by {b} was made for {u}. It is {a}, and comes in a gift box.",
    "Looking for something for {u}? The {q} by {b} offers {a} at a fair price.",
    "{b} has made every {q} with care since 1987. Expect {a}, whether for {u} or as a present.",
    "Your next {q} by {b}: {a}. Recommended for {u}.",
)


def _options(department: words.Department, kind: words.Kind, rng: Random) -> Options:
    """Three to six neighbouring values of each of the kind's options."""
    out = []
    for axis in kind.axes:
        values = department.axes[axis]
        count = min(len(values), rng.randint(3, 6))
        first = rng.randint(0, len(values) - count)
        out.append((axis, values[first : first + count]))
    return tuple(out)


def _price(kind: words.Kind, rng: Random, *, ranged: bool) -> tuple[float, str]:
    """What it costs and what the tag says; a ranged price lies between the two that are shown."""
    cents = rng.randint(*kind.prices) * 100 - rng.choice((1, 1, 5, 50))
    if not ranged:
        return cents / 100, f"${cents / 100:.2f}"
    highest = cents + rng.randint(cents // 10, cents // 2)
    return rng.randint(cents, highest) / 100, f"${cents / 100:.2f} to ${highest / 100:.2f}"


def _four(values: tuple[str, ...], place: int) -> tuple[str, ...]:
    """Four of an easy option's values, the same for all products of a kind."""
    wanted = {(place + step) % len(values) for step in range(4)}
    return tuple(value for number, value in enumerate(values) if number in wanted)


# -- instructions

Chosen = list[tuple[str, str]]


def _easy_instruction(
    query: str, attributes: list[str], chosen: Chosen, limit: float, rng: Random
) -> str:
    parts = [f"find {' '.join(attributes)} {query}"]
    parts += [f"{axis} {value}" for axis, value in chosen]
    return " , ".join([*parts, f"price below {limit:.0f}"])


def _rich_instruction(
    query: str, attributes: list[str], chosen: Chosen, limit: float, rng: Random
) -> str:
    wanted = " and ".join(attributes)
    choice = " and ".join(f"{axis} {value}" for axis, value in chosen)
    text = rng.choice(_REQUESTS).format(q=query, a=wanted, o=choice)
    return text if limit == NO_LIMIT else f"{text}, and price lower than {limit:.2f} dollars"


_REQUESTS = (
    "i am looking for {q} with {a}, in {o}",
    "i need {q} that offers {a}. it should be {o}",
    "find me {q} with {a} and with {o}",
    "i want to buy {q}. what matters to me is {a}, and i would like {o}",
    "can you get me {q}, {o}, with {a}",
    "please order {q} for me, {a}, {o}",
)

"""The reward, against values worked out by hand from the formula in spec/tasks.md §5."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.tasks.webshop.nouns import RuleNouns
from agentrl.tasks.webshop.products import Goal, Product, draw_limit
from agentrl.tasks.webshop.scoring import (
    COLORS,
    alike,
    base_color,
    count_options,
    has_attribute,
    score,
    score_type,
)

LAMP = Product(
    asin="B000000001",
    name="Brass Floor Lamp",
    description="Comes with a Dimmer Switch.",
    features=("Made of solid wood", "two year warranty"),
    price=35.0,
    price_tag="$35.0",
    options=(("color", ("navy blue", "black")), ("size", ("small", "large"))),
    attributes=("energy saving", "easy assemble"),
    query="floor lamp",
    category="garden",
    product_category="Home › Lighting › Lamps",
)
GOAL = Goal(
    asin="B000000001",
    instruction="find a lamp",
    attributes=("energy saving", "solid wood"),
    options=("blue", "large"),
    price_upper=40.0,
    query="floor lamp",
    name="Brass Floor Lamp",
    product_category="Home › Lighting › Lamps",
)


class Words:
    """Every word is a noun."""

    label = "words"

    def of(self, title: str) -> tuple[str, ...]:
        return tuple(title.lower().split())


def reward(product: Product = LAMP, chosen: tuple[str, ...] = (), goal: Goal = GOAL) -> float:
    return score(product, chosen, goal, Words()).reward


def test_all_that_was_asked_for_earns_one() -> None:
    parts = score(LAMP, ["navy blue", "large"], GOAL, Words())
    assert (parts.type, parts.attributes, parts.options, parts.price) == (1.0, 1.0, 1.0, 1.0)
    assert parts.reward == 1.0


def test_each_part_counts_once() -> None:
    """Two attributes, two options, one price: fifths."""
    assert reward(chosen=("black", "large")) == pytest.approx(4 / 5)
    assert reward(chosen=()) == pytest.approx(3 / 5)
    assert reward(replace(LAMP, price=40.0), ("blue", "large")) == 1.0, "the limit is included"
    assert reward(replace(LAMP, price=40.01), ("blue", "large")) == pytest.approx(4 / 5)
    bare = replace(LAMP, attributes=(), features=())
    assert reward(bare, ("blue", "large")) == pytest.approx(3 / 5)
    assert reward(bare, ()) == pytest.approx(1 / 5)


def test_the_kind_of_product_multiplies() -> None:
    other = replace(LAMP, query="rug", product_category="A › B › C", name="Woven Runner Rug Lamp")
    goal = replace(GOAL, name="Brass Floor Lamp Light Pole")
    assert score_type(other, goal, Words()) == 0.5, "1 noun of 5 is 0.2, which is not above 0.2"
    assert reward(other, ("blue", "large"), goal) == pytest.approx(0.5)
    assert score_type(replace(other, name="Floor Lamp"), goal, Words()) == 1.0, "2 of 5"
    assert score_type(replace(other, query="floor lamp"), goal, Words()) == 1.0
    alike_shelf = replace(other, product_category="Lamps › Home › Else")
    assert score_type(alike_shelf, goal, Words()) == 1.0, "two levels, in any order"
    assert score_type(replace(other, product_category="Home › Home › B"), goal, Words()) == 0.5


def test_titles_without_a_common_noun_earn_nothing_even_in_the_same_place() -> None:
    assert score_type(replace(LAMP, name="Runner Rug"), GOAL, Words()) == 0.0
    long = replace(GOAL, name="lamp " + " ".join(f"word{n}" for n in range(10)))
    assert score_type(replace(LAMP, name="lamp"), long, Words()) == 0.1, "1 of 11 is below 0.1"
    assert score_type(LAMP, replace(GOAL, name=""), Words()) == 1.0, "no nouns count as 0.2"


def test_a_repeated_noun_counts_in_the_denominator_only() -> None:
    """As the reference does it: of "lamp lamp lamp lamp lamp pole" one of six is found: 0.167."""
    goal = replace(GOAL, name="lamp lamp lamp lamp lamp pole", query="x", product_category="x")
    assert score_type(replace(LAMP, name="lamp"), goal, Words()) == 0.5


@pytest.mark.parametrize(
    ("attribute", "found"),
    [
        ("energy saving", True),
        ("saving energy", True),  # the same set of words
        ("solid wood", True),  # only in a feature
        ("dimmer switch", True),  # only in the description, whose case does not matter
        ("Dimmer Switch", False),  # but that of the attribute does
        ("floor lamp", True),  # in the title
        ("wood two", True),  # features are joined by a space
        ("gluten free", False),
    ],
)
def test_where_an_attribute_may_stand(attribute: str, found: bool) -> None:
    assert has_attribute(LAMP, attribute) is found


def test_options_match_one_to_many_and_by_base_color() -> None:
    assert count_options(["navy blue"], ["sky blue"]) == 1, "both are blue"
    assert count_options(["navy"], ["sky blue"]) == 0
    assert count_options(["light gray"], ["gray"]) == 1, "gray stands before light"
    assert count_options(["x-large"], ["large"]) == 1, "a subset of the words is a match"
    assert count_options(["small"], ["small", "small"]) == 2, "one choice may serve twice"
    assert count_options([], ["small"]) == 0
    assert base_color("very bright thing") == "very bright thing"
    assert base_color("charcoal and ash") == "ash"
    assert list(COLORS) == sorted(COLORS) and len(COLORS) == 102


def test_the_threshold_is_that_of_a_rounded_ratio() -> None:
    """One word each: 2·35 / (41 + 41) is 85.4 %, rounded 85, not above 85; 2·6 / 14 is 85.7 %."""
    assert not alike("a" * 35 + "b" * 6, "a" * 35 + "c" * 6)
    assert alike("abcdef", "abcdefgh")
    assert not alike("a" * 17 + "bbb", "a" * 17 + "ccc"), "85 % exactly"
    assert not alike("", "") and not alike("...", "...")


@given(
    st.text(st.sampled_from("ab -é'/AB3ß"), max_size=14),
    st.text(st.sampled_from("ab -é'/AB3ß"), max_size=14),
)
def test_alike_is_what_thefuzz_says(left: str, right: str) -> None:
    fuzz = pytest.importorskip("thefuzz.fuzz", reason="thefuzz, the reference's library, is absent")
    assert alike(left, right) == (fuzz.token_set_ratio(left, right) > 85)


def test_limits() -> None:
    """12.5 -> two of 20, 30, 40, 50, the larger: 30 (1 of 6 pairs), 40 (2) or 50 (3)."""
    drawn = [draw_limit(12.5, Random(seed)) for seed in range(600)]
    assert {limit: drawn.count(limit) // 60 for limit in {*drawn}}.keys() == {30.0, 40.0, 50.0}
    assert 60 < drawn.count(30.0) < 140 and 240 < drawn.count(50.0) < 360
    assert {draw_limit(20.0, Random(seed)) for seed in range(50)} == {40.0, 50.0, 60.0}
    assert draw_limit(975.0, Random(0)) == 990.0, "980 and 990 are left"
    assert draw_limit(985.0, Random(0)) == draw_limit(5000.0, Random(0)) == 1_000_000.0


def test_the_rule_for_nouns() -> None:
    nouns = RuleNouns()
    assert nouns.of("Soft Cotton Shirt with a Wireless Charger, LX-204") == (
        "cotton",
        "shirt",
        "charger",
        "lx",
    )
    assert nouns.of("Pole lamp and pole") == ("pole", "lamp", "pole"), "in order, repeats kept"
    assert nouns.of("2 x 4") == ()

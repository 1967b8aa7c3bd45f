"""Generated shops: coherent, reproducible, with disjoint splits, and no answer in what is told."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError
from agentrl.tasks.base import Sample
from agentrl.tasks.webshop import vocabulary as words
from agentrl.tasks.webshop.generator import LEVELS, Generator, bucket, split_of
from agentrl.tasks.webshop.products import Goal, Product
from agentrl.tasks.webshop.scoring import alike, base_color
from agentrl.tasks.webshop.task import WebShopTask

LEVEL = st.sampled_from(sorted(LEVELS))
SPLIT = st.sampled_from(("train", "dev", "std"))
SPLITS = ("train", "dev", "std")
AXES = [
    *((d, name, values) for d in words.DEPARTMENTS for name, values in d.axes.items()),
    *((d, name, values) for d in words.DEPARTMENTS for name, values in d.easy_axes.items()),
]


def wanted(generator: Generator, goal: Goal) -> Product:
    found = [p for p in generator.products() if p.asin == goal.asin]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("level", LEVELS)
def test_products_are_what_their_kind_allows(level: str) -> None:
    roots = {department.root for department in words.DEPARTMENTS}
    shop = list(Generator(level, 400).products())
    assert [p.asin for p in shop] == sorted({p.asin for p in shop}), "unique, in order"
    for product in shop:
        assert product.product_category.split(" › ")[0] in roots
        assert len(product.attributes) == LEVELS[level].attributes == len({*product.attributes})
        assert product.options and all(len(values) >= 2 for _, values in product.options)
        assert 0 < product.price <= product.highest_price
        for _, values in product.options:
            assert all(value == value.lower().strip() for value in values)
        told = f"{product.name} {product.description} {' '.join(product.features)}".lower()
        assert all(attribute in told for attribute in product.attributes), "all of it can be read"
        assert Product.from_json(product.to_json()) == product


def test_a_price_tag_says_what_may_be_paid() -> None:
    shop = list(Generator("hard", 600).products())
    ranged = [p for p in shop if " to " in p.price_tag]
    assert 90 <= len(ranged) <= 210  # a quarter
    for product in ranged:
        low, high = (float(part) for part in re.findall(r"\$([\d.]+)", product.price_tag))
        assert low <= product.price <= high == product.highest_price
    assert all(p.price_tag == f"${p.price:.2f}" for p in shop if p not in ranged)


@settings(max_examples=60, deadline=None)
@given(LEVEL, SPLIT, st.integers(0, 5_000), st.integers(0, 2))
def test_a_goal_asks_for_what_its_product_has(
    level: str, split: str, index: int, seed: int
) -> None:
    generator = Generator(level, 100, seed)
    goal = generator.goal(split, index)
    product = wanted(generator, goal)
    assert {*goal.attributes} <= {*product.attributes} and goal.attributes
    offered = {value for _, values in product.options for value in values}
    assert {*goal.options} <= offered and goal.options
    assert goal.price_upper > product.highest_price
    for part in (*goal.attributes, *goal.options, goal.query, f"{goal.price_upper:.0f}"):
        assert part in goal.instruction
    assert Goal.from_json(goal.to_json()) == goal


@settings(max_examples=120, deadline=None)
@given(LEVEL, SPLIT, st.integers(0, 5_000))
def test_no_instruction_says_which_product_it_is(level: str, split: str, index: int) -> None:
    generator = Generator(level, 300)
    goal = generator.goal(split, index)
    said = {*re.findall(r"[a-z0-9]+", goal.instruction.lower())}
    assert goal.asin.lower() not in said
    if level != "easy":
        brand, model = goal.name.split()[0].lower(), goal.name.split()[-1].lower()
        assert brand not in said and model not in goal.instruction


@pytest.mark.parametrize("prompt", ["compact", "agentbench"])
def test_no_first_page_says_it_either(prompt: str) -> None:
    task = WebShopTask(TaskConfig(level="medium", prompt=prompt, options={"products": 300}))
    for index in range(40):
        goal = task.goal(Sample("webshop", "std", index))
        text = "\n".join(m.content for m in task.style.opening(task.site, goal))
        assert goal.instruction in text
        assert goal.asin.lower() not in text.lower() and goal.name not in text


@pytest.mark.parametrize("level", LEVELS)
def test_no_instruction_and_no_wanted_product_is_in_two_splits(level: str) -> None:
    generator = Generator(level, 2_000)
    instructions: dict[str, set[str]] = {}
    products: dict[str, set[str]] = {}
    for split in SPLITS:
        goals = [generator.goal(split, index) for index in range(400 if split == "train" else 200)]
        instructions[split] = {goal.instruction for goal in goals}
        products[split] = {goal.asin for goal in goals}
    for one, other in combinations(SPLITS, 2):
        assert not instructions[one] & instructions[other]
        assert not products[one] & products[other]
    assert len(instructions["train"]) > 390, "hardly any of them twice"


def test_disjoint_by_construction() -> None:
    """Both rules are functions of the content alone, and the second does not know the shop."""
    assert [split_of(position) for position in range(10)] == ["train"] * 8 + ["dev", "std"]
    for seed in (0, 1):
        for split in SPLITS:
            goal = Generator("easy", 500, seed).goal(split, 3)
            assert bucket(goal.instruction) == split


def test_all_splits_share_one_small_vocabulary() -> None:
    generator = Generator("easy")
    vocabulary = {
        split: {
            word
            for index in range(3_000 if split == "train" else 800)
            for word in generator.goal(split, index).instruction.split()
        }
        for split in SPLITS
    }
    assert vocabulary["std"] <= vocabulary["train"] and vocabulary["dev"] <= vocabulary["train"]
    assert len(vocabulary["train"]) < 130
    titles = {word for product in generator.products() for word in product.name.split()}
    assert titles <= vocabulary["train"], "what is sold is what is asked for"
    assert all(word == "," or re.fullmatch(r"[a-z]+|\d\d", word) for word in vocabulary["train"])


def test_easy_shops_are_small_reading() -> None:
    for product in Generator("easy").products():
        assert re.fullmatch(r"[a-z]+ [a-z]+ [a-z]+", product.name)
        assert re.fullmatch(r"[a-z]\d\d", product.asin)
        assert re.fullmatch(r"\$\d\d", product.price_tag)
        assert all(re.fullmatch(r"[a-z]+", v) for _, values in product.options for v in values)
    kinds = {product.query: product.options for product in Generator("easy").products()}
    assert all(product.options == kinds[product.query] for product in Generator("easy").products())


@pytest.mark.parametrize(
    ("department", "name", "values"), AXES, ids=lambda x: x if isinstance(x, str) else ""
)
def test_no_two_values_of_an_option_count_as_the_same(
    department: words.Department, name: str, values: tuple[str, ...]
) -> None:
    for one, other in combinations(values, 2):
        assert not alike(base_color(one), base_color(other)), (one, other)


@pytest.mark.parametrize("department", words.DEPARTMENTS, ids=lambda d: d.category)
def test_no_two_attributes_count_as_the_same(department: words.Department) -> None:
    for listed in (department.attributes, department.easy_attributes):
        for one, other in combinations(listed, 2):
            assert not alike(one, other) and one not in other and other not in one
    meant = [
        *department.easy_attributes,
        *(value for values in department.easy_axes.values() for value in values),
        *(kind.noun for kind in department.kinds),
    ]
    assert len(meant) == len({*meant}), "an easy word means one thing in its department"


def test_a_shop_is_the_same_in_another_process() -> None:
    code = (
        "from agentrl.tasks.webshop.generator import Generator; g = Generator('hard', 500, 3);"
        "print(g.product(77), g.goal('std', 7))"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    generator = Generator("hard", 500, 3)
    assert printed[0] == printed[1] == f"{generator.product(77)} {generator.goal('std', 7)}\n"
    assert Generator("hard", 500, 4).product(77) != generator.product(77)


def test_a_product_does_not_depend_on_those_made_before() -> None:
    generator = Generator("medium", 200)
    assert [*generator.products()][150] == Generator("medium", 200).product(150)


@pytest.mark.parametrize("count", [100, 2_600, 2_601, 100_000, 1_000_000])
@pytest.mark.parametrize("level", ["easy", "hard"])
def test_asins_are_unique_and_ordered_at_every_size(level: str, count: int) -> None:
    generator = Generator(level, count)
    middle = range(count // 2, count // 2 + 20)
    places = sorted({*range(50), *middle, *range(count - 50, count)})
    asins = [generator.product(position).asin for position in places]
    assert asins == sorted({*asins})
    assert len({len(asin) for asin in asins}) == 1


def test_unknown_levels_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"'tasks.webshop.level': 'extreme' .* easy, medium, hard"
    ):
        Generator("extreme")

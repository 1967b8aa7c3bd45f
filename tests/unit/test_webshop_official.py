"""WebShop's own files: their shapes, the rules of the reference, and its faults mended."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest

from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError, DataError
from agentrl.tasks.play import play_expert
from agentrl.tasks.webshop.generator import Generator
from agentrl.tasks.webshop.official import Files, read_options, read_price, read_shop
from agentrl.tasks.webshop.products import Goal, Product
from agentrl.tasks.webshop.task import WebShopTask

LAMP: dict[str, Any] = {
    "asin": "B09",
    "name": "Brass Lamp",
    "full_description": "A lamp.",
    "small_description": ["Bright", "Brass"],
    "pricing": "$1,012.50",
    "customization_options": {
        "Color": [{"value": " Blue/Green ", "image": None}, {"value": "Red"}],
        "Size": None,
    },
    "images": ["http://x/1.jpg"],
    "category": "garden",
    "query": " Floor Lamps ",
    "product_category": "Home › Lighting › Lamps",
    "brand": "dropped",
    "list_price": 3,
}
RUG = {
    **LAMP,
    "asin": "B01",
    "name": "Wool Rug",
    "pricing": "$20.00$30.00",
    "small_description": "Soft",
}
VASE = {**LAMP, "asin": "B05", "name": "Vase", "pricing": "", "customization_options": {}}
ITEMS = [
    LAMP,
    RUG,
    {**LAMP, "asin": "nan"},
    {**LAMP, "asin": "B0123456789"},
    {**LAMP, "name": "a second one with the same asin"},
    VASE,
]
ATTRIBUTES = {"B09": {"attributes": ["bright", "solid brass"], "instruction": "x"}, "B01": {}}
HUMAN = {
    "B01": [
        {"instruction": "a rug.", "instruction_attributes": ["soft"], "instruction_options": ["red"], "worker": 1},
        {"instruction": "skipped", "instruction_attributes": [], "instruction_options": []},
    ],
    "B09": [
        {"instruction": "a lamp", "instruction_attributes": ["bright"], "instruction_options": {"color": "red"}},
        {"instruction": "my lamp", "instruction_attributes": ["brass"], "instruction_options": []},
    ],
    "B77": [{"instruction": "not sold", "instruction_attributes": ["x"], "instruction_options": []}],
}  # fmt: skip


def write(root: Path, items: Any, attributes: Any, human: Any, suffix: str = "") -> Path:
    folder = root / "webshop"
    folder.mkdir(exist_ok=True)
    (folder / f"items_shuffle{suffix}.json").write_text(json.dumps(items))
    (folder / f"items_ins_v2{suffix}.json").write_text(json.dumps(attributes))
    (folder / "items_human_ins.json").write_text(json.dumps(human))
    return root


def read(
    root: Path, items: Any = ITEMS, attributes: Any = ATTRIBUTES, human: Any = HUMAN
) -> tuple[list[Product], list[Goal]]:
    write(root, items, attributes, human)
    folder, scratch = root / "webshop", Path(tempfile.mkdtemp(dir=root))
    names = ("items_shuffle.json", "items_ins_v2.json", "items_human_ins.json")
    products, goals = read_shop(Files(*(folder / name for name in names)), scratch)
    return list(products), list(goals)


def test_products_are_read_as_the_reference_reads_them(tmp_path: Path) -> None:
    rug, vase, lamp = read(tmp_path)[0]
    assert lamp == Product(
        asin="B09",
        name="Brass Lamp",
        description="A lamp.",
        features=("Bright", "Brass"),
        price=1012.5,
        price_tag="$1012.5",
        options=(("color", ("blue | green", "red")),),
        attributes=("bright", "solid brass"),
        query="floor lamps",
        category="garden",
        product_category="Home › Lighting › Lamps",
    )
    assert (rug.asin, rug.features, rug.attributes, rug.price_tag) == (
        "B01",
        ("Soft",),
        (),
        "$20.0 to $30.0",
    )
    assert 20 <= rug.price <= 30
    assert (vase.asin, vase.price, vase.price_tag, vase.options) == ("B05", 100.0, "$100.0", ())
    assert lamp.text == "brass lamp a lamp. bright color: blue | green, red"


def test_goals_are_in_the_shuffled_order_of_the_products_file(tmp_path: Path) -> None:
    """In file order: two of B09, then one of B01; shuffled as `random.seed(233)` does."""
    expected = ["a lamp", "my lamp", "a rug"]
    Random(233).shuffle(expected)
    goals = read(tmp_path)[1]
    assert [goal.instruction.partition(", and")[0] for goal in goals] == expected
    by_text = {goal.instruction.partition(", and")[0]: goal for goal in goals}
    lamp, rug = by_text["a lamp"], by_text["a rug"]
    assert lamp.options == ("red",), "the values of an object"
    assert (lamp.attributes, lamp.query, lamp.name) == (("bright",), "floor lamps", "Brass Lamp")
    assert (lamp.price_upper, lamp.instruction) == (1_000_000.0, "a lamp"), "no limit above 990"
    assert rug.price_upper in (40.0, 50.0, 60.0, 70.0)
    assert rug.instruction == f"a rug, and price lower than {rug.price_upper:.2f} dollars"


def test_prices_are_the_same_in_every_process(tmp_path: Path) -> None:
    """The reference draws them before it seeds: its workers disagree about limits."""
    products, goals = read(tmp_path)
    code = (
        "import sys; from pathlib import Path; from agentrl.tasks.webshop.official import *;"
        "root = Path(sys.argv[1]); scratch = root / sys.argv[2]; scratch.mkdir();"
        "names = ('items_shuffle.json', 'items_ins_v2.json', 'items_human_ins.json');"
        "p, g = read_shop(Files(*(root / 'webshop' / n for n in names)), scratch); print([*p], [*g])"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path), seed],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f"{products} {goals}\n"


def test_a_price_does_not_depend_on_the_other_products(tmp_path: Path) -> None:
    whole = {p.asin: p.price for p in read(tmp_path)[0]}
    (alone,) = read(tmp_path, items=[RUG])[0]
    assert alone.price == whole["B01"]


@pytest.mark.parametrize(
    ("text", "price", "tag"),
    [
        ("$12", 12.0, "$12.0"),
        ("$1,299.99", 1299.99, "$1299.99"),
        (None, 100.0, "$100.0"),
        ("", 100.0, "$100.0"),
        ("free", 100.0, "$100.0"),
    ],
)
def test_prices(text: str | None, price: float, tag: str) -> None:
    assert read_price(text, Random(0)) == (price, tag)


def test_a_range_has_its_first_two_prices() -> None:
    price, tag = read_price("$10.00 - $14.00 $99.00", Random(0))
    assert tag == "$10.0 to $14.0" and 10 <= price <= 14


def test_options_may_be_missing() -> None:
    assert read_options(None) == read_options({}) == read_options({"Size": None}) == ()


@pytest.mark.parametrize(
    ("items", "attributes", "human", "message"),
    [
        ([{"name": "x"}], {}, {}, r"items_shuffle\.json: product 0: KeyError: 'asin'"),
        (
            [LAMP, {**RUG, "pricing": "$1.2.3"}],
            {},
            {},
            r"items_shuffle\.json: product 1: ValueError",
        ),
        (
            [LAMP],
            {},
            {"B09": [{"instruction": "x"}]},
            r"items_human_ins\.json: B09, instruction 0: KeyError",
        ),
    ],
)
def test_faults_name_file_and_place(
    tmp_path: Path, items: Any, attributes: Any, human: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, items, attributes, human)


def test_a_file_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    write(tmp_path, ITEMS, ATTRIBUTES, HUMAN)
    path = tmp_path / "webshop" / "items_shuffle.json"
    path.write_text(path.read_text()[:300])
    task = official(tmp_path)
    with pytest.raises(DataError, match=r"items_shuffle\.json: "):
        task.samples("std")
    assert not [p for p in (tmp_path / "cache").iterdir() if not p.name.startswith(".")]


def official(root: Path, **options: Any) -> WebShopTask:
    settings = {"cache": str(root / "cache"), **options}
    return WebShopTask(TaskConfig(source="official", options=settings, max_turns=20), root)


def shapes(generator: Generator, instructions: int) -> tuple[Any, Any, Any]:
    """A generated shop in the shapes of the files."""
    items = [
        {
            "asin": p.asin,
            "name": p.name,
            "full_description": p.description,
            "small_description": list(p.features),
            "pricing": p.price_tag,
            "customization_options": {n: [{"value": v} for v in values] for n, values in p.options},
            "images": ["http://x"],
            "category": p.category,
            "query": p.query,
            "product_category": p.product_category,
        }
        for p in generator.products()
    ]
    Random(5).shuffle(items)
    attributes = {p.asin: {"attributes": list(p.attributes)} for p in generator.products()}
    human: dict[str, list[Any]] = {}
    for index in range(instructions):
        goal = generator.goal("train", index)
        human.setdefault(goal.asin, []).append(
            {
                "instruction": goal.instruction.partition(", and price")[0],
                "instruction_attributes": list(goal.attributes),
                "instruction_options": list(goal.options),
            }
        )
    return items, attributes, human


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("official"), *shapes(Generator("medium", 300), 1_100))


async def test_a_shop_in_the_files_shapes_is_served_and_solved(shop: Path) -> None:
    task = official(shop)
    assert task.level == "official, nouns by rule"
    made = {p.asin: p for p in Generator("medium", 300).products()}
    assert len(task.site.store) == 300 and task.site.store.goals == 1_100
    for position in (0, 150, 299):
        read = task.site.store.product(position)
        twin = made[read.asin]
        assert (read.name, read.options, read.attributes) == (
            twin.name,
            twin.options,
            twin.attributes,
        )
        assert (read.price, read.text) == (twin.price, twin.text)
    sizes = {split: [s.index for s in task.samples(split)] for split in ("std", "dev", "train")}
    assert sizes["std"] == [*range(200)] and sizes["dev"] == [*range(200, 400)]
    assert sizes["train"] == [*range(1_000, 1_100)], "as many as there are"
    rewards = [
        (await play_expert(task, task.samples(split)[index], 0)).last.reward
        for split in ("std", "train")
        for index in range(60)
    ]
    assert sum(reward == 1.0 for reward in rewards) >= 119
    await task.close()


async def test_what_is_built_is_found_again_by_its_files(shop: Path) -> None:
    task = official(shop)
    before = sorted((shop / "cache").iterdir())
    assert task.samples("std")
    await task.close()
    folders = [path for path in sorted((shop / "cache").iterdir()) if path.is_dir()]
    assert folders and set(before) <= set((shop / "cache").iterdir())
    assert all(path.name.startswith("webshop-official-all-") for path in folders)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="config key 'data_root': not set"):
        WebShopTask(TaskConfig(source="official"), None)
    with pytest.raises(
        ConfigError, match=r"lacks items_shuffle\.json, items_ins_v2\.json, items_human"
    ):
        official(tmp_path)
    write(tmp_path, ITEMS, ATTRIBUTES, HUMAN, "_1000")
    with pytest.raises(
        ConfigError, match=r"lacks items_shuffle\.json, items_ins_v2\.json; WebShop"
    ):
        official(tmp_path)
    with pytest.raises(ConfigError, match=r"options.cache': not set, but source is 'official'"):
        official(tmp_path, edition="small", cache=None)
    small = official(tmp_path, edition="small")
    assert small.level == "official small, nouns by rule"
    assert len(small.samples("std")) == 3
    with pytest.raises(
        DataError, match=r"3 instructions for these products, but split 'train' starts at"
    ):
        small.samples("train")

"""Reads WebShop's own files, whatever their size, into the shape of a generated shop.

Files (spec/tasks.md §5), in `data_root/webshop`: `items_shuffle.json` (products), `items_ins_v2.json`
(attributes), `items_human_ins.json` (instructions); the first two with `_1000` for the small edition.
They are read piece by piece through a scratch database, so that 1.18 million products need no memory.

Kept as in the reference (`engine.py`, `goal.py`): which products are skipped, how prices and options are
read, the order of goals (shuffled with seed 233), which index belongs to which split. Ours: prices of
ranges and price limits come from streams named by the product, so that every process agrees on them; an
object of options gives its values.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

import ijson

from agentrl.errors import ConfigError, DataError
from agentrl.randomness import stream
from agentrl.tasks.webshop.products import NO_LIMIT, Goal, Options, Product, draw_limit

Edition = Literal["all", "small"]
SPLITS = {"std": (0, 200), "dev": (200, 1_000), "train": (1_000, 12_000)}
"""Indices of goals: those of AgentBench for std and train, and for dev the ones that it leaves out."""
SHUFFLE_SEED = 233
PRICE_WITHOUT_TAG = 100.0
LONGEST_ASIN = 10
_SCHEMA = """
CREATE TABLE item (number INTEGER PRIMARY KEY, asin TEXT NOT NULL UNIQUE, record TEXT NOT NULL);
CREATE TABLE attribute (asin TEXT PRIMARY KEY, record TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Files:
    items: Path
    attributes: Path
    instructions: Path

    def key(self) -> dict[str, str]:
        """What tells these files from others: size, and a digest of both ends of each."""
        return {path.name: _fingerprint(path) for path in self.all}

    @property
    def all(self) -> tuple[Path, Path, Path]:
        return self.items, self.attributes, self.instructions


def find_files(data_root: Path | None, edition: Edition) -> Files:
    if data_root is None:
        raise ConfigError(
            "config key 'data_root': not set, but tasks.webshop.source is 'official'; give the folder "
            "that has WebShop's files in its folder webshop"
        )
    suffix = "" if edition == "all" else "_1000"
    names = (f"items_shuffle{suffix}.json", f"items_ins_v2{suffix}.json", "items_human_ins.json")
    files = Files(*(data_root / "webshop" / name for name in names))
    missing = [path.name for path in files.all if not path.is_file()]
    if missing:
        raise ConfigError(
            f"config key 'data_root': {data_root / 'webshop'} lacks {', '.join(missing)}; WebShop's "
            "setup script says where its authors offer them"
        )
    return files


def read_shop(
    files: Files, scratch: Path, seed: int = 0
) -> tuple[Iterator[Product], Iterator[Goal]]:
    """Products in the order of their asins, and goals in the order of their indices.

    Raises:
        DataError: names the file, and the place in it, of what cannot be read.
    """
    with closing(sqlite3.connect(scratch / "files.sqlite")) as database:
        database.executescript(_SCHEMA)
        with database:
            database.executemany(
                "INSERT OR IGNORE INTO item VALUES (?, ?, ?)", _items(files.items, seed)
            )
            database.executemany(
                "INSERT OR REPLACE INTO attribute VALUES (?, ?)", _attributes(files.attributes)
            )
    return _products(scratch), iter(_goals(scratch, files.instructions, seed))


def _products(scratch: Path) -> Iterator[Product]:
    with closing(sqlite3.connect(scratch / "files.sqlite")) as database:
        rows = database.execute(
            "SELECT item.record, attribute.record FROM item LEFT JOIN attribute USING (asin) "
            "ORDER BY item.asin"
        )
        for record, attributes in rows:
            yield Product(**_frozen(record), attributes=tuple(json.loads(attributes or "[]")))


def _frozen(record: str) -> dict[str, Any]:
    fields = json.loads(record)
    fields["features"] = tuple(fields["features"])
    fields["options"] = tuple((name, tuple(values)) for name, values in fields["options"])
    return dict(fields)


# -- the three files


def _items(path: Path, seed: int) -> Iterator[tuple[int, str, str]]:
    for number, item in enumerate(_elements(path, "item")):
        try:
            asin = str(item["asin"])
            if asin == "nan" or len(asin) > LONGEST_ASIN:
                continue
            record = _item(item, asin, seed)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{path}: product {number}: {type(error).__name__}: {error}") from None
        yield number, asin, json.dumps(record, ensure_ascii=False)


def _item(item: Mapping[str, Any], asin: str, seed: int) -> dict[str, Any]:
    price, tag = read_price(item.get("pricing"), stream(seed, "webshop-price", asin))
    features = item["small_description"]
    return {
        "asin": asin,
        "name": str(item["name"]),
        "description": str(item["full_description"] or ""),
        "features": [
            str(each) for each in (features if isinstance(features, list) else [features])
        ],
        "price": price,
        "price_tag": tag,
        "options": read_options(item["customization_options"]),
        "query": str(item["query"]).lower().strip(),
        "category": str(item["category"]),
        "product_category": str(item["product_category"]),
    }


def read_price(text: str | None, rng: Random) -> tuple[float, str]:
    """(dollars, tag) of `$12.50`, of `$10.00$14.00` (drawn between the two) or of nothing."""
    amounts = [float(re.sub(r"[^\d.]", "", part)) for part in (text or "").split("$")[1:]]
    if not amounts:
        return PRICE_WITHOUT_TAG, f"${PRICE_WITHOUT_TAG}"
    if len(amounts) == 1:
        return amounts[0], f"${amounts[0]}"
    return rng.uniform(*amounts[:2]), f"${amounts[0]} to ${amounts[1]}"


def read_options(listed: Mapping[str, Any] | None) -> Options:
    return tuple(
        (
            name.lower(),
            tuple(str(each["value"]).strip().replace("/", " | ").lower() for each in values),
        )
        for name, values in (listed or {}).items()
        if values is not None
    )


def _attributes(path: Path) -> Iterator[tuple[str, str]]:
    for asin, entry in _entries(path):
        listed = entry.get("attributes") if isinstance(entry, Mapping) else None
        if isinstance(listed, list):
            yield asin, json.dumps([str(each) for each in listed], ensure_ascii=False)


def _goals(scratch: Path, path: Path, seed: int) -> list[Goal]:
    """Of the products that are there, in the order of the products' file, then shuffled."""
    found: list[tuple[int, int, Goal]] = []
    with closing(sqlite3.connect(scratch / "files.sqlite")) as database:
        for asin, entries in _entries(path):
            row = database.execute(
                "SELECT number, record FROM item WHERE asin = ?", (asin,)
            ).fetchone()
            if row is None:
                continue
            for place, entry in enumerate(entries):
                try:
                    goal = _goal(json.loads(row[1]), entry, place, seed)
                except (KeyError, TypeError, AttributeError) as error:
                    raise DataError(
                        f"{path}: {asin}, instruction {place}: {type(error).__name__}: {error}"
                    ) from None
                if goal.attributes:
                    found.append((row[0], place, goal))
    goals = [goal for *_, goal in sorted(found, key=lambda each: each[:2])]
    Random(SHUFFLE_SEED).shuffle(goals)
    return goals


def _goal(item: Mapping[str, Any], entry: Mapping[str, Any], place: int, seed: int) -> Goal:
    limit = draw_limit(item["price"], stream(seed, "webshop-limit", item["asin"], place))
    clause = "" if limit == NO_LIMIT else f", and price lower than {limit:.2f} dollars"
    options = entry["instruction_options"]
    return Goal(
        asin=item["asin"],
        instruction=entry["instruction"].strip(".") + clause,
        attributes=tuple(str(each) for each in entry["instruction_attributes"]),
        options=tuple(map(str, options.values() if isinstance(options, Mapping) else options)),
        price_upper=limit,
        query=item["query"],
        name=item["name"],
        product_category=item["product_category"],
    )


# -- reading piece by piece


def _elements(path: Path, prefix: str) -> Iterator[Any]:
    with path.open("rb") as file:
        yield from _guarded(path, ijson.items(file, prefix, use_float=True))


def _entries(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open("rb") as file:
        yield from _guarded(path, ijson.kvitems(file, "", use_float=True))


def _guarded(path: Path, values: Iterable[Any]) -> Iterator[Any]:
    try:
        yield from values
    except (ijson.JSONError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {str(error).splitlines()[0]}") from None


def _fingerprint(path: Path) -> str:
    size, end = path.stat().st_size, 2**20
    state = hashlib.blake2b(digest_size=8)
    with path.open("rb") as file:
        state.update(file.read(end))
        file.seek(max(0, size - end))
        state.update(file.read(end))
    return f"{size} bytes, ends {state.hexdigest()}"

"""Where a shop is kept while it is open: products by position and asin, goals, and the search index.

Invariants: a shop on disk is built beside its place and renamed into it when all is written, so a
half-built one is never used, whoever is killed when; two processes that want the same one build it
once; what is opened was built from exactly the facts that are asked for (`key`), by this code.

    FOLDER/NAME-DIGEST/   complete.json (key, counts, size and checksum of each file), shop.sqlite, index/

`size`s are checked whenever it is opened, checksums by `verify`. Without a folder a shop is in memory.
Both ways hold only what is looked at: SQLite and tantivy read pages of their files as they are needed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from agentrl.errors import DataError
from agentrl.provenance import meaning, settings_digest
from agentrl.tasks.webshop.products import Goal, Product
from agentrl.tasks.webshop.search import SearchIndex

log = logging.getLogger(__name__)

MARKER, PRODUCTS, INDEX = "complete.json", "shop.sqlite", "index"
_BUILDING = ".building-"
_SCHEMA = """
CREATE TABLE product (position INTEGER PRIMARY KEY, asin TEXT NOT NULL, record TEXT NOT NULL);
CREATE TABLE goal (number INTEGER PRIMARY KEY, record TEXT NOT NULL);
"""
_CACHED_PRODUCTS, _CACHED_SEARCHES = 2_000, 2_000

Content = tuple[Iterable[Product], Iterable[Goal]]
"""Products in the order of their asins, each of which is there once, and goals in theirs."""


class Store:
    """An open shop; safe to share between episodes, each of which only reads."""

    def __init__(self, database: sqlite3.Connection, index: SearchIndex) -> None:
        self._database, self._index = database, index
        self.count = len(index)
        (self.goals,) = database.execute("SELECT COUNT(*) FROM goal").fetchone()
        self.product = lru_cache(_CACHED_PRODUCTS)(self._product)
        self.search = lru_cache(_CACHED_SEARCHES)(index.search)

    def __len__(self) -> int:
        return self.count

    def goal(self, number: int) -> Goal:
        row = self._database.execute(
            "SELECT record FROM goal WHERE number = ?", (number,)
        ).fetchone()
        if row is None:
            raise IndexError(f"the shop has {self.goals} goals, not number {number}")
        return Goal.from_json(row[0])

    def find(self, asin: str) -> int | None:
        """The position of a product; None where there is none."""
        row = self._database.execute(
            "SELECT position FROM product WHERE asin = ?", (asin,)
        ).fetchone()
        return None if row is None else int(row[0])

    def close(self) -> None:
        self._database.close()

    def _product(self, position: int) -> Product:
        row = self._database.execute(
            "SELECT record FROM product WHERE position = ?", (position,)
        ).fetchone()
        if row is None:
            raise IndexError(f"the shop has {self.count} products, none at {position}")
        return Product.from_json(row[0])


def in_memory(content: Content) -> Store:
    database = sqlite3.connect(":memory:", check_same_thread=False)
    return Store(database, _write(database, content, None))


def open_store(
    folder: Path, name: str, key: Mapping[str, Any], content: Callable[[Path], Content]
) -> Store:
    """The shop that `key` describes, built now if it is not in `folder`.

    Args:
        name: what its folder is called, before a digest of the key and of this package's code.
        content: called to build it, with a scratch folder that goes away afterwards.
    """
    facts = {**key, **_makers()}
    place = folder / f"{name}-{settings_digest(facts)}"
    try:
        if not place.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with _alone(folder / f".{place.name}.lock"):
                if not place.exists():
                    _build(place, facts, content)
        _check(place, facts)
        uri = f"file:{(place / PRODUCTS).absolute().as_posix()}?mode=ro&immutable=1"
        database = sqlite3.connect(uri, uri=True, check_same_thread=False)
        return Store(database, SearchIndex.open(place / INDEX))
    except (OSError, sqlite3.DatabaseError) as error:
        raise DataError(
            f"config key 'tasks.webshop.options.cache': {place}: {error}; free space, choose another "
            "folder, or delete this one to have it built again"
        ) from error


def verify(place: Path) -> None:
    """Compare every file of a shop with the checksum it was built with; `DataError` names the first."""
    marker = _read_marker(place)
    for name, (_, digest) in marker["files"].items():
        if _digest(place / name) != digest:
            raise DataError(f"{place / name}: damaged; delete {place} to have it built again")


# -- building


def _build(place: Path, facts: Mapping[str, Any], content: Callable[[Path], Content]) -> None:
    """Called with the lock held, so whatever lies in the building site is of a dead process."""
    site = place.with_name(_BUILDING + place.name)
    scratch = site / "scratch"
    if site.exists():
        log.info("webshop: %s was left half-built, starting again", site)
        shutil.rmtree(site)
    scratch.mkdir(parents=True)
    (site / INDEX).mkdir()
    log.info("webshop: building %s", place)
    database = sqlite3.connect(site / PRODUCTS)
    try:
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        index = _write(database, content(scratch), site / INDEX)
    finally:
        database.close()
    count = len(index)
    del index
    shutil.rmtree(scratch)
    files = sorted(path for path in site.rglob("*") if path.is_file() and path.suffix != ".lock")
    marker = {
        "key": dict(facts),
        "products": count,
        "files": {
            path.relative_to(site).as_posix(): [path.stat().st_size, _digest(path)]
            for path in files
        },
    }
    (site / MARKER).write_text(json.dumps(marker, indent=1) + "\n", encoding="utf-8")
    site.rename(place)


def _write(database: sqlite3.Connection, content: Content, index: Path | None) -> SearchIndex:
    products, goals = content
    database.executescript(_SCHEMA)

    def texts() -> Iterator[tuple[int, str]]:
        for position, product in enumerate(products):
            row = (position, product.asin, product.to_json())
            database.execute("INSERT INTO product VALUES (?, ?, ?)", row)
            yield position, product.text

    with database:
        built = SearchIndex.build(texts(), index)
        rows = ((number, goal.to_json()) for number, goal in enumerate(goals))
        database.executemany("INSERT INTO goal VALUES (?, ?)", rows)
        database.execute("CREATE UNIQUE INDEX by_asin ON product (asin)")
    return built


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Holds a lock that the system gives back if this process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# -- checking


def _check(place: Path, facts: Mapping[str, Any]) -> None:
    marker = _read_marker(place)
    if marker["key"] != json.loads(json.dumps(dict(facts))):
        raise DataError(f"{place / MARKER}: is of another shop; delete {place}")
    for name, (size, _) in marker["files"].items():
        path = place / name
        if not path.is_file() or path.stat().st_size != size:
            raise DataError(f"{path}: damaged; delete {place} to have it built again")


def _read_marker(place: Path) -> dict[str, Any]:
    try:
        marker: dict[str, Any] = json.loads((place / MARKER).read_text(encoding="utf-8"))
        return {"key": marker["key"], "files": dict(marker["files"])}
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(f"{place / MARKER}: cannot be read; delete {place}") from None


def _makers() -> dict[str, str]:
    """What decides a shop's bytes besides its key: the code that makes it, and the index's format."""
    state = hashlib.blake2b(digest_size=8)
    for name in ("generator", "official", "products", "search", "store", "vocabulary"):
        source = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
        state.update(f"{name}\0{meaning(source)}\0".encode())
    return {"code": state.hexdigest(), "tantivy": metadata.version("tantivy")}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

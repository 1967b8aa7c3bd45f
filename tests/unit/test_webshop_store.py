"""Shops on disk: used only when whole, built once, and only what was asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrl.errors import DataError
from agentrl.tasks.webshop.generator import Generator
from agentrl.tasks.webshop.store import (
    MARKER,
    PRODUCTS,
    Content,
    Store,
    in_memory,
    open_store,
    verify,
)

SHOP = Generator("easy", 120)
KEY = {"level": "easy", "products": 120}
OPEN = """
import os, sys
from pathlib import Path
from agentrl.tasks.webshop.generator import Generator
from agentrl.tasks.webshop.store import open_store
shop = Generator("easy", 120)
folder, dies_at = Path(sys.argv[1]), int(sys.argv[2])

def products():
    with (folder / "built").open("a") as file:
        print("once", file=file)
    for position, product in enumerate(shop.products()):
        if position == dies_at:
            os._exit(9)
        yield product

with_shop = open_store(folder, "shop", {"level": "easy", "products": 120}, lambda _: (products(), ()))
print(len(with_shop), with_shop.search("soft cotton shirt", 5))
"""


def content(_: Path) -> Content:
    return SHOP.products(), [SHOP.goal("std", number) for number in range(3)]


def refuse(_: Path) -> Content:
    raise AssertionError("built again")


def place(folder: Path) -> Path:
    (found,) = [path for path in folder.iterdir() if path.is_dir()]
    return found


@pytest.fixture
def opened(tmp_path: Path) -> Store:
    return open_store(tmp_path, "shop", KEY, content)


def test_what_is_stored_is_what_was_made(opened: Store, tmp_path: Path) -> None:
    memory = in_memory(content(tmp_path))
    for store in (opened, memory):
        assert (len(store), store.goals) == (120, 3)
        for position in (0, 60, 119):
            product = SHOP.product(position)
            assert store.product(position) == product
            assert store.find(product.asin) == position
        assert store.find("a") is None
        assert store.goal(2) == SHOP.goal("std", 2)
        with pytest.raises(IndexError, match="120 products, none at 120"):
            store.product(120)
        with pytest.raises(IndexError, match="3 goals, not number 3"):
            store.goal(3)
    assert opened.search("blue lamp", 9) == memory.search("blue lamp", 9) != ()
    verify(place(tmp_path))


def test_it_is_built_once_and_leaves_nothing_else(opened: Store, tmp_path: Path) -> None:
    opened.close()
    again = open_store(tmp_path, "shop", KEY, refuse)
    assert again.product(5) == SHOP.product(5)
    assert sorted(path.name for path in place(tmp_path).iterdir()) == [MARKER, "index", PRODUCTS]
    others = [path for path in tmp_path.iterdir() if path != place(tmp_path)]
    assert [path.suffix for path in others] == [".lock"]


def test_another_shop_is_another_folder(opened: Store, tmp_path: Path) -> None:
    other = open_store(tmp_path, "shop", {**KEY, "seed": 1}, lambda _: (iter(()), ()))
    assert len(other) == 0
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 2


def run(folder: Path, dies_at: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", OPEN, str(folder), str(dies_at)]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_killed_build_is_never_used_and_is_cleaned_up(tmp_path: Path) -> None:
    assert run(tmp_path, dies_at=70).returncode == 9
    (left,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert left.name.startswith(".building-") and not (left / MARKER).exists()
    after = run(tmp_path, dies_at=-1)
    assert after.stdout.startswith("120 (")
    assert not place(tmp_path).name.startswith("."), "and only this one is left"
    verify(place(tmp_path))


def test_two_processes_build_it_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPEN, str(tmp_path), "-1"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = {process.communicate()[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(printed) == 1 and (tmp_path / "built").read_text() == "once\n"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda at: cut(at / PRODUCTS), r"shop\.sqlite: damaged; delete"),
        (lambda at: next((at / "index").glob("*.idx")).unlink(), r"\.idx: damaged; delete"),
        (lambda at: (at / MARKER).unlink(), r"complete\.json: cannot be read; delete"),
        (lambda at: (at / MARKER).write_text("{}"), r"complete\.json: cannot be read; delete"),
        (
            lambda at: (at / MARKER).write_text(
                (at / MARKER).read_text().replace('"easy"', '"hard"')
            ),
            r"complete\.json: is of another shop; delete",
        ),
    ],
)
def test_damage_is_one_line(
    opened: Store, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    opened.close()
    damage(place(tmp_path))
    with pytest.raises(DataError, match=message):
        open_store(tmp_path, "shop", KEY, refuse)


def test_a_flipped_byte_is_found_by_its_checksum(opened: Store, tmp_path: Path) -> None:
    opened.close()
    path = place(tmp_path) / PRODUCTS
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"shop\.sqlite: damaged"):
        verify(place(tmp_path))


def test_a_folder_that_cannot_be_made_names_its_key(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"'tasks.webshop.options.cache': .*file"):
        open_store(tmp_path / "file", "shop", KEY, content)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc to count files in")
def test_no_file_stays_open(tmp_path: Path) -> None:
    def files() -> list[str]:
        links = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        return [os.path.realpath(path) for path in links]

    for _ in range(3):
        store = open_store(tmp_path, "shop", KEY, content)
        store.product(3)
        store.close()
    own = [name for name in files() if name.startswith(str(tmp_path))]
    assert not [name for name in own if PRODUCTS in name or ".lock" in name]


def test_the_marker_says_what_is_in_it(opened: Store, tmp_path: Path) -> None:
    marker = json.loads((place(tmp_path) / MARKER).read_text())
    assert marker["products"] == 120
    assert marker["key"].items() >= KEY.items()
    assert marker["files"][PRODUCTS][0] == (place(tmp_path) / PRODUCTS).stat().st_size

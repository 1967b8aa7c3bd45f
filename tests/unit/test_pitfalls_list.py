"""tests/PITFALLS.md names a test, or a reason, for each of the 42 entries; every test it names exists."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROW = re.compile(r"\| (\d+) \| (.+?) \| (.+) \|")
NAMED = re.compile(r"`((?:unit|integration|workflow)/\w+\.py)::(\w+)`")


def rows():
    lines = (TESTS / "PITFALLS.md").read_text(encoding="utf-8").splitlines()
    return {int(m[1]): m[3] for line in lines if (m := ROW.fullmatch(line))}


def functions(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, kinds)}


def test_every_pitfall_has_a_test_or_a_reason_why_it_cannot_arise():
    assert list(rows()) == list(range(1, 43))
    for number, text in rows().items():
        assert NAMED.search(text) or text.startswith("Cannot arise: "), number


def test_every_test_that_is_named_exists():
    named = [found for text in rows().values() for found in NAMED.findall(text)]
    assert len(named) > 60
    for file, name in named:
        assert name in functions(TESTS / file), f"{file}::{name}"
        assert name.startswith("test_")


def test_everything_in_backticks_that_looks_like_a_test_is_read():
    text = (TESTS / "PITFALLS.md").read_text(encoding="utf-8")
    assert text.count("::test_") == len(NAMED.findall(text))

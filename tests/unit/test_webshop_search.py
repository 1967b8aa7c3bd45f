"""Search: BM25, one order for all processes, and no operators."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.tasks.webshop.search import MAX_TERMS, SearchIndex

WORDS = (
    "lamp",
    "shirt",
    "wood",
    "metal",
    "blue",
    "green",
    "round",
    "tall",
)  # no stop word, no stem


def index(*texts: str) -> SearchIndex:
    return SearchIndex.build(enumerate(texts))


def bm25(texts: list[str], query: str) -> list[int]:
    """Positions by Robertson's formula as Lucene writes it (k1 1.2, b 0.75), ties by position."""
    documents = [text.split() for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    scores = [0.0] * len(texts)
    for term in query.split():
        having = sum(term in words for words in documents)
        rarity = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for position, words in enumerate(documents):
            count = words.count(term)
            scores[position] += (
                rarity * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(words) / mean))
            )
    found = [position for position, value in enumerate(scores) if value > 0]
    return sorted(found, key=lambda position: (-round(scores[position], 4), position))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join),
        min_size=1,
        max_size=30,
    ),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
    st.integers(1, 12),
)
def test_the_order_is_that_of_bm25_then_position(texts: list[str], query: str, limit: int) -> None:
    assert list(index(*texts).search(query, limit)) == bm25(texts, query)[:limit]


def test_equal_scores_are_in_the_order_of_positions_wherever_the_list_is_cut() -> None:
    positions = list(range(3000))
    Random(0).shuffle(positions)
    built = SearchIndex.build((position, "red lamp for the hall") for position in positions)
    for limit in (1, 7, 50):
        assert built.search("lamp", limit) == tuple(range(limit))
        assert built.search("red hall lamp", limit) == tuple(range(limit))


def test_a_query_is_words_and_nothing_else() -> None:
    built = index("lamp of wood", "shirt", "text position lamp", "and or not to")
    assert built.search("shirt", 9) == (1,)
    for attempt in (
        '"shirt"', "+shirt", "shirt^100", "(shirt)", "text:shirt", "-lamp shirt", "shirt*", "<q> shirt",
        "<r> shirt", "shirt AND NOT shirt", "[a TO z] shirt", "shirt~2", "\\shirt", "/shirt/",
    ):  # fmt: skip
        assert 1 in built.search(attempt, 9), attempt
    assert built.search("position:0", 9) == (2,), "a word of the text, no field"
    assert built.search("*", 9) == built.search("<r>", 9) == built.search("", 9) == ()
    assert built.search("the of and", 9) == (), "words that say nothing find nothing"
    assert built.search("SHIRTS", 9) == (1,), "case and plural are no matter"


def test_a_long_query_costs_no_more_than_its_first_words() -> None:
    built = index("lamp", "shirt")
    assert built.search("unknown " * MAX_TERMS + "lamp", 9) == ()
    assert built.search("lamp " * 100_000, 9) == (0,)
    assert built.search("x" * 1_000_000 + " lamp", 9) == (0,), "a word of a million letters is none"


def test_a_folder_gives_what_memory_gives(tmp_path: Path) -> None:
    rng = Random(1)
    texts = [" ".join(rng.choices(WORDS, k=6)) for _ in range(400)]
    SearchIndex.build(enumerate(texts), tmp_path)
    opened = SearchIndex.open(tmp_path)
    assert len(opened) == 400
    for _ in range(50):
        query = " ".join(rng.choices(WORDS, k=3))
        assert opened.search(query, 20) == index(*texts).search(query, 20)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="no /proc to count threads in")
def test_threads_do_not_pile_up(tmp_path: Path) -> None:
    """Those of a writer end some time after it: waited for, not timed."""

    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    before = threads()
    for number in range(15):
        (folder := tmp_path / str(number)).mkdir()
        SearchIndex.build([(0, "lamp")], folder)
        assert SearchIndex.open(folder).search("lamp", 1) == (0,)
    pause = threading.Event()
    for _ in range(1_200):
        if threads() - before < 15:  # fewer than one of the two of each build
            return
        pause.wait(0.05)
    raise AssertionError(f"{threads() - before} threads more than before 15 builds")

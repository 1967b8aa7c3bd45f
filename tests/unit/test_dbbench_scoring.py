"""The comparison of answers: every equality that the specification lists, and no code execution."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.tasks.dbbench.scoring import MAX_LITERAL, normalise, same_answer, to_list


@pytest.mark.parametrize(
    ("answer", "label", "same"),
    [
        # verified against the reference (spec/tasks.md §2)
        (["0"], ["none"], True),
        (["10%"], ["10"], True),
        (["a", "a"], ["a"], True),
        (["1.0", "a"], ["1", "a"], False),
        ([], ["none"], False),
        (["A"], ["a"], False),
        # one value each
        (["x"], ["x"], True),
        ([" 'x' "], ["x"], True),
        (['"x"'], ["'x'"], True),
        (["1,234"], ["1234.0"], True),
        (["New York, NY"], ["New York NY"], True),
        (["5"], ["5.01"], True),
        (["5"], ["5.011"], False),
        (["0.001"], ["0.01"], True),
        (["None"], ["NULL"], True),
        (["nan"], ["inf"], True),
        (["undefined"], [""], True),
        (["0.0"], ["none"], True),
        (["1e1"], ["10"], True),
        (["10%"], ["10 %"], True),
        (["a%"], ["a"], True),
        (["%a"], ["a"], False),
        (None, ["0"], True),
        (None, ["1"], False),
        (["12 kg"], ["12"], False),
        # several values
        (["1", "2"], ["2.0", "1.0"], True),
        (["1", "2"], ["1", "2.02"], False),
        (["1", "1"], ["1", "2"], False),
        (["1", "1"], ["1"], False),
        (["1"], ["1", "1"], False),
        (["b", "a"], ["a", "b"], True),
        (["a"], ["a", "b"], False),
        (["a", "b", "a"], ["b", "a"], True),
        (["none", "a"], ["0", "a"], True),
        ([], [], True),
        # a string that looks like a list is read as a literal
        ("[1, 2]", ["2", "1"], True),
        ("['a', 'b']", ["b", "a"], True),
        ("[('a',), (1,)]", ["a", "1"], True),
        ("[1, 2", ["1", "2"], False),
        ("[oops]", ["oops"], False),
        ("x", ["x"], True),
    ],
)
def test_equalities(answer: Any, label: Any, same: bool) -> None:
    assert same_answer(answer, label) is same


def test_nothing_is_evaluated() -> None:
    hit: list[int] = []
    for text in ("[__import__('os').system('true')]", "[hit.append(1)]", "[exit()]", "[1+1]"):
        assert to_list(text) == [normalise(text)]
    assert hit == []


def test_long_and_deep_literals_are_plain_text() -> None:
    long = "[" + "1," * MAX_LITERAL + "]"
    assert to_list(long) == [normalise(long)]
    deep = "[" * 4000 + "]" * 4000
    assert to_list(deep) == [normalise(deep)]


@given(st.lists(st.text(max_size=8), min_size=1, max_size=5))
def test_an_answer_is_itself_in_any_order(values: list[str]) -> None:
    assert same_answer(values, values)
    assert same_answer(values[::-1], values)


@given(st.lists(st.text(max_size=8), max_size=4), st.lists(st.text(max_size=8), max_size=4))
def test_sameness_of_texts_has_no_side(a: list[str], b: list[str]) -> None:
    assert same_answer(a, b) == same_answer(b, a)


@given(st.floats(-1e6, 1e6), st.floats(-0.009, 0.009))
def test_a_number_within_the_tolerance_counts(value: float, error: float) -> None:
    assert same_answer([repr(value + error)], [repr(value)])

"""The regular expressions of the embedded database, against Python's `re` where the two mean the same."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.tasks.dbbench.mysql_semantics.errors import SqlError
from agentrl.tasks.dbbench.mysql_semantics.regex import MAX_PROGRAM, compile_regex


def spans(pattern: str, text: str) -> list[tuple[int, ...]]:
    return [tuple(slots) for slots in compile_regex(pattern).finditer(text, 0, lambda n: None)]


def python_spans(pattern: str, text: str) -> list[tuple[int, ...]]:
    compiled = re.compile(pattern, re.IGNORECASE)
    out = []
    at = 0
    while at <= len(text) and (match := compiled.search(text, at)):
        out.append(tuple(n for group in range(compiled.groups + 1) for n in match.span(group)))
        at = match.end() if match.end() > match.start() else match.end() + 1
    return out


ATOMS = st.sampled_from(
    ["a", "b", "c", ".", "[ab]", "[^a]", "\\d", "\\w", "1", "^", "$", "\\b", "-"]
)


def combine(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    quantifier = st.sampled_from(["*", "+", "?", "{1,2}", "{2}", "*?", "+?", "??"])
    return (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda p: f"(?:{p[0]}|{p[1]})")
        | inner.map(lambda p: f"({p})")
        | st.tuples(
            st.sampled_from(["a", "b", ".", "[ab]", "(?:ab|a)", "(?:b|c1)"]), quantifier
        ).map("".join)
    )


@settings(max_examples=400, deadline=None)
@given(st.recursive(ATOMS, combine, max_leaves=6), st.text("abcAB1-\n", max_size=12))
def test_matches_are_those_of_python(pattern: str, text: str) -> None:
    assert spans(pattern, text) == python_spans(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "errno"),
    [
        ("", 3685), ("(", 3691), (")", 3691), ("a)", 3691), ("[a", 3696), ("[z-a]", 3697),
        ("a{2,1}", 3693), ("a{x}", 3692), ("*a", 3688), ("\\", 3689), ("(?=a)", 3690),
        ("(a)\\1", 3690), ("a++", 3690), ("[[:nope:]]", 3685), ("(((a{50}){50}){50})", 3700),
        ("(" * 60 + ")" * 60, 3700),
    ],
)  # fmt: skip
def test_broken_patterns_have_mysqls_numbers(pattern: str, errno: int) -> None:
    with pytest.raises(SqlError) as caught:
        compile_regex(pattern)
    assert caught.value.errno == errno


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(a*)*b", "(.*.*.*)=x", "(a?){30}a{30}"])
def test_work_is_linear_in_the_text(pattern: str) -> None:
    regex = compile_regex(pattern)
    assert len(regex.program) <= MAX_PROGRAM
    work = []
    for length in (200, 400):
        charges: list[int] = []
        regex.search("a" * length + "!", 0, charges.append)
        work.append(sum(charges))
    assert work[1] <= 2.2 * work[0]
    assert work[1] <= 401 * (len(regex.program) + 1)

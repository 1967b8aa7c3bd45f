"""PDDL reading, and queries against a naive evaluator (property tests)."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.errors import DataError
from agentrl.tasks.alfworld.pddl import (
    Query,
    compile_formula,
    leaves,
    read,
    read_problem,
    sections,
    type_predicate,
    typed_list,
)


def test_reading_lowers_case_and_drops_comments() -> None:
    assert read("(Define ; (a comment)\n (A (b C)) d)") == ("define", ("a", ("b", "c")), "d")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(a (b)", "1 '\\)' missing"),
        ("(a))", "one '\\)' too many"),
        ("a", "expected one"),
        ("", "expected one"),
    ],
)
def test_unreadable_text_is_refused(text: str, why: str) -> None:
    with pytest.raises(DataError, match=why):
        read(text)


def test_typed_lists() -> None:
    assert typed_list(("a", "b", "-", "t", "c", "-", "u", "d")) == {
        "a": "t", "b": "t", "c": "u", "d": "object",
    }  # fmt: skip
    with pytest.raises(DataError, match="without a type"):
        typed_list(("a", "-"))


def test_a_problem_keeps_facts_and_drops_numbers_and_negations() -> None:
    problem = read_problem(
        "(define (problem p) (:domain d) (:objects a b - thing) "
        "(:init (= (total-cost) 0) (= (distance a b) 3) (not (p b)) (p A) (q a b)) (:goal (p b)))"
    )
    assert problem.types == {"a": "thing", "b": "thing"}
    assert problem.init == (("p", "a"), ("q", "a", "b"))
    assert problem.goal == ("p", "b")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(define (:objects a) (:init (p a)))", "section \\(:goal"),
        ("(define (:objects a) (:init (p b)) (:goal (p a)))", "'b', not in"),
        ("(define (:objects a) (:init (p (a))) (:goal (p a)))", "not an atom"),
        ("(define (:objects a) (:init x) (:goal (p a)))", "not a fact"),
        ("(define (:objects a) (:init) (:goal (p a) (p a)))", "one formula"),
    ],
)
def test_problem_errors_name_the_fault(text: str, why: str) -> None:
    with pytest.raises(DataError, match=why):
        read_problem(text)


def test_distinct_variables_take_distinct_objects() -> None:
    facts = {"p": {("a",)}, "q": {("a", "b"), ("a", "a")}}
    query = Query((("q", "?x", "?y"),), distinct=True)
    assert list(query.solutions(facts, {})) == [{"?x": "a", "?y": "b"}]
    assert not Query((("p", "?x"),), distinct=True).holds(facts, {"?z": "a"})
    assert Query((("p", "?x"),)).holds(facts, {"?z": "a"})


def test_solutions_come_in_the_order_of_the_facts() -> None:
    facts = {"p": {("c",), ("a",), ("b",)}}
    found = Query((("p", "?x"),)).solutions(facts, {}, ordered=True)
    assert [one["?x"] for one in found] == ["a", "b", "c"]


UNIVERSE = {"a": "t", "b": "t", "c": "u"}
ATOMS = [("p",), ("q",), ("r", "s")]


def naive(formula, facts, env) -> bool:
    """The textbook semantics, by enumeration."""
    if formula == ():
        return True
    head, *rest = formula
    if head == "and":
        return all(naive(part, facts, env) for part in rest)
    if head == "or":
        return any(naive(part, facts, env) for part in rest)
    if head == "not":
        return not naive(rest[0], facts, env)
    if head == "=":
        return env.get(rest[0], rest[0]) == env.get(rest[1], rest[1])
    if head in ("exists", "forall"):
        variables = typed_list(rest[0])
        pools = [[o for o, t in UNIVERSE.items() if t == kind] for kind in variables.values()]
        tried = (
            naive(rest[1], facts, {**env, **dict(zip(variables, values, strict=True))})
            for values in product(*pools)
        )
        return any(tried) if head == "exists" else all(tried)
    return tuple(env.get(x, x) for x in rest) in facts.get(head, ())


def formulas(scope: tuple[str, ...], depth: int) -> st.SearchStrategy:
    terms = st.sampled_from([*UNIVERSE, *scope])
    leaf = st.one_of(
        st.tuples(st.sampled_from(["p", "q"]), terms),
        st.tuples(st.just("r"), terms, terms),
        st.tuples(st.just("="), terms, terms),
    )
    if depth == 0:
        return leaf
    inner = formulas(scope, depth - 1)

    def quantified(name: str) -> st.SearchStrategy:
        return st.tuples(
            st.sampled_from(["exists", "forall"]),
            st.sampled_from(["t", "u"]).map(lambda kind: (name, "-", kind)),
            formulas((*scope, name), depth - 1),
        )

    return st.one_of(
        leaf,
        st.lists(inner, max_size=3).map(lambda parts: ("and", *parts)),
        st.lists(inner, min_size=1, max_size=2).map(lambda parts: ("or", *parts)),
        inner.map(lambda part: ("not", part)),
        quantified("?x"),
        quantified("?y"),
    )


@settings(max_examples=300, deadline=None)
@given(
    formulas((), 3),
    st.fixed_dictionaries(
        {
            "p": st.sets(st.tuples(st.sampled_from("abc"))),
            "q": st.sets(st.tuples(st.sampled_from("abc"))),
            "r": st.sets(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"))),
        }
    ),
)
def test_compiled_goals_agree_with_enumeration(formula, facts) -> None:
    typed = {type_predicate(t): {(o,) for o, k in UNIVERSE.items() if k == t} for t in "tu"}
    assert compile_formula(formula).holds({**facts, **typed}, {}) == naive(formula, facts, {})


@pytest.mark.parametrize(
    ("formula", "why"),
    [
        ("p", "not a formula"),
        (("=", "a"), "wrong number"),
        (("not", ("p",), ("q",)), "wrong number"),
        (("exists", "?x", ("p", "?x")), "variable list"),
        (("imply", ("p",), ("q",)), "cannot read"),
        (("p", ("q", "a")), "not an atom"),
    ],
)
def test_goals_that_cannot_be_read_are_refused(formula, why: str) -> None:
    with pytest.raises(DataError, match=why):
        compile_formula(formula)


def test_leaves_are_all_atoms_of_a_formula() -> None:
    formula = (
        "and",
        ("exists", ("?x", "-", "t"), ("p", "?x")),
        ("not", ("=", "a", "b")),
        ("q", "a"),
    )
    assert list(leaves(formula)) == [("p", "?x"), ("q", "a")]


def test_sections() -> None:
    assert sections(read("(define (domain d) (:init (p)) (:goal (q)))"))[":init"] == (("p",),)

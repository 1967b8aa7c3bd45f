"""Reads PDDL: nested lists, the parts of a problem, and queries over facts.

Names are lower-cased, as the reference planner does. A `Query` is a conjunction of atoms in which
names that begin with `?` are variables; it serves the goal and the conditions of the grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from agentrl.errors import DataError

Expression: TypeAlias = "str | tuple[Expression, ...]"
Atom: TypeAlias = tuple[str, ...]
"""A predicate and its arguments: `("opened", "fridge_bar_1")`."""
Facts: TypeAlias = Mapping[str, Collection[tuple[str, ...]]]
"""Predicate -> the argument tuples for which it holds."""
Binding: TypeAlias = dict[str, str]
Test: TypeAlias = Callable[[Facts, Binding], bool]

_TOKEN = re.compile(r"[()]|[^\s()]+")
_COMMENT = re.compile(r";[^\n]*")


def read(text: str) -> tuple[Expression, ...]:
    """The one list that `text` holds, as nested tuples of lower-case names."""
    stack: list[list[Expression]] = [[]]
    for token in _TOKEN.findall(_COMMENT.sub("", text).lower()):
        if token == "(":
            stack.append([])
        elif token != ")":
            stack[-1].append(token)
        elif len(stack) == 1:
            raise DataError("unbalanced parentheses: one ')' too many")
        else:
            done = tuple(stack.pop())
            stack[-1].append(done)
    if len(stack) != 1:
        raise DataError(f"unbalanced parentheses: {len(stack) - 1} ')' missing")
    if len(stack[0]) != 1 or isinstance(stack[0][0], str):
        raise DataError("expected one (define ...) list")
    return stack[0][0]


def typed_list(items: Sequence[Expression]) -> dict[str, str]:
    """`a b - t c - u` as name -> type; a name without a type is of type `object`."""
    out: dict[str, str] = {}
    pending: list[str] = []
    names = iter(items)
    for item in names:
        if not isinstance(item, str):
            raise DataError("expected a name, found a list")
        if item == "-":
            kind = next(names, None)
            if not isinstance(kind, str):
                raise DataError("'-' without a type after it")
            out.update(dict.fromkeys(pending, kind))
            pending = []
        else:
            pending.append(item)
    out.update(dict.fromkeys(pending, "object"))
    return out


def sections(expression: Sequence[Expression]) -> dict[str, tuple[Expression, ...]]:
    """The `(:keyword ...)` parts of a define list; of several with one keyword the last."""
    return {
        str(part[0]): part[1:] for part in expression if isinstance(part, tuple) and len(part) > 0
    }


@dataclass(frozen=True, slots=True)
class Problem:
    """`types`: object -> type. `init`: the atoms that hold at the start. `goal`: as written."""

    types: Mapping[str, str]
    init: tuple[Atom, ...]
    goal: Expression


def read_problem(text: str) -> Problem:
    """Numeric facts (`(= (distance a b) 3)`) and negated ones are left out: neither is played."""
    parts = sections(read(text))
    for needed in (":objects", ":init", ":goal"):
        if needed not in parts:
            raise DataError(f"section ({needed} ...) is missing")
    types = typed_list(parts[":objects"])
    init: list[Atom] = []
    for fact in parts[":init"]:
        if not isinstance(fact, tuple) or not fact:
            raise DataError(f"(:init ...) holds {fact!r}, not a fact")
        if fact[0] in ("=", "not"):
            continue
        init.append(_atom(fact))
        for name in fact[1:]:
            if name not in types:
                raise DataError(f"fact {show(fact)} names {name!r}, not in (:objects ...)")
    if len(parts[":goal"]) != 1:
        raise DataError("(:goal ...) must hold one formula")
    return Problem(types, tuple(init), parts[":goal"][0])


def show(expression: Expression) -> str:
    if isinstance(expression, str):
        return expression
    return f"({' '.join(map(show, expression))})"


def _atom(expression: Expression) -> Atom:
    if isinstance(expression, str) or not all(isinstance(part, str) for part in expression):
        raise DataError(f"{show(expression)} is not an atom")
    return tuple(str(part) for part in expression)


@dataclass(frozen=True, slots=True)
class Query:
    """`atoms` must all hold and every test must pass; `distinct`: no object for two variables."""

    atoms: tuple[Atom, ...]
    tests: tuple[Test, ...] = ()
    distinct: bool = False

    def solutions(self, facts: Facts, binding: Binding, ordered: bool = False) -> Iterator[Binding]:
        """Every extension of `binding` that satisfies the query; `ordered`: by sorted facts."""
        return self._extend(facts, binding, 0, ordered)

    def holds(self, facts: Facts, binding: Binding) -> bool:
        return next(self._extend(facts, binding, 0, False), None) is not None

    def _extend(self, facts: Facts, binding: Binding, at: int, ordered: bool) -> Iterator[Binding]:
        if at == len(self.atoms):
            if all(test(facts, binding) for test in self.tests):
                yield binding
            return
        predicate, *terms = self.atoms[at]
        known = facts.get(predicate, ())
        pattern = tuple([binding.get(term, term) for term in terms])
        free = [i for i, term in enumerate(pattern) if term[0] == "?"]
        if not free:
            if pattern in known:
                yield from self._extend(facts, binding, at + 1, ordered)
            return
        matches = _matching(known, pattern, free)
        for fact in sorted(matches) if ordered and len(matches) > 1 else matches:
            new = {pattern[i]: fact[i] for i in free}
            if len(new) < len(free) and any(new[pattern[i]] != fact[i] for i in free):
                continue
            if self.distinct and _clash(new, binding):
                continue
            yield from self._extend(facts, {**binding, **new}, at + 1, ordered)


def _matching(
    known: Collection[tuple[str, ...]], pattern: tuple[str, ...], free: list[int]
) -> list[tuple[str, ...]]:
    """The facts that agree with `pattern` where it is bound; this is the engine's inner loop."""
    bound = [i for i in range(len(pattern)) if i not in free]
    if not bound:
        return list(known)
    if len(bound) == 1:
        at, value = bound[0], pattern[bound[0]]
        return [fact for fact in known if fact[at] == value]
    return [fact for fact in known if all(fact[i] == pattern[i] for i in bound)]


def _clash(new: Binding, binding: Binding) -> bool:
    values = list(new.values())
    return len(set(values)) < len(values) or any(value in binding.values() for value in values)


def compile_formula(formula: Expression) -> Query:
    """A query that holds exactly where `formula` does (and, or, not, exists, forall, =, atoms).

    Nested `and` and `exists` become one conjunction, its atoms ordered so that each binds as few
    new variables as may be; that keeps the goal test at some microseconds.
    """
    return _Compiler().query(formula, {})


class _Compiler:
    """Counts the scopes of one formula, so that renamed variables cannot clash."""

    def __init__(self) -> None:
        self.scopes = count(1)

    def query(self, formula: Expression, names: Mapping[str, str]) -> Query:
        atoms: list[Atom] = []
        tests: list[Test] = []
        self._add(formula, names, atoms, tests)
        return Query(tuple(_order(atoms)), tuple(tests))

    def _add(
        self, formula: Expression, names: Mapping[str, str], atoms: list[Atom], tests: list[Test]
    ) -> None:
        """Add `formula` to one conjunction; `names` gives the variables in scope."""
        if formula == ():
            return
        if isinstance(formula, str):
            raise DataError(f"goal: {formula!r} is not a formula")
        head, *rest = formula
        if len(rest) != {"=": 2, "not": 1}.get(str(head), len(rest)):
            raise DataError(f"goal: {show(formula)} has the wrong number of parts")
        if head == "and":
            for part in rest:
                self._add(part, names, atoms, tests)
        elif head == "exists":
            variables, body = _quantified(formula)
            scope = next(self.scopes)
            inner = {**names, **{name: f"{name}#{scope}" for name in variables}}
            atoms += [(type_predicate(kind), inner[name]) for name, kind in variables.items()]
            self._add(body, inner, atoms, tests)
        elif head == "=":
            left, right = (names.get(str(term), str(term)) for term in rest)
            tests.append(lambda facts, b: b.get(left, left) == b.get(right, right))
        elif head == "or":
            options = [self.query(part, names) for part in rest]
            tests.append(lambda facts, b: any(option.holds(facts, b) for option in options))
        elif head == "not":
            inside = self.query(rest[0], names)
            tests.append(lambda facts, b: not inside.holds(facts, b))
        elif head == "forall":
            variables, body = _quantified(formula)
            listing = tuple(x for name, kind in variables.items() for x in (name, "-", kind))
            exception = self.query(("exists", listing, ("not", body)), names)
            tests.append(lambda facts, b: not exception.holds(facts, b))
        elif isinstance(head, tuple) or head in ("imply", "when"):
            raise DataError(f"goal: cannot read {show(formula)}")
        else:
            atom = _atom(formula)
            atoms.append((atom[0], *(names.get(term, term) for term in atom[1:])))


def leaves(formula: Expression) -> Iterator[Atom]:
    """Every atom of a formula, its variables as written."""
    if isinstance(formula, tuple) and formula:
        head = formula[0]
        if head in ("and", "or", "not"):
            for part in formula[1:]:
                yield from leaves(part)
        elif head in ("exists", "forall"):
            yield from leaves(formula[-1])
        elif head != "=":
            yield _atom(formula)


def _quantified(formula: tuple[Expression, ...]) -> tuple[dict[str, str], Expression]:
    if len(formula) != 3 or isinstance(formula[1], str):
        raise DataError(f"goal: {show(formula)} needs a variable list and a formula")
    return typed_list(formula[1]), formula[2]


def type_predicate(kind: str) -> str:
    """The predicate that holds for the objects of one type; no PDDL name begins with a colon."""
    return f":{kind}"


def _order(atoms: Sequence[Atom]) -> list[Atom]:
    """Greedy join order: fewest unbound variables first, type tests as late as may be."""
    left, out, bound = list(atoms), list[Atom](), set[str]()

    def cost(atom: Atom) -> tuple[int, bool, int]:
        free = {term for term in atom[1:] if term[0] == "?" and term not in bound}
        return len(free), atom[0][0] == ":", -len(atom)

    while left:
        best = min(left, key=cost)
        left.remove(best)
        out.append(best)
        bound.update(term for term in best[1:] if term[0] == "?")
    return out

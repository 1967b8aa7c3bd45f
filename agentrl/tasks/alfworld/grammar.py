"""Reads a game's grammar (`.twl2`) and derives the texts of the game from it.

The texts are the game's own, so both command languages (AgentBench's and alfworld>=0.4's) and any
later one are played from the file alone. Expressions in braces are read by a parser of three
rules, never evaluated as code (invariant 10).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Protocol, TypeAlias

from agentrl.errors import DataError
from agentrl.tasks.alfworld.pddl import Binding, Facts, Query


class Named(Protocol):
    """What a text may say of an entity."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Field:
    variable: str
    attribute: str


@dataclass(frozen=True, slots=True)
class Value:
    """`a + b or c`: the first alternative whose concatenation is not empty."""

    alternatives: tuple[tuple[str | Field, ...], ...]


@dataclass(frozen=True, slots=True)
class Call:
    rule: str


@dataclass(frozen=True, slots=True)
class Each:
    """`{item | query}`: the item once for every solution; `listed` joins them as an English list."""

    item: Value | Call
    query: Query | None
    listed: bool


Symbol: TypeAlias = "str | Call | Each"


@dataclass(frozen=True, slots=True)
class Production:
    condition: Query | None
    symbols: tuple[Symbol, ...]


@dataclass(frozen=True, slots=True)
class ActionText:
    """How one action is written as a command and answered."""

    template: tuple[Symbol, ...]
    feedback: tuple[Symbol, ...]


@dataclass(frozen=True, slots=True)
class Grammar:
    rules: Mapping[str, tuple[Production, ...]]
    actions: Mapping[str, ActionText]

    def queries(self) -> Iterator[Query]:
        """Every condition on facts, for checks at load."""
        texts = [one.template + one.feedback for one in self.actions.values()]
        for production in chain.from_iterable(self.rules.values()):
            texts.append(production.symbols)
            if production.condition is not None:
                yield production.condition
        for symbol in chain.from_iterable(texts):
            if isinstance(symbol, Each) and symbol.query is not None:
                yield symbol.query

    def derive(
        self,
        symbols: tuple[Symbol, ...],
        facts: Facts,
        entities: Mapping[str, Named],
        binding: Binding,
    ) -> str:
        """The text of `symbols` where the variables (`?r`) of `binding` stand for entities."""
        out: list[str] = []
        for symbol in symbols:
            if isinstance(symbol, str):
                out.append(symbol)
            elif isinstance(symbol, Call):
                out.append(
                    self.derive(self._choose(symbol, facts, binding), facts, entities, binding)
                )
            else:
                out.append(self._each(symbol, facts, entities, binding))
        return "".join(out)

    def _choose(self, call: Call, facts: Facts, binding: Binding) -> tuple[Symbol, ...]:
        for production in self.rules.get(call.rule, ()):
            if production.condition is None or production.condition.holds(facts, binding):
                return production.symbols
        raise DataError(f"no rule '{call.rule}' applies")

    def _each(
        self, each: Each, facts: Facts, entities: Mapping[str, Named], binding: Binding
    ) -> str:
        bindings = (
            [binding] if each.query is None else each.query.solutions(facts, binding, ordered=True)
        )
        items = []
        for one in bindings:
            if isinstance(each.item, Call):
                items.append(self.derive((each.item,), facts, entities, one))
            else:
                items.append(self._value(each.item, entities, one))
        if not each.listed:
            return "".join(items)
        if not items:
            return self.derive((Call("list_empty"),), facts, entities, binding)
        if len(items) == 1:
            return items[0]
        comma = self.derive((Call("list_separator"),), facts, entities, binding)
        last = self.derive((Call("list_last_separator"),), facts, entities, binding)
        return comma.join(items[:-1]) + last + items[-1]

    def _value(self, value: Value, entities: Mapping[str, Named], binding: Binding) -> str:
        text = ""
        for parts in value.alternatives:
            text = "".join(
                [p if isinstance(p, str) else self._field(p, entities, binding) for p in parts]
            )
            if text:
                break
        return text

    def _field(self, field: Field, entities: Mapping[str, Named], binding: Binding) -> str:
        if field.attribute == "indefinite":
            return "a"
        if field.attribute == "definite":
            return "the"
        entity = entities.get(binding.get(f"?{field.variable}", ""))
        if entity is None:
            raise DataError(f"variable '{field.variable}' is not bound")
        return entity.id if field.attribute == "id" else entity.name


_TWL2 = re.compile(
    r'\s+|#[^\n]*|"""(?P<block>.*?)"""|"(?P<text>[^"]*)"|(?P<word>::|[{};]|[\w/-]+)', re.S
)


def read_grammar(text: str) -> Grammar:
    """The grammar of one game: `grammar :: ...` blocks and `action Name { ... }` entries."""
    words = _tokens(text)
    rules: dict[str, list[Production]] = {}
    actions: dict[str, ActionText] = {}
    at = 0

    def take(kind: str) -> str:
        nonlocal at
        if at == len(words) or words[at][0] != kind:
            found = "the end" if at == len(words) else repr(words[at][1][:40])
            raise DataError(f"expected a {kind}, found {found}")
        at += 1
        return words[at - 1][1]

    def expect(word: str) -> None:
        found = take("word")
        if found != word:
            raise DataError(f"expected '{word}', found '{found}'")

    while at < len(words):
        keyword = take("word")
        if keyword == "grammar":
            expect("::")
            _add_rules(take("block"), rules)
            expect(";")
        elif keyword == "action":
            name = take("word")
            expect("{")
            texts = {"template": "", "feedback": ""}
            while (part := take("word")) != "}":
                expect("::")
                if part in texts:
                    texts[part] = take("text")
                elif part == "grammar":
                    _add_rules(take("block"), rules)
                elif part == "pddl":
                    take("block")
                else:
                    raise DataError(f"action {name} has an unknown part '{part}'")
                expect(";")
            actions[name.lower()] = ActionText(
                symbols(texts["template"], whole=True), symbols(texts["feedback"])
            )
        else:
            raise DataError(f"expected 'grammar' or 'action', found '{keyword}'")
    return Grammar({name: tuple(found) for name, found in rules.items()}, actions)


def _tokens(text: str) -> list[tuple[str, str]]:
    out, at = list[tuple[str, str]](), 0
    while at < len(text):
        match = _TWL2.match(text, at)
        if match is None:
            line = text.count("\n", 0, at) + 1
            raise DataError(f"line {line}: cannot read {text[at : at + 30]!r}")
        at = match.end()
        if match.lastgroup is not None:
            out.append((match.lastgroup, match[match.lastgroup]))
    return out


def _add_rules(block: str, rules: dict[str, list[Production]]) -> None:
    live = "\n".join(line for line in block.split("\n") if not line.lstrip().startswith("#"))
    try:
        data = json.loads(live)
        for name, productions in data.items():
            rules.setdefault(name, []).extend(
                Production(
                    query(one["condition"]) if one.get("condition") else None,
                    symbols(one["rhs"]),
                )
                for one in productions
            )
    except json.JSONDecodeError as error:
        raise DataError(f"a rule block is not valid JSON: {error}") from None
    except (AttributeError, KeyError, TypeError):
        raise DataError('a rule must read "name": [{"rhs": "...", "condition": "..."}]') from None


_SYMBOL = re.compile(
    r"(?P<open>\[?)\{\s*(?:#(?P<call>[^#]+)#|(?P<value>[^|\[\]{}\n<>]+?))\s*(?:\|(?P<query>[^;|{}\n\[\]#]+))?\}(?P<close>\]?)"
    r"|#(?P<rule>[\w()/!<>\-\s,.]+)#"
    r"|(?P<text>[^\[\]#{}]+)"
)


@lru_cache(maxsize=4096)
def symbols(text: str, whole: bool = False) -> tuple[Symbol, ...]:
    """The symbols of one right-hand side, read as the reference reads it.

    White space at its start is dropped, and reading stops where nothing fits (or, for a text that
    must be read `whole`, is refused there).
    """
    text = text.lstrip()
    out: list[Symbol] = []
    at = 0
    while (match := _SYMBOL.match(text, at)) is not None:
        at = match.end()
        if match["text"] is not None:
            out.append(match["text"].replace("\\n", "\n"))
        elif match["rule"] is not None:
            out.append(Call(match["rule"]))
        elif bool(match["open"]) != bool(match["close"]):
            raise DataError(f"unbalanced brackets in {text!r}")
        else:
            item = Call(match["call"]) if match["call"] else value(match["value"])
            asked = query(match["query"]) if match["query"] else None
            out.append(Each(item, asked, listed=bool(match["open"])))
    if whole and at < len(text):
        raise DataError(f"cannot read {text[at:]!r} in {text!r}")
    return tuple(out)


_PART = re.compile(r"\s*(?:'(?P<literal>[^']*)'|(?P<variable>\w+)(?:\.(?P<attribute>\w+))?)\s*")


def value(text: str) -> Value:
    """`r.name or r.id`, `o.indefinite + ' ' + o.name`, `o`: entity attributes and quoted text."""
    alternatives = []
    for alternative in re.split(r"\bor\b", text):
        parts: list[str | Field] = []
        for part in alternative.split("+"):
            match = _PART.fullmatch(part)
            if match is None or match["attribute"] not in (
                None,
                "name",
                "id",
                "indefinite",
                "definite",
            ):
                raise DataError(f"cannot read the expression {text!r}")
            if match["literal"] is not None:
                parts.append(match["literal"])
            else:
                parts.append(Field(match["variable"], match["attribute"] or "name"))
        alternatives.append(tuple(parts))
    return Value(tuple(alternatives))


_ATOM = re.compile(r"\s*(\w+)\(([^()]*)\)\s*")


@lru_cache(maxsize=1024)
def query(text: str) -> Query:
    """`openable(r:receptacle) & opened(r:receptacle)` as a query over `?r`."""
    atoms = []
    for part in text.split("&"):
        match = _ATOM.fullmatch(part)
        if match is None:
            raise DataError(f"cannot read the condition {text!r}")
        names = [name.split(":")[0].strip() for name in match[2].split(",") if name.strip()]
        atoms.append((match[1], *(f"?{name}" for name in names)))
    return Query(tuple(atoms), distinct=True)

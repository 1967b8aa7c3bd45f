"""Regular expressions in linear time: an agent's pattern can never hang a worker.

A pattern becomes a small program for Pike's virtual machine, which walks the text once with all
alternatives in step, so the work is at most (program size) × (text length) and is charged to the
statement. The dialect is the common part of MySQL 8 (ICU) and MariaDB (PCRE): literals, classes
with ranges and `[:digit:]` names, groups, alternation, greedy and lazy repetition, anchors, `\\b`.
Look-around and back-references are refused by MySQL's own error number. Case is ignored, accents
are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from agentrl.tasks.dbbench.mysql_semantics.errors import SqlError

MAX_PROGRAM = 2000
MAX_DEPTH = 50

Test = Callable[[str], bool]
Charge = Callable[[int], None]

_CLASSES: dict[str, Test] = {
    "digit": str.isdecimal,
    "alpha": str.isalpha,
    "alnum": str.isalnum,
    "space": str.isspace,
    "blank": lambda c: c in " \t",
    "upper": str.isalpha,
    "lower": str.isalpha,
    "punct": lambda c: c.isprintable() and not c.isalnum() and not c.isspace(),
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
    "cntrl": lambda c: not c.isprintable() and not c.isspace(),
    "print": str.isprintable,
    "graph": lambda c: c.isprintable() and not c.isspace(),
    "word": lambda c: c.isalnum() or c == "_",
}
_ESCAPES: dict[str, str] = {"d": "digit", "w": "word", "s": "space"}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}


def _lower(character: str) -> str:
    lowered = character.lower()
    return lowered if len(lowered) == 1 else character


@dataclass(slots=True)
class _Op:
    """`kind` is char, split, jump, save, start, end, word, not_word or match."""

    kind: str
    test: Test | None = None
    first: int = 0
    second: int = 0


@dataclass(slots=True)
class _Parser:
    """Recursive descent straight into code; a node is a list of ops with relative jumps."""

    pattern: str
    position: int = 0
    groups: int = 0
    depth: int = 0

    def peek(self) -> str:
        return self.pattern[self.position] if self.position < len(self.pattern) else ""

    def take(self) -> str:
        character = self.peek()
        self.position += 1
        return character

    def alternation(self) -> list[_Op]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise SqlError(
                3700, "The regular expression pattern exceeds limits on size or complexity."
            )
        branches = [self.sequence()]
        while self.peek() == "|":
            self.take()
            branches.append(self.sequence())
        self.depth -= 1
        code = branches.pop()
        for branch in reversed(branches):
            code = _checked(
                [_Op("split", first=1, second=len(branch) + 2), *branch,
                 _Op("jump", first=len(code) + 1), *code]
            )  # fmt: skip
        return code

    def sequence(self) -> list[_Op]:
        code: list[_Op] = []
        while self.peek() not in ("", "|", ")"):
            code = _checked(code + self.repetition(self.atom()))
        return code

    def repetition(self, code: list[_Op]) -> list[_Op]:
        while self.peek() and self.peek() in "*+?{":
            bounds = self.bounds()
            if bounds is None:
                break
            low, high = bounds
            lazy = self.peek() == "?"
            if lazy:
                self.take()
            elif self.peek() == "+":
                raise _unimplemented()
            code = _repeat(code, low, high, lazy)
        return code

    def bounds(self) -> tuple[int, int | None] | None:
        character = self.take()
        if character != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
        end = self.pattern.find("}", self.position)
        low, comma, high = self.pattern[self.position : max(end, self.position)].partition(",")
        if end < 0 or not _is_count(low) or not (high == "" or _is_count(high)):
            raise SqlError(3692, "Incorrect description of a {min,max} interval.")
        self.position = end + 1
        if comma and high and int(high) < int(low):
            raise SqlError(3693, "The maximum is less than the minimum in a {min,max} interval.")
        return int(low), (int(low) if not comma else int(high) if high else None)

    def atom(self) -> list[_Op]:
        character = self.take()
        if character == "(":
            return self.group()
        if character == "[":
            return [_Op("char", self.bracket())]
        if character == ".":
            return [_Op("char", lambda c: c not in "\n\r")]
        if character in "^$":
            return [_Op("start" if character == "^" else "end")]
        if character in "*+?{":
            raise SqlError(3688, "Syntax error in regular expression on line 1, character "
                           f"{self.position}.")  # fmt: skip
        if character == "\\":
            return [self.escape()]
        return [_Op("char", _literal(character))]

    def group(self) -> list[_Op]:
        capturing = True
        if self.peek() == "?":
            if not self.pattern.startswith("?:", self.position):
                raise _unimplemented()
            self.position += 2
            capturing = False
        slot = 0
        if capturing:
            self.groups += 1
            slot = 2 * self.groups
        code = self.alternation()
        if self.take() != ")":
            raise SqlError(3691, "Mismatched parenthesis in regular expression.")
        return [_Op("save", first=slot), *code, _Op("save", first=slot + 1)] if capturing else code

    def escape(self) -> _Op:
        character = self.take()
        if character == "":
            raise SqlError(3689, "Unrecognized escape sequence in regular expression.")
        if character in "bB":
            return _Op("word" if character == "b" else "not_word")
        if character.isdigit() or character in "pPkXQER":
            raise _unimplemented()
        return _Op("char", _escape_test(character))

    def bracket(self) -> Test:
        negated = self.peek() == "^"
        if negated:
            self.take()
        tests: list[Test] = []
        first = True
        while True:
            character = self.take()
            if character == "":
                raise SqlError(
                    3696, "The regular expression contains an unclosed bracket expression."
                )
            if character == "]" and not first:
                break
            first = False
            if character == "[" and self.peek() in (":", ".", "="):
                tests.append(self.named_class())
                continue
            if character == "\\":
                character = self.take()
                if character in "dDwWsS":
                    tests.append(_escape_test(character))
                    continue
                character = _CONTROLS.get(character, character)
            if self.peek() == "-" and self.pattern[self.position + 1 : self.position + 2] not in (
                "",
                "]",
            ):
                self.take()
                last = self.take()
                last = self.take() if last == "\\" else last
                if last < character:
                    raise SqlError(
                        3697,
                        "The regular expression contains an [x-y] character range where x comes after y.",
                    )
                tests.append(_range(character, last))
            else:
                tests.append(_literal(character))
        return lambda c: any(test(c) for test in tests) != negated

    def named_class(self) -> Test:
        mark = self.take()
        end = self.pattern.find(mark + "]", self.position)
        name = self.pattern[self.position : max(end, self.position)]
        if end < 0 or mark != ":" or name not in _CLASSES:
            raise SqlError(3685, "Illegal argument to a regular expression.")
        self.position = end + 2
        return _CLASSES[name]


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4


def _literal(character: str) -> Test:
    lowered = _lower(character)
    return lambda c: _lower(c) == lowered


def _range(first: str, last: str) -> Test:
    return lambda c: first <= c <= last or first <= _lower(c) <= last or first <= c.upper() <= last


def _escape_test(character: str) -> Test:
    name = _ESCAPES.get(character.lower())
    if name is None:
        return _literal(_CONTROLS.get(character, character))
    test = _CLASSES[name]
    return (lambda c: not test(c)) if character.isupper() else test


def _unimplemented() -> SqlError:
    return SqlError(
        3690,
        "The regular expression contains a feature that is not implemented in this library version.",
    )


def _checked(code: list[_Op]) -> list[_Op]:
    if len(code) > MAX_PROGRAM:
        raise SqlError(3700, "The regular expression pattern exceeds limits on size or complexity.")
    return code


def _repeat(code: list[_Op], low: int, high: int | None, lazy: bool) -> list[_Op]:
    def split(into: int, past: int) -> _Op:
        return _Op("split", first=past if lazy else into, second=into if lazy else past)

    if len(code) * (high or low + 1) > MAX_PROGRAM:
        raise SqlError(3700, "The regular expression pattern exceeds limits on size or complexity.")
    out = code * low
    if high is None:
        return _checked([*out, split(1, len(code) + 2), *code, _Op("jump", first=-len(code) - 1)])
    optional: list[_Op] = []
    for _ in range(high - low):
        optional = [split(1, len(code) + len(optional) + 1), *code, *optional]
    return _checked(out + optional)


@dataclass(frozen=True, slots=True)
class Regex:
    """A compiled pattern. Spans are (start, end) pairs; group 0 is the whole match."""

    program: tuple[_Op, ...]
    groups: int

    def search(self, text: str, start: int, charge: Charge) -> tuple[int, ...] | None:
        """Slots `(s0, e0, s1, e1, …)` of the leftmost match from `start` on; -1 where unset."""
        program = self.program
        empty = (-1,) * (2 * self.groups + 2)
        threads: list[tuple[int, tuple[int, ...]]] = []
        seen: set[int] = set()
        found: tuple[int, ...] | None = None
        for position in range(start, len(text) + 1):
            if found is None:
                self._add(threads, seen, 0, _set(empty, 0, position), text, position)
            if not threads:
                if found is not None:
                    break
                seen = set()
                continue
            charge(len(threads) + 1)
            character = text[position] if position < len(text) else ""
            following: list[tuple[int, tuple[int, ...]]] = []
            seen = set()
            for at, slots in threads:
                op = program[at]
                if op.kind == "match":
                    found = _set(slots, 1, position)
                    break
                if character and op.test is not None and op.test(character):
                    self._add(following, seen, at + 1, slots, text, position + 1)
            threads = following
        return found

    def _add(
        self,
        threads: list[tuple[int, tuple[int, ...]]],
        seen: set[int],
        at: int,
        slots: tuple[int, ...],
        text: str,
        position: int,
    ) -> None:
        """Follow the ops that take no character, in order of preference."""
        stack = [(at, slots)]
        while stack:
            at, slots = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            op = self.program[at]
            if op.kind == "jump":
                stack.append((at + op.first, slots))
            elif op.kind == "split":
                stack.append((at + op.second, slots))
                stack.append((at + op.first, slots))
            elif op.kind == "save":
                stack.append((at + 1, _set(slots, op.first, position)))
            elif op.kind in ("char", "match"):
                threads.append((at, slots))
            elif _holds(op.kind, text, position):
                stack.append((at + 1, slots))

    def finditer(self, text: str, start: int, charge: Charge) -> Iterator[tuple[int, ...]]:
        while start <= len(text):
            slots = self.search(text, start, charge)
            if slots is None:
                return
            yield slots
            start = slots[1] if slots[1] > slots[0] else slots[1] + 1


def _set(slots: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*slots[:index], value, *slots[index + 1 :])


def _holds(kind: str, text: str, position: int) -> bool:
    if kind == "start":
        return position == 0
    if kind == "end":
        return position == len(text) or (position == len(text) - 1 and text[-1] == "\n")
    word = _CLASSES["word"]
    before = position > 0 and word(text[position - 1])
    after = position < len(text) and word(text[position])
    return (before != after) == (kind == "word")


@lru_cache(maxsize=512)
def compile_regex(pattern: str) -> Regex:
    """Raises `SqlError` (3685-3700) for a pattern that is broken or outside the dialect."""
    if pattern == "":
        raise SqlError(3685, "Illegal argument to a regular expression.")
    parser = _Parser(pattern[4:] if pattern.startswith("(?i)") else pattern)
    code = parser.alternation()
    if parser.position < len(parser.pattern):
        raise SqlError(3691, "Mismatched parenthesis in regular expression.")
    return Regex((*code, _Op("match")), parser.groups)

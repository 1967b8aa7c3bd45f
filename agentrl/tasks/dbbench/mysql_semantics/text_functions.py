"""MySQL's functions on text, LIKE and regular expressions.

Each takes the statement's `Meter` first. No result outgrows `MAX_TEXT`, so that a few nested calls
cannot fill the memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate

from agentrl.tasks.dbbench.mysql_semantics.collation import CACHED, compare, fold
from agentrl.tasks.dbbench.mysql_semantics.errors import SqlError, too_long_result
from agentrl.tasks.dbbench.mysql_semantics.meter import Meter, Value
from agentrl.tasks.dbbench.mysql_semantics.regex import compile_regex

MAX_TEXT = 65_536
"""Characters; MySQL's TEXT holds 65 535 bytes."""


def _bounded(name: str, text: str) -> str:
    if len(text) > MAX_TEXT:
        raise too_long_result(name, MAX_TEXT)
    return text


def _concat(meter: Meter, *parts: str) -> str:
    return _bounded("concat", "".join(parts))


def _concat_ws(meter: Meter, separator: str | None, *parts: str | None) -> str | None:
    if separator is None:
        return None
    return _bounded("concat_ws", separator.join(part for part in parts if part is not None))


def _case(change: Callable[[str], str]) -> Callable[..., str]:
    """Letter by letter, as MySQL does it: `ß` has no upper case of one letter and stays."""

    def call(meter: Meter, text: str) -> str:
        if text.isascii():
            return change(text)
        return "".join(new if len(new := change(c)) == 1 else c for c in text)

    return call


def _substring(meter: Meter, text: str, start: int, length: int | None = None) -> str:
    begin = start - 1 if start > 0 else len(text) + start
    if start == 0 or begin < 0 or (length is not None and length <= 0):
        return ""
    return text[begin:] if length is None else text[begin : begin + length]


def _substring_index(meter: Meter, text: str, delimiter: str, count: int) -> str:
    if not delimiter or count == 0:
        return ""
    parts = text.split(delimiter)
    return delimiter.join(parts[:count] if count > 0 else parts[count:])


def _locate(meter: Meter, needle: str, text: str, start: int = 1) -> int:
    """Position (from 1) of the first piece equal to `needle` by the collation.

    As in MySQL only pieces of the same number of UTF-8 bytes are compared, so `São` is not
    found by `Sao`, although the two are equal.
    """
    if start < 1:
        return 0
    if needle == "":
        return start if start <= len(text) + 1 else 0
    if needle.isascii() and text.isascii():
        return text.lower().find(needle.lower(), start - 1) + 1
    wanted = fold(needle)
    size = len(needle.encode("utf-8", "replace"))
    ends = list(accumulate(len(c.encode("utf-8", "replace")) for c in text))
    ends_at = {end: i + 1 for i, end in enumerate(ends)}
    for i in range(start - 1, len(text)):
        end = ends_at.get((ends[i - 1] if i else 0) + size)
        if end is not None:
            meter.charge(end - i)
            if fold(text[i:end]) == wanted:
                return i + 1
    return 0


def _pad(left: bool) -> Callable[..., str | None]:
    def call(meter: Meter, text: str, length: int, fill: str) -> str | None:
        if length < 0:
            return None
        if length > MAX_TEXT:
            raise too_long_result("lpad" if left else "rpad", MAX_TEXT)
        missing = length - len(text)
        if missing <= 0:
            return text[:length]
        if not fill:
            return None
        padding = (fill * (missing // len(fill) + 1))[:missing]
        return padding + text if left else text + padding

    return call


def _repeat(meter: Meter, text: str, count: int) -> str:
    if count <= 0:
        return ""
    if len(text) * count > MAX_TEXT:
        raise too_long_result("repeat", MAX_TEXT)
    return text * count


def _replace(meter: Meter, text: str, old: str, new: str) -> str:
    if old == "":
        return text
    if len(text) + text.count(old) * (len(new) - len(old)) > MAX_TEXT:
        raise too_long_result("replace", MAX_TEXT)
    return text.replace(old, new)


def _insert(meter: Meter, text: str, start: int, length: int, new: str) -> str:
    if not 1 <= start <= len(text):
        return text
    end = len(text) if length < 0 else start - 1 + length
    return _bounded("insert", text[: start - 1] + new + text[end:])


def _trim(meter: Meter, side: str, text: str, what: str) -> str:
    if not what:
        return text
    while side in ("BOTH", "LEADING") and text.startswith(what):
        text = text[len(what) :]
    while side in ("BOTH", "TRAILING") and text.endswith(what):
        text = text[: -len(what)]
    return text


def _field(meter: Meter, *arguments: str | None) -> int:
    if arguments[0] is None:
        return 0
    wanted = fold(arguments[0])
    for i, other in enumerate(arguments[1:], 1):
        if other is not None and fold(other) == wanted:
            return i
    return 0


def _elt(meter: Meter, index: int | None, *choices: str | None) -> str | None:
    return choices[index - 1] if index is not None and 1 <= index <= len(choices) else None


def _find_in_set(meter: Meter, needle: str, choices: str) -> int:
    if "," in needle or choices == "":
        return 0
    wanted = fold(needle)
    return next((i for i, c in enumerate(choices.split(","), 1) if fold(c) == wanted), 0)


def _ord(meter: Meter, text: str) -> int:
    return int.from_bytes(text[:1].encode("utf-8", "replace"), "big")


def _char(meter: Meter, *codes: int | None) -> str:
    data = b"".join(
        (code & 0xFFFFFFFF).to_bytes(4, "big").lstrip(b"\0") or b"\0"
        for code in codes
        if code is not None
    )
    return data.decode("utf-8", "replace")


def _hex(meter: Meter, value: str | int) -> str:
    if isinstance(value, int):
        return f"{value & (2**64 - 1):X}"
    return value.encode("utf-8", "replace").hex().upper()


def _unhex(meter: Meter, text: str) -> str | None:
    try:
        return bytes.fromhex(text if len(text) % 2 == 0 else "0" + text).decode("utf-8", "replace")
    except ValueError:
        return None


def _quote(meter: Meter, text: str | None) -> str:
    if text is None:
        return "NULL"
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0")
    return "'" + escaped.replace("\x1a", "\\Z") + "'"


def _digest(name: str) -> Callable[..., str]:
    def call(meter: Meter, text: str) -> str:
        return hashlib.new(name, text.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()

    return call


_SOUNDEX = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "01230120022455012623010202", strict=True))


def _soundex(meter: Meter, text: str) -> str:
    out, last = "", ""
    for character in text.upper():
        code = _SOUNDEX.get(character)
        if code is None:
            continue
        if not out:
            out, last = character, code
        elif code != "0":
            out += code if code != last else ""
            last = code
    return out.ljust(4, "0") if out else ""


# -- patterns

ANY, ONE = object(), object()


def _like_parts(pattern: str, escape: str, binary: int) -> tuple[object, ...]:
    """The pattern as single characters (folded unless binary), `ANY` and `ONE`."""
    if len(pattern) <= CACHED:
        return _short_like_parts(pattern, escape, binary)
    return _split_like(pattern, escape, binary)


def _split_like(pattern: str, escape: str, binary: int) -> tuple[object, ...]:
    out: list[object] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape and escape:
            literal = next(characters, escape)
            out.append(literal if binary else fold(literal))
        elif character == "%":
            if not out or out[-1] is not ANY:
                out.append(ANY)
        else:
            out.append(ONE if character == "_" else character if binary else fold(character))
    return tuple(out)


_short_like_parts = lru_cache(maxsize=2048)(_split_like)


def _like(meter: Meter, text: str, pattern: str, escape: str, binary: int) -> int:
    """Two pointers with one point of return: at most len(text) × len(pattern) steps."""
    wanted = _like_parts(pattern, escape, binary)
    subject = text if binary else [fold(c) for c in text]
    at, p, star, mark = 0, 0, -1, 0
    steps = 0
    while at < len(subject):
        steps += 1
        if p < len(wanted) and wanted[p] is ANY:
            star, mark = p, at
            p += 1
        elif p < len(wanted) and (wanted[p] is ONE or wanted[p] == subject[at]):
            p += 1
            at += 1
        elif star >= 0:
            p, mark = star + 1, mark + 1
            at = mark
        else:
            meter.charge(steps)
            return 0
    meter.charge(steps)
    while p < len(wanted) and wanted[p] is ANY:
        p += 1
    return int(p == len(wanted))


def like(text: str, pattern: str) -> bool:
    """`text LIKE pattern` outside a statement."""
    return bool(_like(Meter(10**9), text, pattern, "\\", 0))


def _regexp(meter: Meter, text: str, pattern: str) -> int:
    return int(compile_regex(pattern).search(text, 0, meter.charge) is not None)


def _occurrence(
    meter: Meter, text: str, pattern: str, position: int, occurrence: int
) -> tuple[int, ...] | None:
    if not 1 <= position <= len(text) + 1:
        raise SqlError(3686, "Index out of bounds in regular expression search.")
    matches = compile_regex(pattern).finditer(text, position - 1, meter.charge)
    for i, slots in enumerate(matches, 1):
        if i >= occurrence:
            return slots
    return None


def _regexp_substr(
    meter: Meter, text: str, pattern: str, position: int = 1, occurrence: int = 1
) -> str | None:
    slots = _occurrence(meter, text, pattern, position, occurrence)
    return None if slots is None else text[slots[0] : slots[1]]


def _regexp_instr(
    meter: Meter, text: str, pattern: str, position: int = 1, occurrence: int = 1, after: int = 0
) -> int:
    slots = _occurrence(meter, text, pattern, position, occurrence)
    return 0 if slots is None else slots[1 if after else 0] + 1


def _regexp_replace(
    meter: Meter, text: str, pattern: str, new: str, position: int = 1, occurrence: int = 0
) -> str:
    if text and not 1 <= position <= len(text) + 1:
        raise SqlError(3686, "Index out of bounds in regular expression search.")
    out, last = [text[: position - 1]], position - 1
    matches = compile_regex(pattern).finditer(text, position - 1, meter.charge)
    for i, slots in enumerate(matches, 1):
        if occurrence in (0, i):
            out += [text[last : slots[0]], _expand(new, text, slots)]
            last = slots[1]
    return _bounded("regexp_replace", "".join([*out, text[last:]]))


def _expand(template: str, text: str, slots: tuple[int, ...]) -> str:
    """`$1` (ICU) and `\\1` (MariaDB) both name a group; a backslash makes the next sign literal."""
    out = ""
    i = 0
    while i < len(template):
        character, following = template[i], template[i + 1 : i + 2]
        if character in "$\\" and following.isdecimal():
            group = int(following)
            if 2 * group >= len(slots):
                raise SqlError(3686, "Index out of bounds in regular expression search.")
            out += text[slots[2 * group] : slots[2 * group + 1]] if slots[2 * group] >= 0 else ""
            i += 2
        elif character == "\\" and following:
            out += following
            i += 2
        else:
            out += character
            i += 1
    return out


TEXT_FUNCTIONS: dict[str, tuple[int, Callable[..., Value]]] = {
    "my_concat": (-1, _concat),
    "my_concat_ws": (-1, _concat_ws),
    "my_upper": (1, _case(str.upper)),
    "my_lower": (1, _case(str.lower)),
    "my_substring": (-1, _substring),
    "my_substring_index": (3, _substring_index),
    "my_left": (2, lambda meter, text, n: text[:n] if n > 0 else ""),
    "my_right": (2, lambda meter, text, n: text[-n:] if n > 0 else ""),
    "my_locate": (-1, _locate),
    "my_lpad": (3, _pad(left=True)),
    "my_rpad": (3, _pad(left=False)),
    "my_repeat": (2, _repeat),
    "my_replace": (3, _replace),
    "my_insert": (4, _insert),
    "my_trim": (3, _trim),
    "my_reverse": (1, lambda meter, text: text[::-1]),
    "my_length": (1, lambda meter, text: len(text.encode("utf-8", "replace"))),
    "my_char_length": (1, lambda meter, text: len(text)),
    "my_strcmp": (2, lambda meter, a, b: compare(a, b)),
    "my_field": (-1, _field),
    "my_elt": (-1, _elt),
    "my_find_in_set": (2, _find_in_set),
    "my_ascii": (1, lambda meter, text: (text[:1].encode("utf-8", "replace") or b"\0")[0]),
    "my_ord": (1, _ord),
    "my_char": (-1, _char),
    "my_hex": (1, _hex),
    "my_unhex": (1, _unhex),
    "my_quote": (1, _quote),
    "my_soundex": (1, _soundex),
    "my_md5": (1, _digest("md5")),
    "my_sha1": (1, _digest("sha1")),
    "my_like": (4, _like),
    "my_regexp": (2, _regexp),
    "my_regexp_substr": (-1, _regexp_substr),
    "my_regexp_instr": (-1, _regexp_instr),
    "my_regexp_replace": (-1, _regexp_replace),
}
"""name -> (number of arguments without the meter or -1, function)"""

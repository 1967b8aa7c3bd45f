"""MySQL's dates and times: lenient reading, `STR_TO_DATE`, `DATE_FORMAT`, intervals.

Inside SQLite a DATE is "YYYY-MM-DD", a DATETIME "YYYY-MM-DD HH:MM:SS", a TIME "[-]HH:MM:SS": texts
that sort as the values do. Dates with a zero month or day, which non-strict MySQL can hold, are
read as NULL here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta

NOW = datetime(2024, 1, 1, 12, 0, 0)
"""`NOW()` stands still, so that two runs of an episode see the same (invariant 8)."""

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_DELIMITED = re.compile(
    r"\s*([0-9]{1,4})[^0-9A-Za-z\s]([0-9]{1,2})[^0-9A-Za-z\s]([0-9]{1,2})(?![0-9])"
    r"(?:[T\s]+([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.[0-9]*)?)?)?)?"
)
_PACKED = re.compile(r"\s*([0-9]+)")
_TIME = re.compile(r"\s*(-?)([0-9]{1,3}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.[0-9]*)?)?")


def parse(value: str | int | float) -> datetime | None:
    """A date or date-time as MySQL reads it; None where it reads none."""
    text = str(int(value)) if isinstance(value, (int, float)) else value
    match = _DELIMITED.match(text)
    if match:
        parts = [int(part or 0) for part in match.groups()]
        if len(match.group(1)) <= 2:
            parts[0] = _full_year(parts[0])
        return _make(*parts)
    match = _PACKED.match(text)
    digits = match.group(1) if match else ""
    if len(digits) in (6, 12):
        digits = str(_full_year(int(digits[:2]))) + digits[2:]
    if len(digits) not in (8, 14):
        return None
    clock = [int(digits[i : i + 2]) for i in range(4, len(digits), 2)]
    return _make(int(digits[:4]), *clock)


def _full_year(short: int) -> int:
    return short + (2000 if short < 70 else 1900)


def _make(*parts: int) -> datetime | None:
    try:
        return datetime(*parts)  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return None


def parse_time(value: str | int | float) -> int | None:
    """Seconds of a TIME, or of the clock part of a date-time."""
    text = str(value)
    match = _TIME.match(text)
    if match:
        sign, hours, minutes, seconds = match.groups()
        total = int(hours) * 3600 + int(minutes) * 60 + int(seconds or 0)
        return -total if sign else total
    moment = parse(text)
    return None if moment is None else moment.hour * 3600 + moment.minute * 60 + moment.second


def date_text(moment: datetime | date) -> str:
    return f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"


def datetime_text(moment: datetime) -> str:
    return f"{date_text(moment)} {moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}"


def time_text(seconds: int) -> str:
    sign, rest = ("-", -seconds) if seconds < 0 else ("", seconds)
    return f"{sign}{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def to_number(text: str) -> int:
    """A stored date, date-time or time in arithmetic: its digits run together."""
    digits = int(re.sub(r"[^0-9]", "", text) or 0)
    return -digits if text.startswith("-") else digits


_FORMATS: dict[str, Callable[[datetime], str]] = {
    "Y": lambda d: f"{d.year:04d}",
    "y": lambda d: f"{d.year % 100:02d}",
    "m": lambda d: f"{d.month:02d}",
    "c": lambda d: str(d.month),
    "M": lambda d: MONTHS[d.month - 1],
    "b": lambda d: MONTHS[d.month - 1][:3],
    "d": lambda d: f"{d.day:02d}",
    "e": lambda d: str(d.day),
    "D": lambda d: f"{d.day}{_ordinal(d.day)}",
    "j": lambda d: f"{d.timetuple().tm_yday:03d}",
    "W": lambda d: DAYS[d.weekday()],
    "a": lambda d: DAYS[d.weekday()][:3],
    "w": lambda d: str((d.weekday() + 1) % 7),
    "H": lambda d: f"{d.hour:02d}",
    "k": lambda d: str(d.hour),
    "h": lambda d: f"{(d.hour - 1) % 12 + 1:02d}",
    "I": lambda d: f"{(d.hour - 1) % 12 + 1:02d}",
    "l": lambda d: str((d.hour - 1) % 12 + 1),
    "i": lambda d: f"{d.minute:02d}",
    "s": lambda d: f"{d.second:02d}",
    "S": lambda d: f"{d.second:02d}",
    "f": lambda d: "000000",
    "p": lambda d: "AM" if d.hour < 12 else "PM",
    "T": lambda d: f"{d.hour:02d}:{d.minute:02d}:{d.second:02d}",
    "r": lambda d: (
        f"{(d.hour - 1) % 12 + 1:02d}:{d.minute:02d}:{d.second:02d} {'AM' if d.hour < 12 else 'PM'}"
    ),
    "U": lambda d: f"{week(d, 0):02d}",
    "u": lambda d: f"{week(d, 1):02d}",
    "v": lambda d: f"{d.isocalendar().week:02d}",
    "x": lambda d: f"{d.isocalendar().year:04d}",
}


def _ordinal(day: int) -> str:
    return "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")


def format_date(moment: datetime, pattern: str) -> str:
    """`DATE_FORMAT`; an unknown specifier stands for its own letter."""
    out: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == "%":
            letter = next(characters, "%")
            make = _FORMATS.get(letter)
            out.append(make(moment) if make else letter)
        else:
            out.append(character)
    return "".join(out)


def week(moment: datetime, mode: int) -> int:
    """`WEEK(date, mode)` for modes 0 (weeks start on Sunday) and 1 (on Monday, ISO rule, 0-53)."""
    start = date(moment.year, 1, 1).weekday()
    day = moment.timetuple().tm_yday - 1
    if mode == 0:
        first_sunday = (6 - start) % 7
        return (day - first_sunday) // 7 + 1 if day >= first_sunday else 0
    return (day + start) // 7 + (1 if start <= 3 else 0)


_SPECIFIERS: dict[str, tuple[str, str]] = {
    "Y": ("year", r"[0-9]{1,4}"), "y": ("year2", r"[0-9]{1,2}"),
    "m": ("month", r"[0-9]{1,2}"), "c": ("month", r"[0-9]{1,2}"),
    "d": ("day", r"[0-9]{1,2}"), "e": ("day", r"[0-9]{1,2}"),
    "D": ("day", r"[0-9]{1,2}(?:st|nd|rd|th)"),
    "M": ("name", "|".join(MONTHS)), "b": ("name", "|".join(name[:3] for name in MONTHS)),
    "W": ("", "|".join(DAYS)), "a": ("", "|".join(name[:3] for name in DAYS)),
    "H": ("hour", r"[0-9]{1,2}"), "k": ("hour", r"[0-9]{1,2}"),
    "h": ("hour12", r"[0-9]{1,2}"), "I": ("hour12", r"[0-9]{1,2}"), "l": ("hour12", r"[0-9]{1,2}"),
    "i": ("minute", r"[0-9]{1,2}"), "s": ("second", r"[0-9]{1,2}"), "S": ("second", r"[0-9]{1,2}"),
    "p": ("half", "AM|PM"), "f": ("", r"[0-9]{1,6}"), "j": ("yearday", r"[0-9]{1,3}"),
}  # fmt: skip
_EXPANDED = {"T": "%H:%i:%s", "r": "%h:%i:%s %p"}
TIME_SPECIFIERS = frozenset("HkhIlisSpfTr")
DATE_SPECIFIERS = frozenset("YymcdeDMbWajUuVvXxw")


def format_parts(pattern: str) -> tuple[bool, bool]:
    """(names a date, names a time of day): decides the type that `STR_TO_DATE` returns."""
    letters = set(re.findall(r"%(.)", pattern))
    return bool(letters & DATE_SPECIFIERS), bool(letters & TIME_SPECIFIERS)


def read_date(text: str, pattern: str) -> dict[str, int] | None:
    """The fields that `STR_TO_DATE(text, pattern)` finds; text after the pattern's end is ignored."""
    for letter, expanded in _EXPANDED.items():
        pattern = pattern.replace(f"%{letter}", expanded)
    fields: dict[str, int] = {}
    at, i = 0, 0
    while i < len(pattern):
        character = pattern[i]
        if character == "%" and i + 1 < len(pattern):
            i += 2
            specifier = _SPECIFIERS.get(pattern[i - 1])
            if specifier is None:
                return None
            while at < len(text) and text[at] == " ":
                at += 1
            match = re.compile(specifier[1], re.IGNORECASE).match(text, at)
            if match is None:
                return None
            at = match.end()
            _store(fields, specifier[0], match.group())
        elif character == " ":
            i += 1
            while at < len(text) and text[at] == " ":
                at += 1
        else:
            if text[at : at + 1] != character:
                return None
            at += 1
            i += 1
    return fields


def _store(fields: dict[str, int], name: str, found: str) -> None:
    if name == "name":
        fields["month"] = 1 + [m[:3].lower() for m in MONTHS].index(found[:3].lower())
    elif name == "year2":
        fields["year"] = _full_year(int(found))
    elif name == "half":
        fields["half"] = 12 if found.upper() == "PM" else 0
    elif name:
        fields[name] = int(re.sub(r"[^0-9]", "", found))


def str_to_date(text: str, pattern: str) -> str | None:
    fields = read_date(text, pattern)
    if fields is None:
        return None
    has_date, has_time = format_parts(pattern)
    hour = fields.get("hour", 0)
    if "hour12" in fields:
        hour = fields["hour12"] % 12 + fields.get("half", 0)
    clock = (hour, fields.get("minute", 0), fields.get("second", 0))
    if hour > 23 or clock[1] > 59 or clock[2] > 59:
        return None
    if not has_date:
        return time_text(clock[0] * 3600 + clock[1] * 60 + clock[2])
    year = fields.get("year", 0)
    if "yearday" in fields and year:
        moment = _make(year, 1, 1, *clock)
        moment = moment + timedelta(days=fields["yearday"] - 1) if moment else None
    else:
        moment = _make(year, fields.get("month", 0), fields.get("day", 0), *clock)
    if moment is None:
        return None
    return datetime_text(moment) if has_time else date_text(moment)


UNITS = {
    "MICROSECOND": 0, "SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800,
}  # fmt: skip
MONTH_UNITS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def add(moment: datetime, amount: int, unit: str) -> datetime | None:
    """`moment + INTERVAL amount unit`; the day is cut to the month's last."""
    if unit in MONTH_UNITS:
        months = moment.year * 12 + moment.month - 1 + amount * MONTH_UNITS[unit]
        year, month = divmod(months, 12)
        if not 1 <= year <= 9999:
            return None
        return moment.replace(
            year=year, month=month + 1, day=min(moment.day, last_day(year, month + 1))
        )
    try:
        return moment + timedelta(seconds=amount * UNITS[unit])
    except OverflowError:
        return None


def last_day(year: int, month: int) -> int:
    following = date(year + month // 12, month % 12 + 1, 1) if (year, month) != (9999, 12) else None
    return (following - timedelta(days=1)).day if following else 31


def difference(start: datetime, end: datetime, unit: str) -> int:
    """`TIMESTAMPDIFF(unit, start, end)`: whole units, towards zero."""
    if unit in MONTH_UNITS:
        sign = 1
        if end < start:
            start, end, sign = end, start, -1
        months = (end.year - start.year) * 12 + end.month - start.month
        if (end.day, end.time()) < (start.day, start.time()):
            months -= 1
        return sign * (months // MONTH_UNITS[unit])
    seconds = (end - start) // timedelta(seconds=1)
    size = UNITS[unit] or 1
    return -(-seconds // size) if seconds < 0 else seconds // size

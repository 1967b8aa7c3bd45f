"""MySQL's date functions on SQLite values; `dates` says how dates are stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from agentrl.tasks.dbbench.mysql_semantics import dates
from agentrl.tasks.dbbench.mysql_semantics.meter import Value


def _moment(value: str | int | float) -> str | None:
    moment = dates.parse(value)
    return None if moment is None else dates.datetime_text(moment)


def _date(value: str | int | float) -> str | None:
    moment = dates.parse(value)
    return None if moment is None else dates.date_text(moment)


def _time(value: str | int | float) -> str | None:
    seconds = dates.parse_time(value)
    return None if seconds is None else dates.time_text(seconds)


_PARTS: dict[str, Callable[[Any], int]] = {
    "YEAR": lambda d: d.year,
    "MONTH": lambda d: d.month,
    "DAY": lambda d: d.day,
    "HOUR": lambda d: d.hour,
    "MINUTE": lambda d: d.minute,
    "SECOND": lambda d: d.second,
    "MICROSECOND": lambda d: 0,
    "QUARTER": lambda d: (d.month + 2) // 3,
    "WEEK": lambda d: dates.week(d, 0),
    "WEEKOFYEAR": lambda d: d.isocalendar().week,
    "DAYOFWEEK": lambda d: d.isoweekday() % 7 + 1,
    "WEEKDAY": lambda d: d.weekday(),
    "DAYOFYEAR": lambda d: d.timetuple().tm_yday,
    "YEAR_MONTH": lambda d: d.year * 100 + d.month,
    "TO_DAYS": lambda d: d.toordinal() + 365,
    "UNIX": lambda d: int((d - datetime(1970, 1, 1)).total_seconds()),
}
PARTS = frozenset(_PARTS)


def _date_part(unit: str, value: str | int | float) -> int | None:
    if unit in ("HOUR", "MINUTE", "SECOND"):
        seconds = dates.parse_time(value)
        if seconds is None:
            return None
        clock = (abs(seconds) // 3600, abs(seconds) // 60 % 60, abs(seconds) % 60)
        return clock[("HOUR", "MINUTE", "SECOND").index(unit)]
    moment = dates.parse(value)
    return None if moment is None else _PARTS[unit](moment)


def _date_add(value: str, amount: int, unit: str, as_date: int) -> str | None:
    moment = dates.parse(value)
    if moment is None:
        return None
    later = dates.add(moment, amount, unit)
    if later is None:
        return None
    whole = as_date and unit not in ("HOUR", "MINUTE", "SECOND", "MICROSECOND")
    return dates.date_text(later) if whole else dates.datetime_text(later)


def _is_plain_date(value: str) -> int:
    """Whether text spells a date without a time, which intervals of days keep so."""
    return int(":" not in value and len(value.strip()) <= 10)


def _date_add_text(value: str, amount: int, unit: str) -> str | None:
    return _date_add(value, amount, unit, _is_plain_date(value))


def _date_diff(left: str, right: str) -> int | None:
    a, b = dates.parse(left), dates.parse(right)
    return None if a is None or b is None else (a.date() - b.date()).days


def _timestamp_diff(unit: str, left: str, right: str) -> int | None:
    a, b = dates.parse(left), dates.parse(right)
    return None if a is None or b is None else dates.difference(a, b, unit)


def _date_format(value: str, pattern: str) -> str | None:
    moment = dates.parse(value)
    return None if moment is None else dates.format_date(moment, pattern)


def _name(names: tuple[str, ...], part: str) -> Callable[..., str | None]:
    def call(value: str) -> str | None:
        moment = dates.parse(value)
        if moment is None:
            return None
        return names[moment.month - 1 if part == "month" else moment.weekday()]

    return call


def _last_day(value: str) -> str | None:
    moment = dates.parse(value)
    if moment is None:
        return None
    return dates.date_text(moment.replace(day=dates.last_day(moment.year, moment.month)))


def _make_date(year: int, day: int) -> str | None:
    if day < 1 or not 1 <= year <= 9999:
        return None
    later = dates.add(datetime(year, 1, 1), day - 1, "DAY")
    return None if later is None else dates.date_text(later)


def _from_days(days: int) -> str | None:
    later = dates.add(datetime(1, 1, 1), days - 366, "DAY") if days >= 366 else None
    return None if later is None else dates.date_text(later)


def _from_unixtime(seconds: int) -> str | None:
    later = dates.add(datetime(1970, 1, 1), seconds, "SECOND") if seconds >= 0 else None
    return None if later is None else dates.datetime_text(later)


DATE_FUNCTIONS: dict[str, tuple[int, Callable[..., Value]]] = {
    "my_moment": (1, _moment),
    "my_date": (1, _date),
    "my_time": (1, _time),
    "my_date_number": (1, dates.to_number),
    "my_date_part": (2, _date_part),
    "my_date_add": (4, _date_add),
    "my_date_add_text": (3, _date_add_text),
    "my_date_diff": (2, _date_diff),
    "my_timestamp_diff": (3, _timestamp_diff),
    "my_date_format": (2, _date_format),
    "my_str_to_date": (2, dates.str_to_date),
    "my_day_name": (1, _name(dates.DAYS, "day")),
    "my_month_name": (1, _name(dates.MONTHS, "month")),
    "my_last_day": (1, _last_day),
    "my_make_date": (2, _make_date),
    "my_from_days": (1, _from_days),
    "my_from_unixtime": (1, _from_unixtime),
}
"""name -> (number of arguments, function)"""

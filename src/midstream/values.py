"""Values that every layer uses: times and durations.

Event times are whole microseconds since the Unix epoch, as in Spark. A duration is a count of
microseconds too, so that windows and lateness are compared without rounding.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NewType

from midstream.errors import QueryError, show_value

Micros = NewType("Micros", int)
"""Microseconds: a point in event time, or a duration."""
MICROS_PER_SECOND = 1_000_000
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_UNITS = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "sec": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "m": 60_000_000,
    "hour": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "d": 86_400_000_000,
    "week": 604_800_000_000,
}
# Half of what 64 bits hold, so that a time plus or minus a duration never overflows: 100,000 years.
_MAX_DURATION = 36_500_000 * 86_400_000_000
_NO_FIXED_LENGTH = re.compile(r"(month|quarter|year)s?\b", re.IGNORECASE)
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def duration(text: str | timedelta, what: str) -> Micros:
    """Read a duration such as ``"30 minutes"`` or ``"1 hour 30 minutes"``.

    >>> duration("90 seconds", "window") == duration("1 minute 30 seconds", "window")
    True
    """
    if isinstance(text, timedelta):
        micros = text // timedelta(microseconds=1)
        if micros < 0:
            got = f"-{show_duration(-micros)}"
            raise QueryError(f"{what} must not be negative", got=got, hint="write it without the minus")
        return _bounded(micros, text, what)
    hint = "write a number and a unit, e.g. '10 seconds', '30 minutes', '1 hour 30 minutes'"
    if not isinstance(text, str) or not text.strip():
        raise QueryError(f"{what} must be a duration", got=show_value(text), hint=hint)
    total = _read(text)
    if total is None:
        if _NO_FIXED_LENGTH.search(text):
            hint = "months and years have no fixed length: write days or weeks, e.g. '30 days'"
        raise QueryError(f"{what} must be a duration", got=repr(text), hint=hint)
    return _bounded(total, text, what)


@lru_cache(maxsize=1024)
def _read(text: str) -> int | None:
    """The sum of the parts of a duration, None if it is no duration; every manifest has the same few."""
    body = text.strip()
    body = body[len("interval") :] if body.lower().startswith("interval ") else body
    total, position = 0, 0
    while position < len(body):
        part = _PART.match(body, position)
        unit = _unit(part.group(2)) if part else None
        if part is None or unit is None:
            return None
        # A number with too many digits is an infinite float, which cannot be rounded.
        total += round(min(float(part.group(1)) * unit, 2 * _MAX_DURATION))
        position = part.end()
    return total


def _bounded(micros: int, given: str | timedelta, what: str) -> Micros:
    if micros > _MAX_DURATION:
        got = repr(given) if isinstance(given, str) else show_duration(micros)
        raise QueryError(f"{what} must be at most {show_duration(_MAX_DURATION)}", got=got)
    return Micros(micros)


def show_time(micros: int | None) -> str:
    """A point in event time as ISO 8601; one outside of Python's calendar, as microseconds since 1970."""
    if micros is None:
        return "none"
    try:
        return (_UNIX_EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{micros} us"


def _unit(word: str) -> int | None:
    word = word.lower()
    return _UNITS.get(word) or _UNITS.get(word.removesuffix("s"))


def show_duration(micros: int) -> str:
    """Render a duration in the largest unit that divides it."""
    for unit in ("day", "hour", "minute", "second", "millisecond"):
        size = _UNITS[unit]
        if micros >= size and micros % size == 0:
            count = micros // size
            return f"{count} {unit}" + ("" if count == 1 else "s")
    return f"{micros} microseconds"

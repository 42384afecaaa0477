"""Reading interval literals as Spark does.

A number and a unit, ``INTERVAL 5 MINUTES``; several in one text, ``INTERVAL '1 day -2 hours'``; or a span of
units, ``INTERVAL '3:30' MINUTE TO SECOND``.
"""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from midstream.errors import QueryError
from midstream.query.expression import Constant
from midstream.query.operator_types import INTERVAL

_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_MONTHS = ("month", "quarter", "year")
_SPANNED = ("day", "hour", "minute", "second")
_LIMITS = {"hour": 24, "minute": 60, "second": 60}
"""What a unit of a span that is not the first must stay below."""
_MAX_MICROS = 2**63 - 1

# Twenty digits fit into no interval, and Python refuses to read thousands of them.
_NUMBER = r"([+-]?)\s*(\d{1,19}|\d{0,19}\.\d+|\d{1,19}\.)"
_PART = re.compile(rf"\s*{_NUMBER}\s+([a-z]+)(?:\s+|\Z)", re.IGNORECASE)
_PARTS = re.compile(rf"\s*(?:interval\s+)?(?:{_PART.pattern})+", re.IGNORECASE)

_WRITE = "write a number and a unit, e.g. INTERVAL 5 MINUTES, or INTERVAL '1 day 2 hours'"
_WRITE_SPAN = (
    "write the units from the larger to the smaller, e.g. '1 02:03:04.5' DAY TO SECOND or '3:30' MINUTE TO "
    "SECOND; all but the first have their usual limits: 23 hours, 59 minutes, 59 seconds"
)
_NO_MONTHS = "months and years have no fixed length: give days, hours, minutes or seconds"
_NO_COLUMN = "compute the time as a column of the DataFrame, and use that column"


def interval_literal(tree: exp.Expr, text: str) -> Constant:
    """The value of an INTERVAL; ``text`` is the predicate, for error messages."""
    value, unit = tree.this, tree.args.get("unit")
    negative = isinstance(value, exp.Neg)
    literal = value.this if negative else value
    shown = tree.sql(dialect="spark").removeprefix("INTERVAL ")
    if not isinstance(literal, exp.Literal):
        raise _refused(text, shown, _NO_COLUMN)
    if isinstance(unit, exp.IntervalSpan):
        micros = _span(literal.this, unit.this.name.lower(), unit.expression.name.lower())
        hint = _WRITE_SPAN
    else:
        micros = _sum_of_parts(f"{literal.this} {unit.name}" if unit is not None else literal.this)
        hint = _WRITE
    if micros is None:
        has_months = any(word in shown.lower() for word in _MONTHS)
        raise _refused(text, shown, _NO_MONTHS if has_months else hint)
    if abs(micros) > _MAX_MICROS:
        raise _refused(text, shown, "the longest interval is 106751991 days, as in Spark")
    return Constant(timedelta(microseconds=-micros if negative else micros), INTERVAL)


def check_interval_texts(tokens: list[Token], text: str) -> None:
    """Refuse an interval like '1 day 2', of which the parser would keep only the part that it understands."""
    for before, token in pairwise(tokens):
        is_text = before.token_type == TokenType.INTERVAL and token.token_type == TokenType.STRING
        has_units = any(character.isalpha() for character in token.text)
        if is_text and has_units and not _PARTS.fullmatch(token.text):
            raise _refused(text, f"'{token.text}'", _WRITE)


def _sum_of_parts(text: str) -> int | None:
    """The microseconds of one or several numbers with units; None if it is not that."""
    if not _PARTS.fullmatch(text):
        return None
    parts = [_micros(*part.groups()) for part in _PART.finditer(re.sub(r"(?i)^\s*interval\s", "", text))]
    known = [micros for micros in parts if micros is not None]
    return sum(known) if len(known) == len(parts) else None


def _micros(sign: str, number: str, unit: str) -> int | None:
    name = unit.lower().removesuffix("s")
    whole, point, fraction = number.partition(".")
    # As in Spark: only seconds have a fraction, and what is shorter than a microsecond is cut off.
    if name not in _UNITS or (point and name != "second") or len(fraction) > 9:
        return None
    micros = int(whole or "0") * _UNITS[name] + int(f"{fraction:0<6}"[:6])
    return -micros if sign == "-" else micros


def _span(text: str, first: str, last: str) -> int | None:
    """The microseconds of a text such as '1 2:03:04.5' DAY TO SECOND; None if it is not that."""
    if first not in _SPANNED or last not in _SPANNED or _SPANNED.index(first) >= _SPANNED.index(last):
        return None
    units = _SPANNED[_SPANNED.index(first) : _SPANNED.index(last) + 1]
    pattern = r"([+-]?)(\d{1,19})"
    for before in units[:-1]:
        pattern += (" " if before == "day" else ":") + r"(\d{1,2})"
    pattern += r"(?:\.(\d{1,9}))?" if last == "second" else "()"
    match = re.fullmatch(pattern, text.strip())
    if match is None:
        return None
    sign, *numbers, fraction = match.groups()
    values = dict(zip(units, map(int, numbers), strict=True))
    if any(values[unit] >= _LIMITS[unit] for unit in units[1:]):
        return None
    micros = sum(value * _UNITS[unit] for unit, value in values.items())
    micros += int(f"{fraction or '':0<6}"[:6])
    return -micros if sign == "-" else micros


def _refused(text: str, got: str, hint: str) -> QueryError:
    return QueryError(f"an interval must be one that Spark reads: {text}", got=got, hint=hint)

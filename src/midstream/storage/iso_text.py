"""Dates and times of any year as text, in the form of ISO 8601.

The calendars of Polars and Python end earlier than that of Spark, whose dates reach to the year 5,881,580. So
dates are computed here from numbers of days, in the proleptic Gregorian calendar. A year of more than four
digits, or before the year 0, has a sign.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

Integers = npt.NDArray[np.int64]

_SECONDS_PER_DAY = 86_400
_FRACTION_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
# The calendar repeats every 400 years. In years that begin on the first of March, the leap day is the last.
_DAYS_PER_400_YEARS = 146_097
_DAYS_FROM_MARCH_OF_YEAR_0 = 719_468
"""Days from the first of March of the year 0 to the first of January 1970."""


def date_texts(days: Integers) -> pl.Series:
    """Days since 1970 as ``2026-03-01``."""
    return _joined(*_date_parts(days))


def time_texts(times: Integers, unit: str, *, zoned: bool) -> pl.Series:
    """Times since 1970 as ``2026-03-01 12:00:00.250``, and instants as ``2026-03-01T12:00:00.250+00:00``."""
    digits = _FRACTION_DIGITS[unit]
    second = times // 10**digits
    moment = second % _SECONDS_PER_DAY
    parts = [*_date_parts(second // _SECONDS_PER_DAY), "T" if zoned else " "]
    parts += [_padded(moment // 3600, 2), ":", _padded(moment // 60 % 60, 2), ":", _padded(moment % 60, 2)]
    if digits:
        parts.append(_fraction(times % 10**digits, digits))
    return _joined(*parts, "+00:00" if zoned else "")


def _date_parts(days: Integers) -> list[pl.Expr | str]:
    since = days.astype(np.int64) + _DAYS_FROM_MARCH_OF_YEAR_0
    day = since % _DAYS_PER_400_YEARS
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day = day - (365 * year + year // 4 - year // 100)
    # March to July and August to December have 31, 30, 31, 30 and 31 days, 153 in all.
    month = (5 * day + 2) // 153
    day = day - (153 * month + 2) // 5 + 1
    next_year = month >= 10
    year = year + since // _DAYS_PER_400_YEARS * 400 + next_year
    month = month + np.where(next_year, -9, 3)
    sign = np.select([year < 0, year > 9999], ["-", "+"], "")
    return [pl.lit(pl.Series(sign)), _padded(np.abs(year), 4), "-", _padded(month, 2), "-", _padded(day, 2)]


def _fraction(parts: Integers, digits: int) -> pl.Expr:
    """What follows the second: nothing if it is whole, else as many groups of three digits as it takes."""
    text = pl.concat_str([pl.lit("."), _padded(parts, digits)])
    for shown in range(digits - 3, -1, -3):
        enough = pl.lit(pl.Series(parts % 10 ** (digits - shown) == 0))
        text = pl.when(enough).then(text.str.slice(0, shown + 1 if shown else 0)).otherwise(text)
    return text


def _padded(numbers: Integers, digits: int) -> pl.Expr:
    return pl.lit(pl.Series(numbers)).cast(pl.String).str.zfill(digits)


def _joined(*parts: pl.Expr | str) -> pl.Series:
    texts = (pl.lit(part) if isinstance(part, str) else part for part in parts)
    return pl.select(pl.concat_str(texts).alias("text")).to_series()

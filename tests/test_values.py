from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import QueryError
from midstream.values import duration, show_duration


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1 microsecond", 1),
        ("5 us", 5),
        ("250ms", 250_000),
        ("1.5 seconds", 1_500_000),
        ("30 minutes", 1_800_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        (" 1 Hour  30 MIN ", 5_400_000_000),
        ("INTERVAL 2 days", 172_800_000_000),
        ("1 week", 604_800_000_000),
        ("0 seconds", 0),
        (timedelta(milliseconds=3), 3_000),
    ],
)
def test_a_duration_is_read_to_the_microsecond(text, micros):
    assert duration(text, "window") == micros


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "5",
        "minutes",
        "5 parsecs",
        "-5 minutes",
        "5 minutes ago",
        "1,5 s",
        None,
        5,
    ],
)
def test_anything_else_is_refused_by_what_it_is_for(text):
    with pytest.raises(QueryError, match=r"window must be a duration; got .* Hint: write a number"):
        duration(text, "window")


@pytest.mark.parametrize("text", ["1 month", "2 years"])
def test_units_without_a_fixed_length_are_refused(text):
    with pytest.raises(QueryError, match=r"got .* no fixed length: write days or weeks"):
        duration(text, "window")


def test_a_negative_timedelta_is_refused():
    with pytest.raises(QueryError, match="lateness must not be negative"):
        duration(timedelta(seconds=-1), "lateness")


@pytest.mark.parametrize(
    "given",
    [
        "36500000 days 1 microsecond",
        "5300000 weeks",
        f"{'9' * 400} seconds",
        timedelta(days=36_500_000, microseconds=1),
        timedelta.max,
    ],
)
def test_what_is_longer_than_times_can_bear_is_refused_however_it_is_written(given):
    with pytest.raises(QueryError, match="window must be at most 36500000 days; got "):
        duration(given, "window")


def test_the_longest_duration_is_the_same_however_it_is_written():
    assert duration("36500000 days", "window") == duration(timedelta(days=36_500_000), "window")


@given(st.integers(0, 10**15))
def test_showing_and_reading_give_the_same_duration(micros):
    assert duration(show_duration(micros), "window") == micros

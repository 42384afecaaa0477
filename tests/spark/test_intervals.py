"""Interval literals mean what they mean in Spark, or are refused."""

from datetime import timedelta

import pytest

from midstream.errors import QueryError
from midstream.query.expression import Constant
from midstream.query.sql import parse
from midstream.query.translate import Translator
from tests.plain_errors import assert_plain

pytestmark = pytest.mark.spark

_TEXTS = """
'3:30' MINUTE TO SECOND|'-3:30' MINUTE TO SECOND|-'3:30' MINUTE TO SECOND|-'-3:30' MINUTE TO SECOND
'+3:30' MINUTE TO SECOND|'3:30.5' MINUTE TO SECOND|'3:30.1234567' MINUTE TO SECOND
'3:60' MINUTE TO SECOND|'3:30.123456789' MINUTE TO SECOND|'3:30.1234567890' MINUTE TO SECOND
'61:30' MINUTE TO SECOND|'3:5' MINUTE TO SECOND|'3:05' MINUTE TO SECOND|'3' MINUTE TO SECOND
'1:3:30' MINUTE TO SECOND|' 3:30 ' MINUTE TO SECOND|'3 : 30' MINUTE TO SECOND|'3:' MINUTE TO SECOND
':30' MINUTE TO SECOND|'3:30.' MINUTE TO SECOND|'1:30' HOUR TO MINUTE|'25:30' HOUR TO MINUTE
'1:60' HOUR TO MINUTE|'1:2:3' HOUR TO SECOND|'25:2:3' HOUR TO SECOND|'1:2' HOUR TO SECOND
'-1:2:3.004' HOUR TO SECOND|'1 2' DAY TO HOUR|'1 24' DAY TO HOUR|'1 2:3' DAY TO MINUTE
'1 2:3:4' DAY TO SECOND|'-1 2:3:4.5' DAY TO SECOND|'1  2:3:4' DAY TO SECOND|'1 02:03:04' DAY TO SECOND
'2:3:4' DAY TO SECOND|'1 2' DAY TO SECOND|'1 24:3:4' DAY TO SECOND|'1 2:60:4' DAY TO SECOND
'1 2:3:60' DAY TO SECOND|'1' DAY TO DAY|'1:2' SECOND TO MINUTE|'1' DAY|'-1' DAY|-'1' DAY|'+1' DAY
'1.5' DAY|1.5 DAY|'1.5' SECOND|1.5 SECONDS|'.5' SECOND|'1.1234567' SECOND|1.1234567 SECONDS|'1.' SECOND
-1.5 SECONDS|'1.5' HOUR|1 WEEK|1.5 WEEKS|'100' HOURS|-5 MINUTES|- 5 MINUTES|+5 MINUTES|1500 MILLISECONDS
1500 MICROSECONDS|'1.5' MILLISECONDS|'1 day 2 hours'|'1 day -2 hours'|'-1 day 2 hours'
'1 days 2 hours 3 minutes 4.5 seconds'|'interval 1 day'|'1 day 2'|'1 fortnight'|'1.5 days'|'1.5 seconds'
'1 week 1 day'|'10 milliseconds'|'1 day2 hours'|1 DAY 2 HOURS|'1' DAY '2' HOURS|-1 DAY 2 HOURS
1 day 1 day|'' DAY|'x' SECOND|'1 ' DAY|' 1' DAY|'1 1' DAY|1e3 SECONDS|'1e3' SECOND|0 SECONDS|5 APPLES
999999999999999 DAYS|'100000 0:0:0' DAY TO SECOND|5 min|5 sec
"""
TEXTS = _TEXTS.strip().replace("\n", "|").split("|")


def _ours(text: str) -> int | None:
    """The microseconds of an interval; None if it is refused, with a message in plain words."""
    try:
        value = Translator((), "UTC", text)(parse(f"INTERVAL {text}", "a predicate"))
    except QueryError as error:
        assert_plain(error)
        return None
    return _micros(value)


def _micros(value) -> int:
    if isinstance(value, Constant):
        assert isinstance(value.value, timedelta)
        return value.value // timedelta(microseconds=1)
    assert value.operator == "+"
    return sum(map(_micros, value.args))


def test_interval_literals_have_the_values_that_spark_gives_them(spark):
    def theirs(text):
        at = "TIMESTAMP '2024-01-01 00:00:00'"
        try:
            difference = f"unix_micros({at} + INTERVAL {text}) - unix_micros({at})"
            return spark.sql(f"SELECT {difference} AS micros").first().micros
        except Exception:  # of several classes, for a text that Spark refuses
            return None

    expected = {text: theirs(text) for text in TEXTS}
    assert {text: _ours(text) for text in TEXTS} == expected
    assert sum(value is None for value in expected.values()) > 20
    assert sum(value is not None for value in expected.values()) > 40

"""Streams whose clocks are two hours apart, joined on Spark."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from midstream import Join
from midstream.testing import Shape, generate
from tests.spark.runner import check

pytestmark = pytest.mark.spark

HOUR = 3600 * 1_000_000


def _shift(table: pa.Table, micros: int) -> pa.Table:
    return table.set_column(1, "t", pc.add(table["t"].cast(pa.int64()), micros).cast(table["t"].type))


def test_skew_loses_nothing_and_shows_in_the_progress(spark, feed, runner):
    offsets = {"a": -HOUR, "b": 0, "c": HOUR}
    epochs = generate(dict.fromkeys("abc", Shape(rows=15)), epochs=3, seed=41)
    feed.add(*({name: _shift(table, offsets[name]) for name, table in epoch.items()} for epoch in epochs))
    join = Join(spark)
    for name in "abc":
        join = join.stream(name, feed.df(name), time="t", lateness="5 seconds")
    join = join.on("a.k = b.k", "b.k = c.k").within("2 hours 20 seconds").select("a.id", "b.id", "c.id")
    query = runner.run(join)
    assert [p["numLateRows"] for p in query.recentProgress] == [0, 0, 0]
    assert all(abs(p["skewMs"] - 7_200_000) < 10_000 for p in query.recentProgress)
    assert check(join.query(), feed.epochs, runner.results()).num_rows > 0

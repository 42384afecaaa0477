"""User-defined aggregates on Spark: from a decorated class to files, and on after the class was repaired."""

from __future__ import annotations

import threading

import pytest
from pyspark.sql.types import DoubleType

from midstream import AggregateError, CheckpointError, Join, QueryError, udaf, window
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.testing import Shape, generate
from tests.aggregate.user_classes import Median, histogram, median

pytestmark = pytest.mark.spark

EPOCHS = generate(dict.fromkeys("ab", Shape(rows=30, late=0.1, null_keys=0.1)), epochs=6, seed=1)


class Fragile(Median):
    """A median that fails once it has seen enough."""

    def merge(self, other):
        super().merge(other)
        if len(self.values) > 40:
            raise ValueError("too many values")


def grouped(spark, feed, *calls) -> Join:
    pair = Join(spark)
    for name in "ab":
        pair = pair.stream(name, feed.df(name), time="t", lateness="5 seconds")
    return (
        pair.on("a.k = b.k")
        .within("10 seconds")
        .groupBy("a.k2 AS word", window("10 seconds", "5 seconds"))
        .agg(*calls)
    )


def test_a_query_goes_on_from_its_checkpoint_once_the_class_is_repaired(spark, feed, runner):
    feed.add(*EPOCHS)
    fragile = udaf("double")(type("Median", (Fragile,), {}))
    others = (histogram("b.k2", "b.k").alias("words"), "median(b.v) AS exact", "count(*) AS n")
    with pytest.raises(AggregateError, match=r"mine, Median\(b\.v\): double.*too many values.*batch [1-9]"):
        runner.run(grouped(spark, feed, fragile("b.v").alias("mine"), *others))
    committed = runner.results().num_rows
    runner.run(grouped(spark, feed, median("b.v").alias("mine"), *others))
    rows = runner.results()
    assert rows.num_rows > committed
    assert rows.num_rows > 20
    assert max(rows.column("n").to_pylist()) > 40
    assert rows.column("mine").to_pylist() == rows.column("exact").to_pylist()
    for row in rows.to_pylist():
        assert all(weight % 1 == 0 for _, weight in row["words"])
    assert fsck(LocalStore(str(runner.checkpoint))).problems == ()
    changed = udaf("float")(Median)
    with pytest.raises(CheckpointError, match=r"Median\(b\.v\): double.*Median\(b\.v\): float"):
        runner.run(grouped(spark, feed, changed("b.v").alias("mine"), *others))


def test_a_type_is_one_of_sparks(spark, feed):
    feed.add(EPOCHS[0])
    for given in ("double", DoubleType()):
        join = grouped(spark, feed, udaf(given)(Median)("b.v").alias("m"))
        assert join.dtypes[-1] == ("m", "double")
    assert grouped(spark, feed, histogram("b.k2", "b.k").alias("m")).dtypes[-1] == ("m", "map<string,bigint>")
    for wrong in ("dubble", 3, "interval month"):
        with pytest.raises(QueryError, match=r"results? of Median|the result of Median"):
            grouped(spark, feed, udaf(wrong)(Median)("b.v").alias("m"))


def test_a_class_that_cannot_be_sent_is_refused_before_anything_starts(spark, feed, tmp_path):
    feed.add(EPOCHS[0])
    # A class of a program's own, as in a notebook, is sent as a whole; one of a module by its name.
    own = type("Locked", (Median,), {"lock": threading.Lock(), "__module__": "__main__"})
    join = grouped(spark, feed, udaf("double")(own)("b.v").alias("mine"))
    writer = join.writeStream.foreachBatch(print).option("checkpointLocation", tmp_path / "checkpoint")
    with pytest.raises(QueryError, match=r"copied to Spark's workers; got Locked, with .*_thread.lock.*Hint"):
        writer.start()
    assert not (tmp_path / "checkpoint").exists()

"""Runs of joins over streams from files, and the check of their results."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from midstream import Join
from midstream.query.query import Query
from midstream.testing import accept, assert_same_rows, batch_join


class Runner:
    """Runs joins into a Parquet folder and reads their results."""

    def __init__(self, root: Path) -> None:
        self.out = root / "out"
        self.checkpoint = root / "checkpoint"

    def start(self, join, **options):
        """Start a query; by default it does not adapt, since tests depend on the plan."""
        options = {"adapt": "off", **options}
        writer = join.writeStream.format("parquet").option("path", self.out)
        writer = writer.option("checkpointLocation", self.checkpoint).options(**options)
        return writer.trigger(availableNow=True).start()

    def run(self, join, **options):
        query = self.start(join, **options)
        query.awaitTermination()
        return query

    def results(self) -> pa.Table:
        return pa.concat_tables([pq.read_table(path) for path in sorted(self.out.glob("*.parquet"))])


def join_streams(spark, frames: Mapping[str, DataFrame], **terms) -> Join:
    """A join of these streams, each with its event time in column t, and as yet without predicates."""
    join = Join(spark)
    for name, frame in frames.items():
        join = join.stream(name, frame, time="t", **terms)
    return join


def one_key(spark, feed, names="abc") -> Join:
    """A join of streams that all have the same key."""
    frames = {name: feed.df(name) for name in names}
    join = join_streams(spark, frames, lateness="5 seconds")
    return join.on(*(f"a.k = {other}.k" for other in names[1:])).within("15 seconds")


def check(query: Query, epochs: Sequence[Mapping[str, pa.Table]], got: pa.Table, **options) -> pa.Table:
    """Compare results with DuckDB's over the accepted rows; returns the expected ones."""
    want = batch_join(query, accept(query, epochs, **options).tables(query))
    assert got.num_rows == want.num_rows
    assert_same_rows(got, want)
    return want

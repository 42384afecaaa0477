"""Fixtures: streams from files, one file per epoch, and runs of joins over them."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream import Join
from midstream.query.query import Query
from midstream.testing import accept, assert_same_rows, batch_join


class Feed:
    """Streams on disk. Each epoch is one file per stream, and each micro-batch reads one."""

    def __init__(self, spark, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.epochs: list[dict[str, pa.Table]] = []

    def add(self, *epochs: Mapping[str, pa.Table]) -> None:
        for epoch in epochs:
            for name, table in epoch.items():
                folder = self.root / name
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / f"{len(self.epochs):05d}.parquet"
                pq.write_table(table, folder / f".{path.name}")
                # The file source orders files by modification time, which writing would not make distinct.
                os.utime(folder / f".{path.name}", (1_700_000_000 + len(self.epochs),) * 2)
                (folder / f".{path.name}").rename(path)
            self.epochs.append(dict(epoch))

    def df(self, name: str):
        folder = str(self.root / name)
        schema = self.spark.read.parquet(folder).schema
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(folder)


def noted_epochs(feed: Feed, checkpoint: Path) -> list[dict[str, pa.Table]]:
    """The input of each micro-batch, from Spark's own offsets.

    Most have one file of each stream. But a trigger may come between two files of an epoch, and if Spark dies
    between logging a file and logging the micro-batch, that file is in one micro-batch with the next one.
    """
    names = list(feed.epochs[0])
    epochs: list[dict[str, pa.Table]] = []
    read = dict.fromkeys(names, 0)
    notes = (path for path in (checkpoint / "spark" / "offsets").iterdir() if path.name.isdigit())
    for path in sorted(notes, key=lambda p: int(p.name)):
        _version, _about, *offsets = path.read_text().splitlines()
        epoch = {}
        for name, offset in zip(names, offsets, strict=True):
            upto = read[name] if offset == "-" else json.loads(offset)["logOffset"] + 1
            parts = [feed.epochs[number][name] for number in range(read[name], upto)]
            epoch[name] = pa.concat_tables([feed.epochs[0][name].slice(0, 0), *parts])
            read[name] = upto
        epochs.append(epoch)
    return epochs


@pytest.fixture
def feed(spark, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path / "in")


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


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


@pytest.fixture
def scenario(spark, feed, runner: Runner):
    """A query of four streams whose plan is changed while it runs."""
    from tests.spark.migration_scenario import MigrationScenario  # which imports this module

    return MigrationScenario(spark, feed, runner)


def one_key(spark, feed, names="abc") -> Join:
    """A join of streams that all have the same key."""
    join = Join(spark)
    for name in names:
        join = join.stream(name, feed.df(name), time="t", lateness="5 seconds")
    return join.on(*(f"a.k = {other}.k" for other in names[1:])).within("15 seconds")


def check(query: Query, epochs: Sequence[Mapping[str, pa.Table]], got: pa.Table, **options) -> pa.Table:
    """Compare results with DuckDB's over the accepted rows; returns the expected ones."""
    want = batch_join(query, accept(query, epochs, **options).tables(query))
    assert got.num_rows == want.num_rows
    assert_same_rows(got, want)
    return want

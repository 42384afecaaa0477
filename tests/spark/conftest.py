"""Streams fed from files, one file per epoch, and what comes out of joining them."""

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
                # The file source goes by modification time; writing is faster than its clock ticks.
                os.utime(folder / f".{path.name}", (1_700_000_000 + len(self.epochs),) * 2)
                (folder / f".{path.name}").rename(path)
            self.epochs.append(dict(epoch))

    def df(self, name: str):
        folder = str(self.root / name)
        schema = self.spark.read.parquet(folder).schema
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(folder)


def noted_epochs(feed: Feed, checkpoint: Path) -> list[dict[str, pa.Table]]:
    """What each micro-batch had of the input, by Spark's own notes.

    Most have one file of each stream. But a trigger may come between two files of an epoch, and a source that
    has noted a file and dies before the micro-batch is noted gives that file together with the next one.
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
    """Runs joins into a Parquet folder and reads what came out."""

    def __init__(self, root: Path) -> None:
        self.out = root / "out"
        self.checkpoint = root / "checkpoint"

    def start(self, join, **options):
        """Start a query; it keeps its plan unless it is told to adapt, since tests look at what plans do."""
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
def stage(spark, feed, runner: Runner):
    """A query of four streams whose plan is changed while it runs."""
    from tests.spark.migration_scenario import MigrationScenario  # which itself needs what is here

    return MigrationScenario(spark, feed, runner)


def one_key(spark, feed, names="abc") -> Join:
    """A join of streams that all have the same key."""
    join = Join(spark)
    for name in names:
        join = join.stream(name, feed.df(name), time="t", lateness="5 seconds")
    return join.on(*(f"a.k = {other}.k" for other in names[1:])).within("15 seconds")


def check(query: Query, epochs: Sequence[Mapping[str, pa.Table]], got: pa.Table, **options) -> pa.Table:
    """The results must be DuckDB's over the rows that were in time; gives what they should be."""
    want = batch_join(query, accept(query, epochs, **options).tables(query))
    assert got.num_rows == want.num_rows
    assert_same_rows(got, want)
    return want

"""A running query goes on in other numbers of engine partitions, exactly, while its plan changes as well."""

import json
import os
import threading

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from midstream import Join, StreamError
from midstream.spark.query import JoinStreamingQuery
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.testing import Shape, generate
from tests.spark.feed import schema_of
from tests.spark.migration_scenario import columns, rows
from tests.spark.runner import check

pytestmark = pytest.mark.spark

SHAPE = Shape(rows=120, late=0.05, null_keys=0.05, duplicates=0.05, keys=60)
RESCALES = {0: 64, 2: 3, 4: 200}
"""The numbers of partitions that are asked for after some batches."""


@pytest.mark.parametrize("source", [columns, rows])
def test_partitions_change_while_a_query_runs(spark, feed, runner, source):
    feed.add(*generate(dict.fromkeys("abc", SHAPE), epochs=8, seed=9))
    join = Join(spark)
    for name in "abc":
        join = join.stream(name, source(feed.df(name)), time="t", lateness="5 seconds")
    join = join.on("a.k = b.k", "b.k2 = c.k2").within("25 seconds").select("a.id", "b.id", "c.id")
    started = threading.Event()
    queries: list[JoinStreamingQuery] = []
    ran: dict[int, int] = {}

    def listen(progress) -> None:
        if "batchId" not in (form := progress.to_dict()) or "plan" not in form or "state" not in form:
            return
        started.wait(60)
        (query,) = queries
        batch = form["batchId"]
        ran[batch] = query.partitions
        if batch in RESCALES:
            query.rescale(RESCALES[batch])
        if batch == 1:
            query.migrate("a (b c)", "hybrid")

    writer = join.writeStream.format("parquet").option("path", runner.out).addListener(listen)
    writer = writer.option("checkpointLocation", runner.checkpoint).option("adapt", "off")
    query = writer.option("partitions", 2).option("plan", "(a b) c").trigger(availableNow=True).start()
    queries.append(query)
    started.set()
    query.awaitTermination()
    assert ran == {0: 2, 1: 64, 2: 64, 3: 3, 4: 3, 5: 200, 6: 200, 7: 200}
    events = [event for p in query.recentProgress for event in p["events"] if event["type"] == "rescaled"]
    assert [(e["batchId"], e["before"], e["partitions"]) for e in events] == [
        (1, 2, 64),
        (3, 64, 3),
        (5, 3, 200),
    ]
    assert check(join.query(), feed.epochs, runner.results()).num_rows > 100
    assert fsck(LocalStore(str(runner.checkpoint))).problems == ()
    with pytest.raises(StreamError, match="a query must be running to change its partitions"):
        query.rescale(4)
    # Without the option it goes on with the number that it has.
    feed.add(*generate(dict.fromkeys("abc", SHAPE), epochs=1, seed=10))
    again = runner.run(join)
    assert again.partitions == 200


class FailsOnce:
    """A function of the user's that keeps results by batch, and fails at its first call for some batches."""

    def __init__(self, *batches: int) -> None:
        self.batches = set(batches)
        self.results: dict[int, pa.Table] = {}

    def __call__(self, rows, batch) -> None:
        if batch in self.batches:
            self.batches.remove(batch)
            raise RuntimeError("the user's own mistake")
        self.results[batch] = rows.toArrow()


def as_json(spark, feed, name):
    """A stream's files again, as JSON: Spark reads them, and tasks get rows."""
    folder = feed.root / f"{name}-json"
    folder.mkdir()
    for number, epoch in enumerate(feed.epochs):
        path = folder / f"{number:05d}.json"
        texts = epoch[name].set_column(
            epoch[name].column_names.index("t"), "t", pc.strftime(epoch[name]["t"], "%Y-%m-%dT%H:%M:%SZ")
        )
        path.write_text("".join(json.dumps(row) + "\n" for row in texts.to_pylist()))
        os.utime(path, (1_700_000_000 + number,) * 2)
    reader = spark.readStream.schema(schema_of(feed.root / name)).option("maxFilesPerTrigger", 1)
    return reader.json(str(folder))


@pytest.mark.parametrize(
    "on",
    [
        ("a.k = b.k", "b.v = c.v"),
        ("a.k = b.k", "a.v = b.v", "b.k = c.k"),
    ],
    ids=["chain", "pair"],
)
def test_rows_of_any_source_go_on_in_other_partitions(spark, feed, tmp_path, on):
    """Also those of a batch that had begun, when the query is started again with other partitions.

    ``test_row_source.py`` has more keys.
    """
    feed.add(*generate(dict.fromkeys("abc", SHAPE), epochs=7, seed=3))
    join = Join(spark)
    for name in "abc":
        join = join.stream(name, as_json(spark, feed, name), time="t", lateness="5 seconds")
    # No key is among what is selected.
    join = join.on(*on).within("25 seconds").select(*(f"{name}.id" for name in "abc"))
    seen = FailsOnce(2, 4)
    asked = {0: 5, 2: 2, 4: 7}
    # As the program gives them at each start.
    for partitions in (2, 3, 6):
        started = threading.Event()
        queries: list[JoinStreamingQuery] = []

        def listen(progress, started=started, queries=queries) -> None:
            started.wait(60)
            if (batch := progress.to_dict().get("batchId")) in asked:
                queries[0].rescale(asked.pop(batch))

        writer = join.writeStream.foreachBatch(seen).addListener(listen).option("adapt", "off")
        writer = writer.option("checkpointLocation", tmp_path / "checkpoint").option("partitions", partitions)
        queries.append(writer.trigger(availableNow=True).start())
        started.set()
        if seen.batches:
            with pytest.raises(Exception, match="the user's own mistake"):
                queries[0].awaitTermination()
        else:
            queries[0].awaitTermination()
    assert seen.batches == set()
    assert asked == {}
    assert queries[0].partitions == 7
    got = pa.concat_tables([seen.results[batch] for batch in sorted(seen.results)])
    assert check(join.query(), feed.epochs, got).num_rows > 50

"""A running query goes on in other numbers of engine partitions, exactly, while its plan changes as well."""

import threading

import pytest

from midstream import Join, StreamError
from midstream.spark.query import JoinStreamingQuery
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.testing import Shape, generate
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

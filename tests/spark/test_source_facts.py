"""What Spark knows of the sources of a join, and what it is told: offsets, backlog, rates and counts."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.listener import StreamingQueryListener

from midstream import Join
from midstream.protocol.trigger_facts import TREND_EPOCHS
from midstream.spark.source_facts import reports_metrics, source_metrics
from midstream.spark.worker_python import use_this_python
from midstream.testing import Shape, generate
from tests.spark.runner import Runner, join_streams, one_key

pytestmark = pytest.mark.spark

ROWS = 20
SHAPE = Shape(rows=ROWS)


class Progress(StreamingQueryListener):
    """Notes Spark's progress of all queries."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def onQueryStarted(self, event):  # noqa: N802  # Spark's name
        pass

    def onQueryProgress(self, event):  # noqa: N802  # Spark's name
        self.seen.append(json.loads(event.progress.json))

    def onQueryTerminated(self, event):  # noqa: N802  # Spark's name
        pass

    def of(self, query) -> list[dict[str, Any]]:
        """All progress of a query; it comes some time after the query has it."""
        for _ in range(300):
            found = [p for p in self.seen if p["runId"] == query.runId and p["sources"]]
            if len({p["batchId"] for p in found}) >= len(query.recentProgress):
                return found
            time.sleep(0.1)
        raise AssertionError("Spark's progress did not come")


@pytest.fixture
def progress(spark) -> Iterator[Progress]:
    listener = Progress()
    spark.streams.addListener(listener)
    yield listener
    spark.streams.removeListener(listener)


def run_until_done(join, root, **trigger):
    """Run a query that does not end by itself until it has read all there is."""
    writer = join.writeStream.format("parquet").option("path", root / "out").option("adapt", "off")
    query = writer.option("checkpointLocation", root / "checkpoint").trigger(**trigger).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return query


def shown_counts(spark, query) -> list[list[int]]:
    """The rows that the scans of each micro-batch have given, by Spark's pages of the plans."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    found = []
    for execution in (executions.apply(i) for i in range(executions.size())):
        if query.runId not in execution.description():
            continue
        values, metrics = store.executionMetrics(execution.executionId()), execution.metrics()
        named = [metrics.apply(i) for i in range(metrics.size())]
        ids = [metric.accumulatorId() for metric in named if metric.name() == "number of output rows"]
        found.append([int(values.apply(i)) for i in ids if values.contains(i)])
    return found


def join_of(spark, frames) -> Join:
    join = join_streams(spark, frames, lateness="5 seconds")
    first, *others = frames
    return join.on(*(f"{first}.k = {other}.k" for other in others)).within("15 seconds")


def test_offsets_rates_and_counts_are_sparks_and_unread_files_are_the_backlog(
    spark, feed, tmp_path, progress
):
    epochs = 4
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=epochs, seed=6))
    query = run_until_done(one_key(spark, feed, "ab"), tmp_path, processingTime="10 milliseconds")
    ours, sparks = query.recentProgress, {p["batchId"]: p for p in progress.of(query) if p["numInputRows"]}
    assert [p["batchId"] for p in ours] == list(sparks) == list(range(epochs))
    for p in ours:
        spark_p = sparks[p["batchId"]]
        assert p["numInputRows"] == spark_p["numInputRows"] == 2 * ROWS
        assert p["inputRowsPerSecond"] == pytest.approx(spark_p["inputRowsPerSecond"], rel=0.02)
        assert p["inputRowsPerSecond"] > 0 or p["batchId"] == 0
        # Spark still has to note its offsets when an epoch is reported.
        assert p["processedRowsPerSecond"] >= 0.98 * spark_p["processedRowsPerSecond"] > 0
        assert p["durationMs"]["trigger"] >= p["durationMs"]["total"]
        for name, source in zip("ab", spark_p["sources"], strict=True):
            (offsets,) = p["sources"][name]["offsets"]
            assert source["numInputRows"] == p["sources"][name]["rows"] == ROWS
            for field in ("description", "startOffset", "endOffset", "latestOffset"):
                assert offsets[field] == source[field], field
            assert f"/{name}]" in offsets["description"]
    assert shown_counts(spark, query) == [[ROWS, ROWS]] * epochs
    backlogs = [p["sources"]["a"]["backlog"] for p in ours]
    assert backlogs == [{"count": left, "unit": "files", "trend": None} for left in (3, 2, 1, 0)]
    first, last = (ours[i]["sources"]["a"]["latestEventTime"] for i in (0, -1))
    assert datetime.fromisoformat(first) < datetime.fromisoformat(last)


def test_spark_counts_rows_of_streams_that_share_a_source_and_of_those_without_rows(
    spark, feed, tmp_path, progress
):
    feed.add(*generate({"a": SHAPE, "b": Shape(rows=7, silent=frozenset({1}))}, epochs=2, seed=6))
    same = feed.df("a")
    shared = Runner(tmp_path / "shared").run(join_of(spark, {"one": same, "b": feed.df("b"), "other": same}))
    assert [p["numInputRows"] for p in progress.of(shared)] == [2 * ROWS + 7, 2 * ROWS]
    sources = [[s["numInputRows"] for s in p["sources"]] for p in progress.of(shared)]
    assert [sorted(counts) for counts in sources] == [[7, 2 * ROWS], [0, 2 * ROWS]]
    for p in shared.recentProgress:
        assert p["sources"]["one"]["offsets"] == p["sources"]["other"]["offsets"]
        assert p["sources"]["b"]["backlog"] is None, "the trigger availableNow looks for all files each time"


def test_a_stream_that_is_a_union_has_the_offsets_of_each_source(spark, feed, tmp_path, progress):
    feed.add(*generate(dict.fromkeys("abc", SHAPE), epochs=1, seed=6))
    use_this_python(spark)  # a DataFrame of Python values keeps the Python that it is made with
    names = spark.createDataFrame([(1, "x")], "k long, label string")
    both = feed.df("a").union(feed.df("b"))
    labelled = feed.df("c").join(names, "k", "left").drop("label")
    query = Runner(tmp_path).run(join_of(spark, {"both": both, "c": labelled}))
    (ours,), (sparks,) = query.recentProgress, progress.of(query)
    described = {name: [o["description"][-3:] for o in s["offsets"]] for name, s in ours["sources"].items()}
    assert described == {"both": ["/a]", "/b]"], "c": ["/c]"]}
    assert sparks["numInputRows"] == ours["numInputRows"] == 3 * ROWS


def test_spark_counts_rows_of_files_that_it_reads_after_all(spark, tmp_path, progress):
    """Timestamps stored as INT96 are read by Spark, but not by the plan of the micro-batch."""
    table = pa.table({"t": pa.array([1, 2, 3], pa.timestamp("us", "UTC")), "k": [1, 2, 3]})
    frames = {}
    for name in "ab":
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "0.parquet", use_deprecated_int96_timestamps=True)
        frames[name] = spark.readStream.schema("t timestamp, k long").parquet(str(tmp_path / name))
    query = Runner(tmp_path / "run").run(join_of(spark, frames))
    (ours,), (sparks,) = query.recentProgress, progress.of(query)
    assert (ours["numInputRows"], ours["numOutputRows"]) == (6, 3)
    assert [s["numInputRows"] for s in sparks["sources"]] == [3, 3]


class FloodReader(DataSourceStreamReader):
    """Gets more rows with each micro-batch than a micro-batch takes."""

    def __init__(self) -> None:
        self.latest = 0

    def initialOffset(self):  # noqa: N802  # Spark's name
        return {"shard": {"0": 0}}

    def latestOffset(self, start, limit):  # noqa: N802  # Spark's name
        self.latest += 100
        taken = start["shard"]["0"] + 10
        # The flood ends, so that the test does.
        return {"shard": {"0": min(taken, 10 * (TREND_EPOCHS + 1))}}

    def reportLatestOffset(self):  # noqa: N802  # Spark's name
        return {"shard": {"0": self.latest}}

    def partitions(self, start, end):
        return [InputPartition((start["shard"]["0"], end["shard"]["0"]))]

    def read(self, partition):
        first, end = partition.value
        for number in range(first, end):
            yield datetime(2026, 3, 2, tzinfo=UTC) + timedelta(seconds=number), number


class Flood(DataSource):
    @classmethod
    def name(cls):
        return "flood"

    def schema(self):
        return "t timestamp, k long"

    def streamReader(self, schema):  # noqa: N802  # Spark's name
        return FloodReader()


@pytest.mark.slow
def test_a_stream_that_falls_behind_its_source_is_told_of(spark, tmp_path, progress):
    # A Python source keeps the Python that it is registered with, and imports this module there.
    use_this_python(spark)
    spark.dataSource.register(Flood)
    flood = spark.readStream.format("flood").load()
    query = run_until_done(join_of(spark, {"a": flood, "b": flood}), tmp_path, processingTime="1 millisecond")
    ours = query.recentProgress
    assert len(ours) == TREND_EPOCHS + 1
    # Both streams read the one source, by Spark.
    assert [p["numInputRows"] for p in progress.of(query)] == [20] * len(ours)
    assert [p["numInputRows"] for p in ours] == [20] * len(ours)
    backlogs = [p["sources"]["a"]["backlog"] for p in ours]
    assert [b["count"] for b in backlogs] == [100 * (i + 1) - 10 * (i + 1) for i in range(len(ours))]
    assert [b["trend"] for b in backlogs] == [None] * (TREND_EPOCHS - 1) + ["growing"] * 2
    lagging = [(e["stream"], e["status"], e["backlog"]) for p in ours for e in p["events"] if "backlog" in e]
    assert lagging == [(name, "began", 90 * TREND_EPOCHS) for name in "ab"]
    # No epoch takes only a millisecond.
    slow = [
        (e["batchId"], e["status"], e["triggerMs"]) for p in ours for e in p["events"] if "triggerMs" in e
    ]
    assert slow == [(2, "began", 1)]
    assert {p["type"] for p in ours[-1]["problems"]} == {"stream-lagging", "slow-epochs"}


def test_a_query_goes_on_if_spark_is_not_as_it_was(spark, feed, tmp_path, monkeypatch):
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=1, seed=6))
    nothing = spark._jvm.java.lang.Object()  # it has none of the methods
    monkeypatch.setattr("midstream.spark.source_facts.stream_execution", lambda session, query: nothing)
    query = Runner(tmp_path).run(one_key(spark, feed, "ab"))
    source = query.lastProgress["sources"]["a"]
    assert (source["rows"], source["offsets"], source["backlog"]) == (ROWS, [], None)
    assert query.lastProgress["inputRowsPerSecond"] == 0
    assert query.exception() is None


class OwnFigures:
    """What the JVM asks for the figures of a source that has some, as Kafka's has."""

    def __init__(self, jvm) -> None:
        self.jvm = jvm
        self.asked: list[tuple[str, bool]] = []

    def invoke(self, proxy, method, args):
        self.asked.append((method.getName(), args[0].isPresent()))
        found = self.jvm.java.util.HashMap()
        found.put("maxOffsetsBehindLatest", "40")
        return found

    class Java:
        implements = ("java.lang.reflect.InvocationHandler",)


def test_figures_of_a_source_are_passed_on(spark):
    context = spark.sparkContext
    gateway, jvm = context._gateway, context._jvm
    ensure_callback_server_started(gateway)
    kind = jvm.java.lang.Class.forName("org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics")
    kinds = gateway.new_array(jvm.java.lang.Class, 1)
    kinds[0] = kind
    figures = OwnFigures(jvm)
    source = jvm.java.lang.reflect.Proxy.newProxyInstance(kind.getClassLoader(), kinds, figures)
    assert reports_metrics(context, source)
    assert source_metrics(context, source, None) == {"maxOffsetsBehindLatest": "40"}
    assert source_metrics(context, source, "an offset") == {"maxOffsetsBehindLatest": "40"}
    assert figures.asked == [("metrics", False), ("metrics", True)]
    assert not reports_metrics(context, jvm.java.util.ArrayList())

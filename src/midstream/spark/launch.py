"""Starting a query: open or make its checkpoint, set up the sink, and hand Spark the sources."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery

from midstream.engine.encode import Encoder, SourceColumn, make_encoder, time_column
from midstream.errors import OptionError
from midstream.plan.default import default_plan
from midstream.plan.layout import column_name
from midstream.plan.tree import parse_plan
from midstream.protocol.coordinator import Coordinator
from midstream.protocol.settings import Settings, describe, must_agree
from midstream.query.query import Query
from midstream.query.stream import ColumnRef
from midstream.query.types import show_type
from midstream.spark.driver import Driver
from midstream.spark.options import Options
from midstream.spark.query import JoinStreamingQuery
from midstream.spark.sinks import ForeachBatchSink, MemorySink, ParquetSink, Sink, show_batch
from midstream.spark.tasks import MESSAGE, encode_task
from midstream.state.manifest import Manifest
from midstream.storage.lease import take_lease
from midstream.storage.ledger import Ledger
from midstream.storage.local import LocalStore
from midstream.storage.manifests import restore_manifest
from midstream.storage.output import OutputTable, ParquetWriter

Trigger = dict[str, Any]
SinkChoice = str | Callable[[DataFrame, int], None]


def launch(
    spark: SparkSession,
    query: Query,
    frames: Mapping[str, DataFrame],
    options: Options,
    *,
    sink: SinkChoice,
    trigger: Trigger,
    name: str | None,
) -> JoinStreamingQuery:
    """Start a query; everything that can be wrong is found before Spark starts anything."""
    if sink == "parquet" and options.text("path") is None:
        raise OptionError("the parquet sink must have a path", hint="write .option('path', folder)")
    if sink == "memory" and name is None:
        raise OptionError("the memory sink must have a name", hint="write .queryName('results')")
    checkpoint = _checkpoint(sink, options)
    store = LocalStore(checkpoint)
    late_path = options.text("lateRows")
    if late_path is not None and late_path == options.text("path"):
        raise OptionError("lateRows must be another folder than path", got=late_path)
    run = uuid.uuid4().hex[:8]
    lease = take_lease(store, run)
    try:
        coordinator, manifest = _open(spark, query, store, options)
        target = _sink(spark, query, sink, options, manifest, checkpoint, name)
        late = OutputTable("late", late_path, manifest.id[:8]) if late_path else None
        writer = ParquetWriter(target.table, late, query.output_schema, _late_columns(query))
        ledger = Ledger(store, coordinator, manifest, run=run, fence=lease.check)
        driver = Driver(ledger, target, writer, lease)
        driver.recover()
        running = _start(spark, driver, frames, f"file://{checkpoint}/spark", trigger, name)
    except BaseException:
        lease.release()
        raise
    lease.keep(lambda: running.isActive)
    return JoinStreamingQuery(running, driver)


def _late_columns(query: Query) -> dict[str, dict[str, str]]:
    return {
        s.name: {column_name(ColumnRef(s.name, (name,))): name for name in s.schema.names}
        for s in query.streams
    }


def _start(
    spark: SparkSession,
    driver: Driver,
    frames: Mapping[str, DataFrame],
    checkpoint: str,
    trigger: Trigger,
    name: str | None,
) -> StreamingQuery:
    """Hand Spark the sources, and the driver to call with each micro-batch of them."""
    _use_this_python(spark)
    rows = _sources(driver.coordinator, frames, whole_rows=driver.keeps_late_rows)
    start = rows.writeStream.foreachBatch(driver).option("checkpointLocation", checkpoint)
    start = start.trigger(**trigger) if trigger else start
    running = (start.queryName(name) if name else start).start()
    driver.identity |= {"id": running.id, "runId": running.runId, "name": name}
    return running


def _checkpoint(sink: SinkChoice, options: Options) -> str:
    given = options.text("checkpointLocation")
    if given is None and sink == "parquet":
        raise OptionError(
            "the parquet sink must have a checkpointLocation",
            hint="write .option('checkpointLocation', folder); without it nothing survives a restart",
        )
    if given is None:
        # Results that go to no lasting place need no lasting checkpoint; Spark treats them likewise.
        given = tempfile.mkdtemp(prefix="midstream-")
        atexit.register(shutil.rmtree, given, ignore_errors=True)
    return given


def _open(
    spark: SparkSession, query: Query, store: LocalStore, options: Options
) -> tuple[Coordinator, Manifest]:
    """Go on from the checkpoint if there is one; what lasts must be what it was."""
    stored = restore_manifest(store)
    if stored is not None:
        # An epoch whose manifest was damaged runs again; Spark must not think that it is done.
        for name in (f"{stored.epoch + 1}", f".{stored.epoch + 1}.crc"):
            store.delete(f"spark/commits/{name}")
    lasting = stored.query["options"] if stored else {}
    default = min(spark.sparkContext.defaultParallelism, 1024)
    partitions = options.number("partitions") or lasting.get("partitions", default)
    groups = options.number("groups") or lasting.get("groups", max(256, 4 * partitions))
    if groups < partitions:
        raise OptionError("groups must be at least as many as partitions", got=f"{groups} and {partitions}")
    settings = Settings(partitions, groups, options.duration("idleTimeout"))
    text = options.text("plan")
    plan = parse_plan(text, query.names) if text else default_plan(query)
    if stored is None:
        coordinator = Coordinator.of(query, settings, plan)
        return coordinator, coordinator.first_manifest(uuid.uuid4().hex)
    must_agree(stored.query, describe(query, settings))
    if text and str(plan) != stored.plan:
        raise OptionError(
            f"the plan of a checkpoint must stay as it is: {stored.plan}",
            got=text,
            hint="leave the option out to go on with it",
        )
    return Coordinator.of(query, settings, parse_plan(stored.plan, query.names)), stored


def _sink(
    spark: SparkSession,
    query: Query,
    sink: SinkChoice,
    options: Options,
    manifest: Manifest,
    checkpoint: str,
    name: str | None,
) -> Sink:
    schema = query.output_schema
    path = options.text("path") if sink == "parquet" else None
    table = OutputTable("results", path or f"{checkpoint}/results", manifest.id[:8])
    if sink == "parquet":
        return ParquetSink(table)
    if sink == "memory":
        return MemorySink(table, spark, str(name), schema)
    if sink == "console":
        rows = options.number("numRows")
        sink = show_batch(20 if rows is None else rows, options.text("truncate") != "false")
    if isinstance(sink, str):
        raise OptionError("the sink must be one that Midstream knows", got=sink)
    return ForeachBatchSink(table, sink, schema)


def _use_this_python(spark: SparkSession) -> None:
    """In local mode, run workers with the Python of this process.

    Spark would take the first ``python3`` on the path, which need not have Midstream. On a cluster the
    path of the workers' Python is for ``spark.pyspark.python`` to say.
    """
    context = spark.sparkContext
    if str(context.master).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable


def _sources(coordinator: Coordinator, frames: Mapping[str, DataFrame], *, whole_rows: bool) -> DataFrame:
    """All streams as one stream of messages."""
    query = coordinator.query
    messages = []
    for name, frame in frames.items():
        encoder = make_encoder(
            query, coordinator.layout, name, coordinator.settings.routing(), whole_rows=whole_rows
        )
        # Our names have dots, which mapInArrow would take for fields: the task gives them back by position.
        columns = [_column(frame, c, name).alias(f"c{i}") for i, c in enumerate(encoder.source)]
        task = encode_task(encoder, _source_schema(query, encoder))
        messages.append(frame.select(*columns).mapInArrow(task, MESSAGE))
    return reduce(DataFrame.union, messages)


def _column(frame: DataFrame, column: SourceColumn, stream: str) -> Column:
    first, *fields = column.ref.path
    value = frame["`" + first.replace("`", "``") + "`"]
    for name in fields:
        value = value.getField(name)
    if column.name == time_column(stream):
        value = F.unix_micros(value.cast("timestamp"))
    elif column.type is not None:
        value = value.cast(show_type(column.type))
    return value


def _source_schema(query: Query, encoder: Encoder) -> pa.Schema:
    stream = query.by_name[encoder.stream]
    return pa.schema(
        [
            (c.name, pa.int64() if c.name == time_column(stream.name) else c.type or stream.type_of(c.ref))
            for c in encoder.source
        ]
    )

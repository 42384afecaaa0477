"""Starting a query: open or make its checkpoint, set up the sink, and hand Spark the sources."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from midstream.adapt.policy import GOALS, MigrationPolicy
from midstream.engine.encode import make_encoders
from midstream.engine.index_rows import MAX_PARTITIONS
from midstream.errors import CheckpointError, OptionError, QueryError
from midstream.migration.request import STRATEGIES
from midstream.plan.default_plan import default_plan
from midstream.plan.tree import parse_plan
from midstream.protocol.coordinator import Coordinator
from midstream.protocol.settings import CLOCKS, ONE_DAY, Settings, read_description
from midstream.query.query import Query
from midstream.runtime.epoch_runner import EpochRunner
from midstream.spark.driver import Driver
from midstream.spark.options import Options
from midstream.spark.parquet_source import sources_of
from midstream.spark.query import JoinStreamingQuery
from midstream.spark.sinks import ForeachBatchSink, MemorySink, ParquetSink, Sink, show_batch
from midstream.state.manifest import Manifest
from midstream.storage.folder_overlap import refuse_overlapping_folders
from midstream.storage.late_rows import late_columns
from midstream.storage.lease import Lease, take_lease
from midstream.storage.manifest_log import Committed
from midstream.storage.open_checkpoint import begin_manifest, open_manifest
from midstream.storage.output_table import OutputTable, ParquetWriter
from midstream.storage.remote import is_remote, store_at
from midstream.storage.store import Store
from midstream.values import duration

Trigger = dict[str, Any]
SinkChoice = str | Callable[[DataFrame, int], None]
_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


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
    if sink == "memory" and not _VIEW.match(name or ""):
        raise OptionError(
            "the memory sink must have a name that a view can have: letters, digits and underscores",
            got=repr(name),
            hint="write .queryName('results')",
        )
    checkpoint = _checkpoint(sink, options)
    if is_remote(checkpoint) and sink != "parquet":
        raise OptionError(
            "a checkpointLocation in an object store must go with the parquet sink",
            got=checkpoint,
            hint="use a folder that all machines of the cluster see",
        )
    store = store_at(checkpoint)
    late_path = options.text("lateRows")
    refuse_overlapping_folders(options.text("path"), late_path, None if is_remote(checkpoint) else checkpoint)
    run = uuid.uuid4().hex[:8]
    lease = take_lease(store, run)
    try:
        coordinator, committed = _open(spark, query, store, options, lease)
        tables = _Tables(committed.manifest.id[:8], lease.number)
        target = _sink(spark, query, sink, options, tables, checkpoint, name)
        late = tables.late(late_path) if late_path else None
        writer = ParquetWriter(target.table, late, query.output_schema, late_columns(query))
        ledger = EpochRunner(store, coordinator, committed, lease, run)
        driver = Driver(ledger, target, writer, lease, _interval(trigger), name)
        driver.recover()
        # Whoever has taken over has a Spark that does not expect another one in its half of the checkpoint.
        lease.check()
        running = _start(spark, driver, frames, _half_of_spark(checkpoint), trigger, name)
    except BaseException:
        lease.release()
        raise
    lease.keep_while(lambda: running.isActive)
    return JoinStreamingQuery(running, driver)


def _interval(trigger: Trigger) -> float | None:
    """Milliseconds between triggers; None if one follows the other."""
    try:
        return duration(trigger["processingTime"], "processingTime") / 1000
    except (KeyError, QueryError):
        return None  # Spark may know a form that we do not


def _half_of_spark(checkpoint: str) -> str:
    """Where Spark keeps its half of a checkpoint; like ours, it is nobody else's to read."""
    if is_remote(checkpoint):
        return f"{checkpoint}/spark"
    folder = Path(checkpoint, "spark")
    if folder.is_symlink():
        raise CheckpointError("a checkpoint must have plain files and folders", got=f"a link {folder}")
    folder.mkdir(mode=0o700, exist_ok=True)
    return f"file://{folder}"


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
    # Which rows go where may still change with the first epoch; then they are encoded once more.
    program = driver.coordinator.program(driver.manifest, driver.ledger.intend(0, None))
    encoders = make_encoders(
        program.query, program.layout, program.routing, whole_rows=driver.keeps_late_rows
    )
    driver.sources = sources_of(program.query, frames, encoders)
    start = driver.sources.stream().writeStream.foreachBatch(driver)
    start = start.option("checkpointLocation", checkpoint)
    start = start.trigger(**trigger) if trigger else start
    return (start.queryName(name) if name else start).start()


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
    spark: SparkSession, query: Query, store: Store, options: Options, lease: Lease
) -> tuple[Coordinator, Committed]:
    """Go on from the checkpoint if there is one; what lasts must be what it was."""
    done_by_spark = _last_done_by_spark(store)
    committed = open_manifest(store, lease.number)
    stored = committed.manifest if committed else None
    _must_be_as_new_as_spark(stored, done_by_spark)
    retention_bounds = read_description(stored.query) if stored else None
    default = min(spark.sparkContext.defaultParallelism, MAX_PARTITIONS)
    partitions = options.number("partitions") or (
        retention_bounds.partitions if retention_bounds else default
    )
    groups = options.number("groups") or (
        retention_bounds.groups if retention_bounds else max(256, 4 * partitions)
    )
    policy = MigrationPolicy(
        strategy=next(s for s in STRATEGIES if s == (options.text("strategy") or "auto")),
        background=options.text("background") != "off",
        goal=next(g for g in GOALS if g == (options.text("goal") or "steady")),
    )
    adapt = options.text("adapt") != "off"
    settings = Settings(
        partitions,
        groups,
        options.duration("idleTimeout"),
        adapt,
        policy,
        None
        if options.text("maxEventTimeAhead") == "off"
        else options.duration("maxEventTimeAhead") or ONE_DAY,
        next(c for c in CLOCKS if c == (options.text("eventTimeClock") or "wall")),
    )
    text = options.text("plan")
    plan = parse_plan(text, query.names) if text else default_plan(query)
    if committed is None or stored is None:
        if groups < partitions:
            got = f"{groups} and {partitions}"
            raise OptionError("groups must be at least as many as partitions", got=got)
        coordinator = Coordinator(query, settings)
        return coordinator, begin_manifest(coordinator.first_manifest(uuid.uuid4().hex, plan))
    coordinator = Coordinator.resume(query, settings, stored)
    known = {stored.plan, stored.initial_plan, stored.migration.plan if stored.migration else stored.plan}
    if text and str(plan) not in known:
        raise OptionError(
            f"the plan of a checkpoint must be the one it began with, or has now: {stored.plan}",
            got=text,
            hint="leave the option out to go on with it, and then change it with query.migrate(plan)",
        )
    if done_by_spark > stored.epoch:
        # An epoch whose manifest was damaged runs again; Spark must not think that it is done.
        for name in (f"{done_by_spark}", f".{done_by_spark}.crc"):
            store.delete(f"spark/commits/{name}")
    return coordinator, committed


def _last_done_by_spark(store: Store) -> int:
    """The last batch that Spark has noted as done; -1 if there is none."""
    names = (name.rpartition("/")[2] for name in store.list("spark/commits"))
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _must_be_as_new_as_spark(stored: Manifest | None, last: int) -> None:
    """Refuse manifests that are older than Spark's half by more than one that was damaged."""
    epoch = stored.epoch if stored is not None else -2
    if last > epoch + 1:
        raise CheckpointError(
            f"the newest manifest must be that of batch {last}, which Spark has noted as done",
            got="none" if stored is None else f"that of batch {epoch}",
            hint="manifests were removed, or older ones put back: restore the whole checkpoint from a copy",
        )


@dataclass(frozen=True)
class _Tables:
    """Makes the tables that a run of a query adds to."""

    query: str
    lease: int

    def results(self, path: str, *, private: bool) -> OutputTable:
        """Where results go."""
        return OutputTable("results", path, self.query, private, self.lease).identified()

    def late(self, path: str) -> OutputTable:
        """Where late rows go."""
        return OutputTable("late", path, self.query, lease=self.lease).identified()


def _sink(
    spark: SparkSession,
    query: Query,
    sink: SinkChoice,
    options: Options,
    tables: _Tables,
    checkpoint: str,
    name: str | None,
) -> Sink:
    schema = query.output_schema
    path = options.text("path") if sink == "parquet" else None
    table = tables.results(path or f"{checkpoint}/results", private=path is None)
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

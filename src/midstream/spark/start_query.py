"""Starting a query: check its options, open its checkpoint, finish the last run's publishing, start Spark."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from midstream.engine.encode import make_encoders
from midstream.errors import CheckpointError, OptionError
from midstream.plan.build_layout import build_layout
from midstream.plan.default_plan import default_plan
from midstream.protocol.health import HealthLimits
from midstream.query.query import Query
from midstream.replace.request import make_replacement
from midstream.runtime.epoch_runner import EpochRunner
from midstream.runtime.listeners import Listener
from midstream.runtime.plan_decider import ThreadedDecider
from midstream.spark.ctrl_c import stop_on_ctrl_c
from midstream.spark.exit_hook import stop_at_exit
from midstream.spark.join_arguments import check_session_runs
from midstream.spark.logical_plan import source_folders
from midstream.spark.micro_batch_handler import MicroBatchHandler
from midstream.spark.options import QueryOptions
from midstream.spark.output_tables import QueryTables
from midstream.spark.outputs import CheckPath, Outputs
from midstream.spark.parquet_source import sources_of
from midstream.spark.query import JoinStreamingQuery
from midstream.spark.query_identity import check_name_is_free
from midstream.spark.resume import begin_or_resume
from midstream.spark.row_source import Encoding, Sources
from midstream.spark.session_defaults import check_session_settings, with_session_defaults
from midstream.spark.sink_formats import SinkContext, SinkRequest
from midstream.spark.source_order import check_can_add, fit_checkpoint, in_order
from midstream.spark.spark_checkpoint import spark_folder, temporary_checkpoint
from midstream.spark.task_ranges import TaskRanges
from midstream.spark.trigger import Trigger
from midstream.spark.user_classes import check_user_classes
from midstream.spark.worker_packages import check_workers
from midstream.spark.worker_python import use_this_python
from midstream.storage.checkpoint_folder import check_not_foreign, explain_unusable
from midstream.storage.folder_overlap import check_folders, check_not_sources
from midstream.storage.late_rows import late_columns
from midstream.storage.lease import acquire_lease
from midstream.storage.output_table import ParquetWriter
from midstream.storage.remote import is_remote, store_at
from midstream.storage.request_queue import asked_definition


@dataclass(frozen=True, kw_only=True)
class StartRequest:
    """How a query is to run, and where its results go."""

    options: QueryOptions
    sink: SinkRequest
    trigger: Trigger
    name: str | None
    listeners: Sequence[Listener]
    """Called from the first epoch on."""


def start_query(
    spark: SparkSession, query: Query, frames: Mapping[str, DataFrame], request: StartRequest
) -> JoinStreamingQuery:
    """Start a query; everything that can be wrong is found before Spark starts anything."""
    check_session_runs(spark)
    sink, trigger, name = request.sink, request.trigger, request.name
    request.options.check_sink(sink.format.name)
    options = with_session_defaults(request.options, spark, name)
    sink.format.check(options, name)
    check_name_is_free(spark, name)
    check_session_settings(sink.format.session_settings, spark)
    partition_columns = sink.partition_columns(query.output_schema)
    checkpoint = options.checkpoint_location or temporary_checkpoint()
    # First: a job, and a stream from when it is made, keeps the Python that its tasks run with.
    use_this_python(spark)
    check_user_classes(spark.sparkContext, query)
    check_workers(spark.sparkContext, remote=is_remote(checkpoint))
    store = store_at(checkpoint)
    local_checkpoint = None if is_remote(checkpoint) else checkpoint

    def check_path(path: str | None) -> None:
        check_folders(path, options.late_rows, local_checkpoint)
        check_not_sources({"path": path, "lateRows": options.late_rows}, source_folders(frames))

    check_path(options.path)
    run = uuid.uuid4().hex[:8]
    with explain_unusable("checkpointLocation", checkpoint, CheckpointError):
        check_not_foreign(checkpoint, store)
        lease = acquire_lease(store, run)
    with ExitStack() as on_failure:
        on_failure.callback(lease.release)
        parallelism = spark.sparkContext.defaultParallelism
        coordinator, committed = begin_or_resume(
            query, store, options, lease=lease.number, parallelism=parallelism
        )
        given, query = query, coordinator.query
        tables = QueryTables(
            query=committed.manifest.id[:8],
            lease=lease.number,
            checkpoint=checkpoint,
            compression=options.compression or "snappy",
        )
        context = SinkContext(
            spark=spark, schema=query.output_schema, tables=tables, options=options, query_name=name
        )
        outputs = _make_outputs(sink, context, query, partition_columns, check_path)
        outputs.open_replacement_tables(
            committed.manifest.replacement or asked_definition(store, committed.manifest),
            of_new=coordinator.started_with_new,
        )
        runner = EpochRunner(
            store=store,
            coordinator=coordinator,
            committed=committed,
            publisher=outputs,
            lease=lease,
            run=run,
            decider=ThreadedDecider,
        )
        on_failure.callback(runner.close)
        runner.recover()
        if options.replace is not None:
            _replace(runner, given, frames, options.replace)
        ordered = in_order(runner.manifest, frames)
        fit_checkpoint(store, ordered, frames)
        sources = _make_sources(runner, ordered, parallelism, whole_rows=outputs.keeps_late_rows)
        stream = sources.stream()
        handler = MicroBatchHandler(
            runner=runner,
            session=stream.sparkSession,
            sources=sources,
            outputs=outputs,
            lease=lease,
            limits=HealthLimits(late_share=options.late_share_warning, interval_ms=trigger.interval_ms()),
        )
        for listener in request.listeners:
            handler.reporter.listeners.add(listener)
        # If another driver has taken over, two Sparks must not write to the same half of the checkpoint.
        lease.check()
        running = _start_spark(stream, handler, spark_folder(checkpoint), trigger, name)
        on_failure.pop_all()
    is_bounded = bool(trigger.available_now or trigger.once)
    handle = JoinStreamingQuery(running, handler, is_bounded=is_bounded)
    stop_on_ctrl_c(handle)
    stop_at_exit(handle)
    return handle


def _make_outputs(
    sink: SinkRequest,
    context: SinkContext,
    query: Query,
    partition_columns: tuple[str, ...],
    check_path: CheckPath,
) -> Outputs:
    """The sink of the results, and the folder of late rows if there is one."""
    built, tables, options = sink.format.build(context), context.tables, context.options
    late_table = tables.late_rows_in(options.late_rows) if options.late_rows else None
    writer = ParquetWriter(built.table, late_table, context.schema, late_columns(query), partition_columns)
    return Outputs(
        built,
        late_table,
        writer,
        path=options.path,
        open_table=tables.results_in,
        check_path=check_path,
        check_columns=sink.partition_columns,
    )


def _replace(runner: EpochRunner, given: Query, frames: Mapping[str, DataFrame], strategy: str) -> None:
    """Let the definition that is given replace that of the checkpoint, if it is another one.

    What is due already, because it was requested before, goes on.
    """
    coordinator, manifest = runner.coordinator, runner.manifest
    if given in coordinator.known and not runner.requests.is_replacing(manifest):
        added = [name for name in given.names if name not in coordinator.query.by_name]
        if added and runner.requests.is_changing_plan(manifest):
            raise OptionError(
                "a stream must be added by a replacement that can begin at once: its rows would be read and "
                "not be joined until then",
                got=f"stream {added[0]}, and a change of plan that has not ended",
                hint="start the query as it was until the change of plan has ended",
            )
        check_can_add(manifest, frames)
        runner.request_replacement(make_replacement(runner.running, given, None, strategy, ""), given)


def _make_sources(
    runner: EpochRunner, frames: Mapping[str, DataFrame], cores: int, *, whole_rows: bool
) -> Sources:
    """The sources, with encoders for the plan of the next epoch.

    If that epoch changes the plan after all, and with it where rows go, they are encoded again.
    """
    program = runner.coordinator.program(runner.manifest, runner.new_intent(0, None))
    programs = [program] if program.successor is None else [program, program.successor]
    layouts = {each.query: each.layout for each in programs}
    # A definition that waits gets its rows from the same stream once it begins.
    known = runner.coordinator.known if program.replacement is None else ()
    waiting = [query for query in known if query not in layouts]
    layouts |= {query: build_layout(query, default_plan(query)) for query in waiting}
    encodings = [
        Encoding(query, make_encoders(query, layout, program.places, whole_rows=whole_rows))
        for query, layout in layouts.items()
    ]
    ranges = TaskRanges.for_places(program.places, cores, {})
    return sources_of(encodings, frames, ranges)


def _start_spark(
    stream: DataFrame, handler: MicroBatchHandler, folder: str, trigger: Trigger, name: str | None
) -> StreamingQuery:
    """Let Spark call the handler with each micro-batch of the stream."""
    start = stream.writeStream.foreachBatch(handler).option("checkpointLocation", folder)
    arguments = trigger.arguments()
    start = start.trigger(**arguments) if arguments else start
    return (start.queryName(name) if name else start).start()

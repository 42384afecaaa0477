"""The driver of a running query: Spark calls it with each micro-batch, which it runs as the next epoch.

Spark commits its offsets when the call returns. If the process dies before that, Spark gives the same batch
again under the same number, and the newest manifest says whether its epoch was committed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark import RDD
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from midstream.engine.encode import make_encoders
from midstream.engine.program import Program
from midstream.errors import CheckpointError, MidstreamError, error_fields, error_from
from midstream.migration.request import BackgroundChoice
from midstream.plan.tree import Plan
from midstream.protocol.coordinator import Coordinator
from midstream.protocol.health import HealthLimits
from midstream.protocol.progress import QueryIdentity
from midstream.protocol.report import Report, add_reports
from midstream.protocol.trigger_facts import TriggerFacts
from midstream.runtime.epoch_reporter import EpochReporter
from midstream.runtime.epoch_runner import EpochRunner
from midstream.spark.background_budget import BackgroundBudget
from midstream.spark.failures import failed_job
from midstream.spark.messages import EPOCH_PROPERTY, AddressedMessage, ControlMessage
from midstream.spark.own_slices import slice_messages, slices_by_task
from midstream.spark.publisher import results_among
from midstream.spark.query_identity import identity_of, running_query
from midstream.spark.row_source import Sources
from midstream.spark.shuffle import shuffle
from midstream.spark.sinks import Sink
from midstream.spark.site_tasks import at_sites, executor_ids, find_site_hosts
from midstream.spark.source_facts import SourceFacts
from midstream.spark.stage_task import move_task, stage_task
from midstream.spark.stopping import BatchStopped, is_caused_by_stopping
from midstream.spark.task_ranges import SiteHosts, TaskRanges
from midstream.state.manifest import Manifest
from midstream.storage.lease import Lease
from midstream.storage.output_table import ParquetWriter
from midstream.storage.store import Store

# How long a thread that waits for an epoch of another sleeps before it looks again.
_PATIENCE_SECONDS = 0.1


class MicroBatchHandler:
    """Runs the epochs of one query."""

    def __init__(
        self,
        *,
        runner: EpochRunner,
        session: SparkSession,
        sources: Sources,
        sink: Sink,
        writer: ParquetWriter,
        lease: Lease,
        limits: HealthLimits,
    ) -> None:
        """``session`` runs the query; ``limits`` say when it has a problem."""
        self.runner = runner
        self.lease = lease
        self.reporter = EpochReporter(runner.coordinator.query, limits)
        self.error: MidstreamError | None = None
        self._session = session
        self._sources = sources
        self._source_facts = SourceFacts(session, sources.frames)
        self._sink = sink
        self._writer = writer
        self._budget = BackgroundBudget(limits.interval_ms)
        self._hosts: SiteHosts = {}
        self._executors: frozenset[str] | None = None
        """Those that there were when their hosts were looked for; None before."""
        self._thread: int | None = None
        """That of the epoch that is running."""
        self._epochs = threading.Condition()
        """Held while an epoch runs: those without a batch run in other threads than batches."""
        self._ends = False
        self._gives_up = False
        self._is_closed = False

    @property
    def coordinator(self) -> Coordinator:
        """Plans and commits the epochs."""
        return self.runner.coordinator

    @property
    def manifest(self) -> Manifest:
        """What is committed."""
        return self.runner.manifest

    def migrate(self, plan: str | Plan, strategy: str | None, *, background: BackgroundChoice | None) -> None:
        """Request another plan; None means what the options say."""
        policy = self.coordinator.settings.policy
        request = policy.request(self.coordinator.query, plan, strategy, background=background)
        self.runner.request_migration(request)

    def rescale(self, partitions: int) -> None:
        """Request another number of engine partitions."""
        self.runner.request_rescale(partitions)

    def close(self) -> None:
        """The query has ended: give the lease back, and wait for what still decides about the plan."""
        with self._epochs:  # one without a batch may be running
            self._is_closed = True
            self.lease.release()
        self.runner.close()

    def runs_in_this_thread(self) -> bool:
        """Whether this is called from a batch: by a listener, or the function of ``foreachBatch``."""
        return self._thread == threading.get_ident()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Run one micro-batch; an error is kept in ``error``, because Spark passes on only its text."""
        running = running_query(self._session, batch)
        try:
            with self._epochs:
                while self._ends and running.isActive:
                    # All that was owed is made, and the query is about to be stopped.
                    self._epochs.wait(_PATIENCE_SECONDS)
                if self._ends:
                    raise BatchStopped(running.runId)
                with self._in_this_thread():
                    self._epoch(batch, batch_id, identity_of(running))
                self._epochs.notify_all()
        except Exception as error:
            if not running.isActive and is_caused_by_stopping(error):
                raise BatchStopped(running.runId) from None
            if not isinstance(error, MidstreamError):
                raise
            self.error = error
            # Spark logs what it is given, twice. The causes are for whoever waits for the query.
            raise error_from(error_fields(error)) from None

    def drain(self, running: StreamingQuery, *, ends: bool = False) -> bool:
        """Make all that spilled groups owe, in epochs without a batch; False if the query ends before.

        ``ends`` if no batch may follow.
        """
        with self._epochs:
            while self.coordinator.owes(self.manifest):
                if self._gives_up or self._is_closed:
                    return False
                if self._epoch_without_batch(identity_of(running)):
                    continue
                if not running.isActive:
                    return False
                # A batch that was begun before a restart comes first.
                self._epochs.wait(_PATIENCE_SECONDS)
            self._ends = self._ends or ends
        return True

    def give_up_draining(self) -> None:
        """The query is being stopped: a drain ends with the epoch that is running."""
        self._gives_up = True

    def _epoch_without_batch(self, identity: QueryIdentity) -> bool:
        """Run an epoch without a batch; False if a batch was begun, and has to run first."""
        before = self.manifest
        trigger = TriggerFacts(started=datetime.now(UTC), previous=None)
        with self._in_this_thread():
            report = self.runner.run_drain_epoch(self._execution(None), time.time_ns() // 1000)
            if report is None:
                return False
            self.reporter.report(
                identity,
                before=before,
                after=self.manifest,
                report=report,
                trigger=trigger,
                duration_ms=self.runner.millis,
            )
        return True

    @contextmanager
    def _in_this_thread(self) -> Iterator[None]:
        """For an epoch, or one within it. No other thread may be in one: the lock of epochs must be held."""
        outside, self._thread = self._thread, threading.get_ident()
        try:
            yield
        finally:
            self._thread = outside

    def _execution(self, batch: DataFrame | None) -> _SparkExecution:
        return _SparkExecution(
            batch=batch,
            session=self._session if batch is None else batch.sparkSession,
            store=self.runner.store,
            coordinator=self.coordinator,
            sources=self._sources,
            sink=self._sink,
            writer=self._writer,
            hosts=self._site_hosts(),
        )

    def _site_hosts(self) -> SiteHosts:
        """The hosts at each site, looked for again when there are other executors."""
        if self.coordinator.query.topology is None:
            return {}
        context = self._session.sparkContext
        if (executors := executor_ids(context)) != self._executors:
            self._hosts, self._executors = find_site_hosts(context), executors
        return self._hosts

    def _epoch(self, batch: DataFrame, batch_id: int, identity: QueryIdentity) -> None:
        self.runner.bind(identity.id)
        before = self.manifest
        if batch_id == before.batch:
            # The batch was committed, but Spark had not recorded that it was done.
            self.runner.publish()
            return
        if batch_id != before.batch + 1:
            # If another driver took over while this one started, Spark continues after that driver's batches.
            self.lease.check()
            raise CheckpointError(
                f"the next batch must be {before.batch + 1}, the one after the last manifest",
                got=batch_id,
                hint="the folder 'spark' of the checkpoint does not belong to its manifests; restore both",
            )
        shell = self._execution(batch)
        while (report := self.runner.run_epoch(shell, time.time_ns() // 1000, self._budget.next())) is None:
            # An epoch without a batch was begun, by a driver before this one or by a drain that failed.
            self._epoch_without_batch(identity)
            before = self.manifest
        self._budget.learn(self.runner.migration_step, self.runner.millis["total"])
        if not self._sources.counted_by_spark:
            self._source_facts.count_rows(batch, {name: count.rows for name, count in report.counts.items()})
        self.reporter.report(
            identity,
            before=before,
            after=self.manifest,
            report=report,
            trigger=self._source_facts.trigger(batch),
            duration_ms=self.runner.millis,
        )


@dataclass(frozen=True, kw_only=True)
class _SparkExecution:
    """One epoch on Spark, with the rows of a micro-batch."""

    batch: DataFrame | None
    """None if the epoch has no batch."""
    session: SparkSession
    store: Store
    coordinator: Coordinator
    sources: Sources
    sink: Sink
    writer: ParquetWriter
    hosts: SiteHosts
    """The hosts at each site, if streams live at sites."""

    def run(self, program: Program) -> Report:
        """One Spark job."""
        try:
            return self._run_job(program)
        except (Py4JJavaError, PySparkException) as error:
            raise failed_job(error, program.epoch) from error

    def _run_job(self, program: Program) -> Report:
        """A shuffle before each stage of the layout."""
        context = self.session.sparkContext
        context.setLocalProperty(EPOCH_PROPERTY, str(program.epoch))
        encoders = make_encoders(
            program.query, program.layout, program.places, whole_rows=self.writer.keeps_late_rows
        )
        ranges = TaskRanges.for_places(program.places, context.defaultParallelism, self.hosts)
        messages: RDD[AddressedMessage] = (
            context.parallelize([], 1)
            if self.batch is None
            else self.sources.messages(self.batch, encoders, ranges)
        )
        # An epoch that was begun before a restart may have had other outputs.
        writer = replace(self.writer, schema=program.query.output_schema)
        if program.migration_step is not None and program.migration_step.moves:
            tasks = context.parallelize(slices_by_task(program, ranges), ranges.tasks)
            if ranges.hosts:
                tasks = at_sites(tasks, ranges.sites, ranges.hosts)
            moved = tasks.mapPartitionsWithIndex(move_task(program, ranges, self.store))
            messages = messages.union(moved)
        from_driver = slice_messages(program, ranges)
        for stage in range(program.stages):
            task = stage_task(program, stage, ranges, self.store, writer)
            shuffled = shuffle(messages, ranges.tasks, from_driver)
            if ranges.hosts:
                shuffled = at_sites(shuffled, ranges.sites, ranges.hosts)
            messages = shuffled.mapPartitionsWithIndex(task)
            from_driver = []  # tasks pass on what later stages need
        reports = [message for message in messages.values().collect() if isinstance(message, ControlMessage)]
        for message in reports:
            if message.kind == "error":
                raise error_from(msgspec.json.decode(message.blob))
        return add_reports(message.blob for message in reports)

    def prepare(self, program: Program, report: Report) -> None:
        """Let the sink prepare the results."""
        results, schema = results_among(report.outputs), program.query.output_schema
        self.sink.prepare(self.session, program.epoch, results, schema)

"""The driver of a running query: Spark calls it with each micro-batch, which it runs as the next epoch.

Spark commits its offsets when the call returns. If the process dies before that, Spark gives the same batch
again under the same number, and the newest manifest says whether its epoch was committed.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace

import msgspec
from pyspark.sql import DataFrame, SparkSession

from midstream.engine.encode import make_encoders
from midstream.engine.program import Program
from midstream.errors import CheckpointError, MidstreamError, error_from
from midstream.migration.request import BackgroundChoice
from midstream.plan.tree import Plan
from midstream.protocol.coordinator import Coordinator
from midstream.protocol.health import HealthLimits
from midstream.protocol.progress import QueryIdentity
from midstream.protocol.report import Report, add_reports
from midstream.runtime.epoch_reporter import EpochReporter
from midstream.runtime.epoch_runner import EpochRunner
from midstream.spark.background_budget import BackgroundBudget
from midstream.spark.messages import ControlMessage
from midstream.spark.publisher import results_among
from midstream.spark.query_identity import identity_of, running_query
from midstream.spark.row_source import Sources
from midstream.spark.shuffle import shuffle
from midstream.spark.sinks import Sink
from midstream.spark.source_facts import SourceFacts
from midstream.spark.stage_task import move_task, stage_task
from midstream.spark.stopping import BatchStopped, is_caused_by_stopping
from midstream.state.manifest import Manifest
from midstream.storage.lease import Lease
from midstream.storage.output_table import ParquetWriter
from midstream.storage.store import Store


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
        self._thread: int | None = None

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
        query, settings = self.coordinator.query, self.coordinator.settings
        request = settings.policy.request(query, plan, strategy, background=background)
        settings.check_plan(query, request.plan)
        self.runner.request_migration(request)

    def runs_in_this_thread(self) -> bool:
        """Whether this is called from a batch: by a listener, or the function of ``foreachBatch``."""
        return self._thread == threading.get_ident()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Run one micro-batch; an error is kept in ``error``, because Spark passes on only its text."""
        running = running_query(self._session, batch)
        self._thread = threading.get_ident()
        try:
            self._epoch(batch, batch_id, identity_of(running))
        except Exception as error:
            if not running.isActive and is_caused_by_stopping(error):
                raise BatchStopped(running.runId) from None
            if isinstance(error, MidstreamError):
                self.error = error
            raise
        finally:
            self._thread = None

    def _epoch(self, batch: DataFrame, batch_id: int, identity: QueryIdentity) -> None:
        self.runner.bind(identity.id)
        before = self.manifest
        if batch_id == before.epoch:
            # The batch was committed, but Spark had not recorded that it was done.
            self.runner.publish()
            return
        if batch_id != before.epoch + 1:
            # If another driver took over while this one started, Spark continues after that driver's batches.
            self.lease.check()
            raise CheckpointError(
                f"the next batch must be {before.epoch + 1}, the one after the last manifest",
                got=batch_id,
                hint="the folder 'spark' of the checkpoint does not belong to its manifests; restore both",
            )
        shell = _SparkExecution(
            batch=batch,
            store=self.runner.store,
            coordinator=self.coordinator,
            sources=self._sources,
            sink=self._sink,
            writer=self._writer,
        )
        report = self.runner.run_epoch(shell, time.time_ns() // 1000, self._budget.next())
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

    batch: DataFrame
    store: Store
    coordinator: Coordinator
    sources: Sources
    sink: Sink
    writer: ParquetWriter

    def run(self, program: Program) -> Report:
        """One Spark job: a shuffle before each stage of the layout."""
        context = self.batch.sparkSession.sparkContext
        encoders = make_encoders(
            program.query, program.layout, program.routing, whole_rows=self.writer.keeps_late_rows
        )
        messages = self.sources.messages(self.batch, encoders)
        # An epoch that was begun before a restart may have had other outputs.
        writer = replace(self.writer, schema=program.query.output_schema)
        partitions = self.coordinator.settings.partitions
        if program.migration_step is not None and program.migration_step.moves:
            tasks = context.parallelize(range(partitions), partitions)
            messages = messages.union(tasks.mapPartitionsWithIndex(move_task(program, self.store)))
        for stage in range(program.layout.stages):
            task = stage_task(program, stage, self.store, writer)
            messages = shuffle(messages, partitions).mapPartitionsWithIndex(task)
        reports = messages.values().collect()
        for message in reports:
            if isinstance(message, ControlMessage) and message.kind == "error":
                raise error_from(msgspec.json.decode(message.blob))
        return add_reports(message.blob for message in reports if message.kind == "report")

    def prepare(self, program: Program, report: Report) -> None:
        """Let the sink prepare the results."""
        results, schema = results_among(report.outputs), program.query.output_schema
        self.sink.prepare(self.batch.sparkSession, program.epoch, results, schema)

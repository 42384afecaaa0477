"""The driver of a running query: Spark calls it with each micro-batch, which it runs as the next epoch.

Spark commits its offsets when the call returns. If the process dies before that, Spark gives the same batch
again under the same number, and the newest manifest says whether its epoch was committed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec
from pyspark.sql import DataFrame

from midstream.engine.encode import make_encoders
from midstream.engine.program import Program
from midstream.errors import CheckpointError, InternalError, MidstreamError, OptionError, error_from
from midstream.migration.request import make_request
from midstream.plan.tree import Plan
from midstream.protocol.coordinator import Coordinator
from midstream.protocol.progress import QueryIdentity
from midstream.protocol.report import Report, add_reports
from midstream.runtime.epoch_reporter import EpochReporter
from midstream.runtime.epoch_runner import EpochRunner
from midstream.spark.background_budget import BackgroundBudget
from midstream.spark.messages import ERROR, REPORT
from midstream.spark.row_source import Sources, query_id
from midstream.spark.shuffle import shuffle
from midstream.spark.sinks import Sink
from midstream.spark.stage_task import move_task, stage_task
from midstream.state.manifest import Manifest, OutputFile
from midstream.storage.lease import Lease
from midstream.storage.output_table import ParquetWriter
from midstream.storage.store import Store


class Driver:
    """Runs the epochs of one query."""

    def __init__(
        self,
        ledger: EpochRunner,
        sink: Sink,
        writer: ParquetWriter,
        lease: Lease,
        interval: float | None,
        name: str | None,
    ) -> None:
        """``interval`` is the time between triggers in milliseconds, if there is such a time.

        ``name`` is the one that the user gave the query.
        """
        self.sources: Sources | None = None
        self.ledger = ledger
        self.lease = lease
        self.reporter = EpochReporter(ledger.coordinator.query)
        self.error: MidstreamError | None = None
        self._name = name
        self._identity: QueryIdentity | None = None
        self._sink = sink
        self._writer = writer
        self._pace = BackgroundBudget(interval)

    @property
    def coordinator(self) -> Coordinator:
        """What decides between epochs."""
        return self.ledger.coordinator

    @property
    def manifest(self) -> Manifest:
        """What is committed."""
        return self.ledger.manifest

    @property
    def keeps_late_rows(self) -> bool:
        """Whether late rows are written, which then need all their columns."""
        return self._writer.late_table is not None

    def recover(self) -> None:
        """On start: finish what the last run left half done."""
        self.ledger.recover(self._shell(None))

    def migrate(self, plan: str | Plan, strategy: str | None, background: str | None) -> None:
        """Ask for another plan; what is not said is as the options say."""
        if background not in (None, "auto", "off"):
            raise OptionError("background must be one of auto, off", got=repr(background))
        query, policy = self.coordinator.query, self.coordinator.settings.policy
        wanted = policy.background if background is None else background == "auto"
        self.ledger.ask(make_request(query, plan, strategy or policy.strategy, background=wanted))

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """One micro-batch; what goes wrong is kept, because Spark passes on only its text."""
        try:
            self._epoch(batch, batch_id)
        except MidstreamError as error:
            self.error = error
            raise

    def _epoch(self, batch: DataFrame, batch_id: int) -> None:
        shell = self._shell(batch)
        # Read once, before a foreachBatch function of the user can have set another job group.
        self._identity = self._identity or _identity(batch, self._name)
        self.ledger.bind(self._identity.id)
        before = self.manifest
        if batch_id == before.epoch:
            # Spark had not noted that this batch was done. It was: its manifest is there.
            self.ledger.publish(shell, again=True)
            return
        if batch_id != before.epoch + 1:
            # If somebody has taken over while this one started, Spark goes on after what that one did.
            self.lease.check()
            raise CheckpointError(
                f"the next batch must be {before.epoch + 1}, the one after the last manifest",
                got=batch_id,
                hint="the folder 'spark' of the checkpoint does not belong to its manifests; restore both",
            )
        report = self.ledger.run_epoch(shell, time.time_ns() // 1000, self._pace.next())
        if self.ledger.course is not None:
            self._pace.learn(self.ledger.course, self.ledger.millis["total"])
        self.reporter.report(
            self._identity,
            before=before,
            after=self.manifest,
            report=report,
            duration_ms=self.ledger.millis,
        )

    def _shell(self, batch: DataFrame | None) -> _SparkShell:
        return _SparkShell(batch, self.ledger.store, self.coordinator, self._sink, self._writer, self.sources)


@dataclass(frozen=True)
class _SparkShell:
    """One micro-batch as the ledger sees it."""

    batch: DataFrame | None
    store: Store
    coordinator: Coordinator
    sink: Sink
    writer: ParquetWriter
    sources: Sources | None

    def run(self, program: Program) -> Report:
        """One Spark job: a shuffle and a stage for each level of the layout."""
        if self.sources is None:
            raise InternalError("an epoch must have sources", got="none")
        context = self._rows().sparkSession.sparkContext
        encoders = make_encoders(
            program.query, program.layout, program.routing, whole_rows=self.writer.late_table is not None
        )
        messages = self.sources.messages(self._rows(), encoders)
        partitions = self.coordinator.settings.partitions
        if program.course.moves:
            every = context.parallelize(range(partitions), partitions)
            messages = messages.union(every.mapPartitionsWithIndex(move_task(program, self.store)))
        for stage in range(program.layout.stages):
            task = stage_task(program, stage, self.store, self.writer)
            messages = shuffle(messages, partitions).mapPartitionsWithIndex(task)
        reports = messages.values().collect()
        for message in reports:
            if message.input == ERROR:
                raise error_from(msgspec.json.decode(message.blob))
        return add_reports(message.blob for message in reports if message.input == REPORT)

    def prepare(self, epoch: int, report: Report) -> None:
        """Let the sink take the results, if it takes them itself."""
        self.sink.prepare(self._rows().sparkSession, epoch, _results(report.outputs))

    def publish(self, manifest: Manifest, *, again: bool) -> None:
        """Make results and late rows visible."""
        self.sink.publish(manifest.epoch, _results(manifest.outputs), again=again)
        late = [output for output in manifest.outputs if output.table == "late"]
        if self.writer.late_table is not None:
            self.writer.late_table.publish(late, again_of=manifest.epoch if again else None)
        elif late:
            raise CheckpointError(
                "late rows of a committed epoch must be published",
                got="no option lateRows",
                hint="start the query once more with the lateRows that it had",
            )

    def sweep(self) -> None:
        """Remove staged files; those of a committed epoch have been published by now."""
        self.sink.table.sweep()
        if self.writer.late_table is not None:
            self.writer.late_table.sweep()

    def _rows(self) -> DataFrame:
        if self.batch is None:
            raise CheckpointError("an epoch must have a micro-batch", got="none")
        return self.batch


def _identity(batch: DataFrame, name: str | None) -> QueryIdentity:
    """The ids that Spark gave the query; an epoch may end before ``start()`` returns the handle with them."""
    # Spark runs the jobs of a streaming query as a group that is called by the id of the run.
    run_id = str(batch.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id"))
    return QueryIdentity(query_id(batch), run_id, name)


def _results(outputs: tuple[OutputFile, ...]) -> list[OutputFile]:
    return [output for output in outputs if output.table == "results"]

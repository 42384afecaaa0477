"""One epoch on Spark: a job for each box that takes part in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec
from msgspec.structs import replace as replace_struct
from py4j.protocol import Py4JJavaError
from pyspark import RDD, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from midstream.engine.encode import make_encoder
from midstream.engine.program import Program
from midstream.errors import error_from
from midstream.protocol.report import Report, add_reports
from midstream.spark.failures import failed_job
from midstream.spark.messages import EPOCH_PROPERTY, AddressedMessage, ControlMessage
from midstream.spark.outputs import Outputs
from midstream.spark.row_source import Encoders, Sources
from midstream.spark.shuffle import shuffle
from midstream.spark.site_tasks import at_sites
from midstream.spark.stage_task import move_task, replay_task, stage_task
from midstream.spark.task_ranges import SiteHosts, TaskRanges
from midstream.spark.task_slices import slice_messages, slices_by_task
from midstream.storage.store import Store

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class SparkExecution:
    """One epoch on Spark, with the rows of a micro-batch."""

    batch: DataFrame | None
    """None if the epoch has no batch."""
    session: SparkSession
    store: Store
    sources: Sources
    outputs: Outputs
    hosts: SiteHosts
    """The hosts at each site, if streams live at sites."""

    def run(self, program: Program) -> Report:
        """One Spark job, and another one for a new box."""
        try:
            report = self._run_job(program)
            if program.successor is None:
                return report
            successor = Report() if program.successor.is_idle else self._run_job(program.successor)
            return replace_struct(report, successor=successor)
        except (Py4JJavaError, PySparkException) as error:
            raise failed_job(error, program.epoch) from error

    def _run_job(self, program: Program) -> Report:
        """A shuffle before each stage of the layout."""
        context = self.session.sparkContext
        context.setLocalProperty(EPOCH_PROPERTY, str(program.epoch))
        ranges = TaskRanges.for_places(program.places, context.defaultParallelism, self.hosts)
        sources = [self._arriving(context, program, ranges)]
        writer = self.outputs.writer(program)
        if program.migration_step is not None and program.migration_step.moves:
            tasks = _at_their_sites(
                context.parallelize(slices_by_task(program, ranges), ranges.tasks), ranges
            )
            sources.append(tasks.mapPartitionsWithIndex(move_task(program, ranges, self.store)))
        if program.replay is not None:
            old = program.replay.source
            senders = TaskRanges.for_cores(old.places.partitions, context.defaultParallelism)
            tasks = context.parallelize(slices_by_task(old, senders), senders.tasks)
            replay = replay_task(program, program.replay, senders, ranges, self.store)
            sources.append(tasks.mapPartitionsWithIndex(replay))
        from_driver = slice_messages(program, ranges)
        for stage in range(program.stages):
            task = stage_task(program, stage, ranges, self.store, writer)
            shuffled = _at_their_sites(shuffle(sources, ranges.tasks, from_driver), ranges)
            messages = shuffled.mapPartitionsWithIndex(task)
            sources = [messages]
            from_driver = []  # tasks pass on what later stages need
        reports = [message for message in messages.values().collect() if isinstance(message, ControlMessage)]
        for message in reports:
            if message.kind == "error":
                raise error_from(msgspec.json.decode(message.blob))
        return add_reports(message.blob for message in reports)

    def _arriving(self, context: SparkContext, program: Program, ranges: TaskRanges) -> RDD[AddressedMessage]:
        """The rows of the batch that a box takes."""
        encoders = encoders_of(program, whole_rows=self.outputs.keeps_late_rows)
        if self.batch is None or not encoders:
            return context.parallelize([], 1)
        return self.sources.messages(self.batch, encoders, ranges)

    def prepare(self, program: Program, report: Report) -> None:
        """Let the sink prepare the results."""
        outputs = (*report.outputs, *(report.successor.outputs if report.successor is not None else ()))
        self.outputs.prepare(self.session, program, outputs)


def _at_their_sites(rdd: RDD[T], ranges: TaskRanges) -> RDD[T]:
    """The same partitions, those of sites where their tasks should run."""
    return at_sites(rdd, ranges.sites, ranges.hosts) if ranges.hosts else rdd


def encoders_of(program: Program, *, whole_rows: bool) -> Encoders:
    """The encoders of the streams whose new rows a box takes."""
    query, places = program.query, program.places
    return {
        name: make_encoder(query, program.layout, name, places, whole_rows=whole_rows)
        for name in query.names
        if name not in program.withheld_streams
    }

"""What Spark knows of the sources of the running micro-batch, and what it must be told about them.

Spark reports progress only after a micro-batch has ended, so that of the running one is read from the objects
that Spark makes it from. These are internals, which may change: what cannot be read is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from midstream.errors import InternalError
from midstream.protocol.trigger_facts import FileCount, SourceOffsets, TriggerFacts
from midstream.spark.query_identity import query_id, stream_execution

_REPORTS_METRICS = "org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics"
# How the leaves of Spark's plan of a stream give their source.
_SOURCE_OF_LEAF = {
    "StreamingExecutionRelation": "source",
    "StreamingDataSourceV2Relation": "stream",
    "StreamingDataSourceV2ScanRelation": "stream",
}

# What internals of Spark raise that are not as they were. Figures are not worth ending a query for.
_UNKNOWN = (Py4JError, PySparkException, InternalError)


@dataclass(frozen=True)
class _Source:
    """One of Spark's sources, with what stays the same while a query runs: asking the JVM takes time."""

    handle: Any
    description: str
    reports_metrics: bool
    unread_files: Any | None
    """The field of a source of files with what it has found and not read yet, if it keeps that."""


class SourceFacts:
    """The sources that Spark reads for each stream of one query, while it runs."""

    def __init__(self, session: SparkSession, frames: Mapping[str, DataFrame]) -> None:
        """``session`` runs the query, ``frames`` are its streams in the order in which Spark has them."""
        self._session = session
        self._frames = frames
        self._sources: dict[str, list[_Source]] | None = None
        self._file_counts: dict[tuple[str, int], FileCount] = {}
        """Of sources of files, by stream and position."""

    def trigger(self, batch: DataFrame) -> TriggerFacts:
        """When the running micro-batch was triggered, and what it reads of each source."""
        now = datetime.now(UTC)
        try:
            execution = stream_execution(self._session, query_id(batch))
            context = execution.getLatestExecutionContext()
            previous = context.lastTriggerStartTimestamp()
            return TriggerFacts(
                started=_moment(context.currentTriggerStartTimestamp()),
                previous=None if previous < 0 else _moment(previous),
                sources=self._offsets(execution, context),
            )
        except _UNKNOWN:
            return TriggerFacts(started=now)

    def count_rows(self, batch: DataFrame, rows: Mapping[str, int]) -> None:
        """Let Spark count the rows of a micro-batch that tasks have read without it.

        Its progress, its listeners and its pages have what the scans of its plan have counted.
        """
        try:
            execution = stream_execution(self._session, query_id(batch))
            sources = self._sources_of(execution)
            uncounted = {name: own[0].handle for name, own in sources.items() if rows.get(name)}
            counted = []
            for scan in _leaves(execution.lastExecution().executedPlan()):
                # A source without new files has no scan.
                if not scan.nodeName().startswith("Scan "):
                    continue
                # Streams that are the same DataFrame share a source, and have a scan each.
                source = scan.getStream().get()
                name = next((name for name, handle in uncounted.items() if handle == source), None)
                if name is not None:
                    del uncounted[name]
                    metric = scan.metrics().apply("numOutputRows")
                    metric.add(rows[name])
                    counted.append(metric)
            _show(batch.sparkSession.sparkContext, counted)
        except _UNKNOWN:
            return

    def _sources_of(self, execution: Any) -> dict[str, list[_Source]]:
        """Spark's sources of each stream; they stay the same as long as the query runs."""
        if self._sources is None:
            self._sources = self._find_sources(execution)
        return self._sources

    def _find_sources(self, execution: Any) -> dict[str, list[_Source]]:
        # The plan is the union of the frames: its leaves are theirs, one frame after the other.
        leaves = _leaves(execution.logicalPlan())
        own = {name: _leaves(frame._jdf.queryExecution().analyzed()) for name, frame in self._frames.items()}
        if sum(map(len, own.values())) != len(leaves):
            return {}
        rest = iter(leaves)
        context = self._session.sparkContext
        return {name: _sources_in(context, [next(rest) for _ in own[name]]) for name in own}

    def _offsets(self, execution: Any, context: Any) -> dict[str, tuple[SourceOffsets, ...]]:
        start, end, latest = context.startOffsets(), context.endOffsets(), context.latestOffsets()

        def offsets(name: str, position: int, source: _Source) -> SourceOffsets:
            reached = end.get(source.handle)
            files = None
            if source.unread_files is not None:
                files = FileCount.of(_unread_files(source), self._file_counts.get((name, position)))
                self._file_counts[name, position] = files
            return SourceOffsets(
                description=source.description,
                start_offset=_json(start.get(source.handle)),
                end_offset=_json(reached),
                latest_offset=_json(latest.get(source.handle)),
                metrics=self._metrics(source, reached),
                files=files,
            )

        return {
            name: tuple(offsets(name, position, source) for position, source in enumerate(sources))
            for name, sources in self._sources_of(execution).items()
        }

    def _metrics(self, source: _Source, reached: Any) -> dict[str, str]:
        if not source.reports_metrics:
            return {}
        end = reached.get() if reached.isDefined() else None
        return source_metrics(self._session.sparkContext, source.handle, end)


def source_metrics(context: SparkContext, source: Any, end: Any | None) -> dict[str, str]:
    """The figures of a source that has some, such as how far it is behind after the offset ``end``."""
    metrics = source.metrics(_jvm(context).java.util.Optional.ofNullable(end))
    return {str(name): str(value) for name, value in metrics.items()}


def reports_metrics(context: SparkContext, source: Any) -> bool:
    """Whether a source has figures of its own."""
    return bool(is_instance_of(context._gateway, source, _REPORTS_METRICS))


def _sources_in(context: SparkContext, leaves: Sequence[Any]) -> list[_Source]:
    """The sources of a stream; it may be joined with a static DataFrame, whose leaf has none."""
    getters = ((leaf, _SOURCE_OF_LEAF.get(leaf.getClass().getSimpleName())) for leaf in leaves)
    handles = [getattr(leaf, getter)() for leaf, getter in getters if getter is not None]
    return [
        _Source(handle, handle.toString(), reports_metrics(context, handle), _unread_files_field(handle))
        for handle in handles
    ]


def _unread_files_field(source: Any) -> Any | None:
    if source.getClass().getSimpleName() != "FileStreamSource":
        return None
    lists_all = _private(source, "allFilesForTriggerAvailableNow").get(source) is not None
    # Such a source looks for files anew with each micro-batch, and keeps none.
    if lists_all or _private(source, "sourceOptions").get(source).latestFirst():
        return None
    return _private(source, "unreadFiles")


def _unread_files(source: _Source) -> int:
    unread = source.unread_files.get(source.handle) if source.unread_files is not None else None
    return 0 if unread is None else int(unread.size())


def _private(source: Any, name: str) -> Any:
    field = source.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field


def _leaves(plan: Any) -> list[Any]:
    leaves = plan.collectLeaves()
    return [leaves.apply(i) for i in range(leaves.size())]


def _show(context: SparkContext, metrics: list[Any]) -> None:
    """Show metrics in Spark's page of the plan of the micro-batch as well."""
    execution_id = context.getLocalProperty("spark.sql.execution.id")
    if execution_id is not None:
        post = _jvm(context).org.apache.spark.sql.execution.metric.SQLMetrics.postDriverMetricUpdates
        post(context._jsc.sc(), execution_id, _jvm(context).PythonUtils.toSeq(metrics))


def _jvm(context: SparkContext) -> Any:
    return context._jvm


def _json(offset: Any) -> str | None:
    """The JSON of an offset that may be missing."""
    return str(offset.get().json()) if offset.isDefined() else None


def _moment(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)

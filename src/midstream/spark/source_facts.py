"""What Spark knows of the sources of the running micro-batch, and what it must be told about them.

Spark reports progress only after a micro-batch has ended, so that of the running one is read from the objects
that Spark makes it from. These are internals, which may change: what cannot be read is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from midstream.protocol.trigger_facts import SourceOffsets, TriggerFacts
from midstream.spark.running_query import query_id, stream_execution

_REPORTS_METRICS = "org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics"
# How the leaves of Spark's plan of a stream give their source.
_SOURCE_OF_LEAF = {
    "StreamingExecutionRelation": "source",
    "StreamingDataSourceV2Relation": "stream",
    "StreamingDataSourceV2ScanRelation": "stream",
}


class SourceFacts:
    """The sources that Spark reads for each stream of one query, while it runs."""

    def __init__(self, session: SparkSession, frames: Mapping[str, DataFrame]) -> None:
        """``session`` runs the query, ``frames`` are its streams in the order in which Spark has them."""
        self._session = session
        self._frames = frames
        self._sources: dict[str, list[Any]] | None = None

    def trigger(self, batch: DataFrame) -> TriggerFacts:
        """When the running micro-batch was triggered, and what it reads of each source."""
        began = datetime.now(UTC)
        try:
            execution = stream_execution(self._session, query_id(batch))
            context = execution.getLatestExecutionContext()
            previous = context.lastTriggerStartTimestamp()
            return TriggerFacts(
                started=_moment(context.currentTriggerStartTimestamp()),
                previous=None if previous < 0 else _moment(previous),
                sources={
                    name: tuple(self._offsets(source, context) for source in sources)
                    for name, sources in self._sources_of(execution).items()
                },
            )
        except (Py4JError, PySparkException):
            return TriggerFacts(started=began)

    def count_rows(self, batch: DataFrame, rows: Mapping[str, int]) -> None:
        """Let Spark count rows of a micro-batch that tasks have read without it.

        Its progress, its listeners and its pages have the rows that the scans of its plan count.
        """
        try:
            execution = stream_execution(self._session, query_id(batch))
            uncounted = {name: s[0] for name, s in self._sources_of(execution).items() if rows.get(name)}
            leaves = execution.lastExecution().executedPlan().collectLeaves()
            counted = []
            for leaf in (leaves.apply(i) for i in range(leaves.size())):
                if leaf.getClass().getSimpleName() != "FileSourceScanExec":
                    continue
                source = leaf.getStream().get()
                # Streams that are the same DataFrame share a source, and have a leaf each.
                name = next(name for name, own in uncounted.items() if own == source)
                del uncounted[name]
                metric = leaf.metrics().apply("numOutputRows")
                metric.add(rows[name])
                counted.append(metric)
            self._show(batch, counted)
        except (Py4JError, PySparkException, StopIteration):
            return

    def _sources_of(self, execution: Any) -> dict[str, list[Any]]:
        """Spark's sources of each stream; they stay the same as long as the query runs."""
        if self._sources is None:
            self._sources = self._find_sources(execution)
        return self._sources

    def _find_sources(self, execution: Any) -> dict[str, list[Any]]:
        # The plan is the union of the frames: its leaves are theirs, one frame after the other.
        plan = execution.logicalPlan().collectLeaves()
        leaves = [plan.apply(i) for i in range(plan.size())]
        counts = {
            name: frame._jdf.queryExecution().analyzed().collectLeaves().size()
            for name, frame in self._frames.items()
        }
        if sum(counts.values()) != len(leaves):
            return {}
        rest = iter(leaves)
        found: dict[str, list[Any]] = {}
        for name, count in counts.items():
            own = [next(rest) for _ in range(count)]
            # A stream may be joined with a static DataFrame, whose leaf has no source.
            found[name] = [source for leaf in own if (source := _source_of(leaf)) is not None]
        return found

    def _offsets(self, source: Any, context: Any) -> SourceOffsets:
        end = context.endOffsets().get(source)
        return SourceOffsets(
            description=source.toString(),
            start_offset=_json(context.startOffsets().get(source)),
            end_offset=_json(end),
            latest_offset=_json(context.latestOffsets().get(source)),
            metrics=source_metrics(self._session, source, end.get() if end.isDefined() else None),
            unread_files=_unread_files(source),
        )

    def _show(self, batch: DataFrame, metrics: list[Any]) -> None:
        """Show the counts in Spark's page of the micro-batch's plan as well."""
        context = batch.sparkSession.sparkContext
        execution_id = context.getLocalProperty("spark.sql.execution.id")
        jvm = context._jvm
        if execution_id is not None and jvm is not None:
            jvm.org.apache.spark.sql.execution.metric.SQLMetrics.postDriverMetricUpdates(
                context._jsc.sc(), execution_id, jvm.PythonUtils.toSeq(metrics)
            )


def source_metrics(session: SparkSession, source: Any, end: Any | None) -> dict[str, str]:
    """The figures that a source itself has, such as how far it is behind after the offset ``end``."""
    context = session.sparkContext
    if context._jvm is None or not is_instance_of(context._gateway, source, _REPORTS_METRICS):
        return {}
    metrics = source.metrics(context._jvm.java.util.Optional.ofNullable(end))
    return {str(name): str(value) for name, value in metrics.items()}


def _source_of(leaf: Any) -> Any | None:
    getter = _SOURCE_OF_LEAF.get(leaf.getClass().getSimpleName())
    return None if getter is None else getattr(leaf, getter)()


def _unread_files(source: Any) -> int | None:
    """Files that a source of files has found and not read yet; None if it keeps no count."""
    if source.getClass().getSimpleName() != "FileStreamSource":
        return None
    # With these two it finds all files anew for each micro-batch.
    if _private(source, "allFilesForTriggerAvailableNow") is not None:
        return None
    if _private(source, "sourceOptions").latestFirst():
        return None
    unread = _private(source, "unreadFiles")
    return 0 if unread is None else int(unread.size())


def _private(source: Any, name: str) -> Any:
    field = source.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(source)


def _json(offset: Any) -> str | None:
    """The JSON of an offset that may be missing."""
    return str(offset.get().json()) if offset.isDefined() else None


def _moment(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)

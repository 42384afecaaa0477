"""Parquet sources that the tasks read themselves.

Spark would read files into rows, write the rows as Arrow batches, and pipe those to Python, which takes most
of the time of a large epoch. If all streams are plain Parquet sources, tasks read the files into Arrow memory
instead. Spark still decides which files a micro-batch has, and runs the tasks.

If Spark would read something else from a file than Arrow (``spark/row_groups.py``), Spark reads the whole
micro-batch, as it reads any other source.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import groupby
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from midstream.engine.encode import Encoder, project, time_column
from midstream.engine.error_context import error_context
from midstream.errors import InternalError, QueryError, StreamError
from midstream.protocol.report import Report
from midstream.query.query import Query
from midstream.query.stream import Stream
from midstream.spark.logical_plan import WATERMARK_NODE
from midstream.spark.messages import SourceMessage, errors_as_messages, report_message, running_epoch
from midstream.spark.query_identity import query_id, stream_execution
from midstream.spark.row_groups import RowGroup, distribute, row_groups
from midstream.spark.row_source import Encoders, Encoding, RowSources, Sources, encoded
from midstream.spark.site_tasks import at_sites, ran_elsewhere
from midstream.spark.task_ranges import TaskRanges

# Options of a source that say which files to read, but not how.
_FILE_SELECTION_OPTIONS = frozenset(
    (
        "path",
        "maxfilespertrigger",
        "maxbytespertrigger",
        "maxfileage",
        "maxcachedfiles",
        "latestfirst",
        "filenameonly",
        "cleansource",
        "sourcearchivedir",
        "pathglobfilter",
        "recursivefilelookup",
    )
)
_REBASE_MODE = "spark.sql.parquet.datetimeRebaseModeInRead"

# The most that a task reads, as in Spark: a backlog must not fill the memory of a few workers.
_MAX_TASK_BYTES = 128 << 20


@dataclass(frozen=True)
class ParquetSources:
    """The sources of a query, all of them plain Parquet, in the order in which Spark has them."""

    counted_by_spark: ClassVar[bool] = False

    query: Query
    frames: Mapping[str, DataFrame]

    def stream(self) -> DataFrame:
        """A DataFrame that is never computed: Spark needs it to find new files and to track them."""
        empty = (frame.select(F.lit(0).alias("nothing")) for frame in self.frames.values())
        return reduce(DataFrame.union, empty)

    def messages(self, batch: DataFrame, encoders: Encoders, ranges: TaskRanges) -> RDD[SourceMessage]:
        """The messages of the running micro-batch, read by tasks if Arrow can read all its files."""
        context = batch.sparkSession.sparkContext
        leaves = self._leaves(query_id(batch))
        schemas = self._schemas(encoders)
        reads_alike = all(_arrow_reads_alike(self.query.by_name[n], e) for n, e in encoders.items())
        groups = self._row_groups(leaves, schemas) if reads_alike else None
        if groups is None:
            return self._by_spark(batch.sparkSession, leaves, encoders, ranges)
        if ranges.sites:
            return self._read_at_sites(context, groups, schemas, encoders, ranges)
        shares = _shares(groups, context.defaultParallelism)
        read = _read_task(encoders, schemas, shares, ranges)
        return _numbers(context, len(shares)).mapPartitionsWithIndex(read)

    def _read_at_sites(
        self,
        context: SparkContext,
        groups: Sequence[RowGroup],
        schemas: Mapping[str, pa.Schema],
        encoders: Encoders,
        ranges: TaskRanges,
    ) -> RDD[SourceMessage]:
        """The same, but rows of a stream are read by tasks at its site."""
        by_site: dict[str, list[RowGroup]] = {}
        for group in groups:
            by_site.setdefault(encoders[group.stream].site or "", []).append(group)
        shares, sites = [], []
        for site, of_site in sorted(by_site.items()):
            divided = _shares(of_site, ranges.sites.count(site))
            shares += divided
            sites += [site] * len(divided)
        if not shares:
            return context.parallelize([], 1)
        numbers = context.parallelize(range(len(shares)), len(shares))
        placed = at_sites(numbers, sites, ranges.hosts) if ranges.hosts else numbers
        return placed.mapPartitionsWithIndex(_read_task(encoders, schemas, shares, ranges))

    def _leaves(self, running_query: str) -> dict[str, Any]:
        """The relation of files of each stream that has new files, from Spark's plan of the micro-batch."""
        first = next(iter(self.frames.values()))
        execution = stream_execution(first.sparkSession, running_query)
        leaves = execution.lastExecution().analyzed().collectLeaves()
        kinds = [leaves.apply(i).getClass().getSimpleName() for i in range(leaves.size())]
        if len(kinds) != len(self.frames) or not set(kinds) <= {"LocalRelation", "LogicalRelation"}:
            raise InternalError("Spark's plan must have a relation of files per stream", got=kinds)
        # A source without new files is an empty local relation.
        return {
            name: leaves.apply(i)
            for i, (name, kind) in enumerate(zip(self.frames, kinds, strict=True))
            if kind == "LogicalRelation"
        }

    def _row_groups(
        self, leaves: Mapping[str, Any], schemas: Mapping[str, pa.Schema]
    ) -> list[RowGroup] | None:
        groups: list[RowGroup] = []
        for name, schema in schemas.items():
            if name not in leaves:
                continue
            relation = leaves[name].relation()
            if not relation.partitionSchema().isEmpty():
                return None  # partition columns are not in the files
            for url in sorted(str(url) for url in relation.location().inputFiles()):
                file_groups = row_groups(name, schema, url)
                if file_groups is None:
                    return None
                groups += file_groups
        return groups

    def _schemas(self, encoders: Encoders) -> dict[str, pa.Schema]:
        """The columns that are read from the files of each stream."""
        return {
            name: pa.schema(
                [self.query.by_name[name].schema.field(c) for c in dict.fromkeys(_top_columns(encoder))]
            )
            for name, encoder in encoders.items()
        }

    def _by_spark(
        self, session: SparkSession, leaves: Mapping[str, Any], encoders: Encoders, ranges: TaskRanges
    ) -> RDD[SourceMessage]:
        """The messages of the same files, read by Spark."""
        read = session._jsparkSession.baseRelationToDataFrame
        frames = {
            name: DataFrame(read(leaf.relation()), session)
            for name, leaf in leaves.items()
            if name in encoders
        }
        if not frames:
            return session.sparkContext.parallelize([], 1)
        encoders = {name: encoders[name] for name in frames}
        sources = RowSources(frames, (Encoding(self.query, encoders),), ranges)
        return sources.messages(sources.stream(), encoders, ranges)

    def check_columns(self, query: Query, encoders: Encoders) -> None:
        """Refuse a definition that needs columns that the files do not have, or other streams."""
        for name, encoder in encoders.items():
            known = self.query.by_name[name].schema if name in self.query.by_name else pa.schema([])
            for column in sorted(_top_columns(encoder)):
                if known.get_field_index(column) < 0:
                    raise QueryError(
                        "a running query must read columns that its streams had when it was started",
                        got=f"{name}.{column}",
                        hint="stop the query, and start the new one with the same checkpointLocation and the "
                        "option 'replace'",
                    )


def sources_of(encodings: Sequence[Encoding], frames: Mapping[str, DataFrame], ranges: TaskRanges) -> Sources:
    """The sources of a query: tasks read the files themselves if they can do so for all streams.

    There are encodings for each definition; one of them is of all streams.
    """
    for encoding in encodings:
        for name, encoder in encoding.encoders.items():
            stream = encoding.query.by_name[name]
            if not (_is_plain_parquet(frames[name]) and _arrow_reads_alike(stream, encoder)):
                return RowSources(frames, tuple(encodings), ranges)
    whole = max(encodings, key=lambda encoding: len(encoding.encoders))
    return ParquetSources(whole.query, frames)


def _shares(groups: Sequence[RowGroup], tasks: int) -> list[list[RowGroup]]:
    """What each task reads: about so many tasks, unless they would read too much."""
    min_tasks = math.ceil(sum(group.bytes for group in groups) / _MAX_TASK_BYTES)
    return distribute(groups, max(1, min(len(groups), max(min_tasks, tasks))))


@cache
def _numbers(context: SparkContext, tasks: int) -> RDD[int]:
    """An RDD with one number for each task."""
    return context.parallelize(range(tasks), tasks)


def _read_task(
    encoders: Encoders,
    schemas: Mapping[str, pa.Schema],
    shares: Sequence[Sequence[RowGroup]],
    ranges: TaskRanges,
) -> Callable[[int, Iterable[int]], Iterator[SourceMessage]]:
    """The function that reads a task's share of the files and turns it into messages."""

    def read(origin: int, numbers: Iterable[int]) -> Iterator[SourceMessage]:
        for number in numbers:
            for stream, groups in groupby(shares[number], key=lambda group: group.stream):
                encoder = encoders[stream]
                with error_context(
                    "reading rows",
                    streams=[stream],
                    columns=(f"{stream}.{name}" for name in schemas[stream].names),
                ):
                    table = pa.concat_tables(_read(groups, schemas[stream]))
                with error_context(streams=[stream]):
                    source = pa.table({c.name: project(table, c, stream) for c in encoder.source})
                    yield from encoded(encoder, source, origin, ranges)
                if elsewhere := ran_elsewhere(encoder.site, ranges.hosts):
                    yield report_message(Report(elsewhere=elsewhere), origin)

    return lambda origin, numbers: errors_as_messages(
        "encoding rows", read(origin, numbers), origin, running_epoch()
    )


def _read(groups: Iterable[RowGroup], schema: pa.Schema) -> Iterator[pa.Table]:
    for path, of_file in groupby(groups, key=lambda group: group.path):
        with pq.ParquetFile(path) as file:
            share = list(of_file)
            try:
                numbers = [group.number for group in share]
                table = file.read_row_groups(numbers, schema.names, use_threads=False)
            except (pa.ArrowInvalid, OSError) as error:
                # The driver has read its footer, so it is a Parquet file.
                # Arrow raises an OSError without a number for bytes that it cannot decompress.
                what = getattr(error, "strerror", None) or "bytes that cannot be decoded"
                raise StreamError(
                    f"a file of a stream must be whole: {path}",
                    got=f"{what} (batch {running_epoch()}, stream {share[0].stream})",
                    hint="restore it and start the query again: it goes on after its last committed epoch",
                ) from None
            # Types are the same; files may only differ in which columns are nullable.
            yield table.cast(schema)


def _top_columns(encoder: Encoder) -> list[str]:
    return [column.ref.path[0] for column in encoder.source]


def _is_plain_parquet(frame: DataFrame) -> bool:
    try:
        plan = frame._jdf.queryExecution().analyzed()
        while plan.getClass().getSimpleName() == WATERMARK_NODE:
            plan = plan.child()
        if plan.getClass().getSimpleName() != "StreamingRelation":
            return False
        source = plan.dataSource()
        keys = source.options().keySet().toSeq()
        options = {str(keys.apply(i)).lower() for i in range(keys.size())}
        plain = source.className() == "parquet" and options <= _FILE_SELECTION_OPTIONS
        return plain and frame.sparkSession.conf.get(_REBASE_MODE) != "LEGACY"
    except Py4JError:
        return False  # these are internals of Spark, which may change


def _arrow_reads_alike(stream: Stream, encoder: Encoder) -> bool:
    """Whether Arrow projects a stream's columns as Spark does: time zones and most casts differ."""
    for column in encoder.source:
        kind = stream.type_of(column.ref)
        if "." in column.ref.path[0]:
            return False  # Arrow would take it for a path
        if column.name == time_column(stream.name):
            if kind.tz is None:
                return False
        elif column.type not in (None, kind) and not (
            pa.types.is_integer(kind) and pa.types.is_integer(column.type)
        ):
            return False
    return True

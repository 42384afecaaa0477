"""Parquet sources that the tasks read themselves.

Spark would read files into rows, write the rows as Arrow batches, and pipe those to Python: most of the time
of a large epoch. If all streams are plain Parquet sources, tasks read the files straight into Arrow memory
instead. Spark still decides which files a micro-batch has, and runs the tasks.

What a file holds must be just what Spark would have made of it, or Spark reads the whole micro-batch as it
reads any other source: columns of exactly the types of the stream, no calendar to convert, no address but a
path of a mounted file system.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import groupby
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from midstream.engine.encode import Encoder, project, time_column
from midstream.errors import InternalError
from midstream.query.query import Query
from midstream.query.stream import Stream
from midstream.spark.messages import Addressed, encoded
from midstream.spark.sources import RowSources, Sources

# Options of a source that say which files to read, and nothing of how.
_HARMLESS = frozenset(
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
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


@dataclass(frozen=True)
class Piece:
    """A row group of a file."""

    stream: str
    path: str
    group: int
    bytes: int


@dataclass(frozen=True)
class ColumnarSources:
    """The sources of a query, all of them plain Parquet, in the order in which Spark has them."""

    query: Query
    frames: Mapping[str, DataFrame]
    encoders: Mapping[str, Encoder]

    def stream(self) -> DataFrame:
        """A query that is never run: Spark needs it to find new files and to keep count of them."""
        empty = (frame.select(F.lit(0).alias("nothing")) for frame in self.frames.values())
        return reduce(DataFrame.union, empty)

    def messages(self, batch: DataFrame) -> RDD[Addressed]:
        """The messages of the running micro-batch, read by tasks if all its files are as they must be."""
        context = batch.sparkSession.sparkContext
        files = self._files(str(context.getLocalProperty("sql.streaming.queryId")))
        pieces = self._pieces(files)
        if pieces is None:
            return self._by_spark(batch.sparkSession, files)
        tasks = max(1, min(len(pieces), context.defaultParallelism))
        read = _read_task(self.encoders, share_out(pieces, tasks))
        return _numbers(context, tasks).mapPartitionsWithIndex(read)

    def _files(self, query_id: str) -> dict[str, list[str]]:
        """The files of the running micro-batch by stream, from the plan that Spark has made for it."""
        first = next(iter(self.frames.values()))
        running = first.sparkSession._jsparkSession.streams().get(query_id)
        leaves = running.streamingQuery().lastExecution().analyzed().collectLeaves()
        if leaves.size() != len(self.frames):
            raise InternalError("a micro-batch must have a leaf per stream", got=leaves.size())
        return {name: _files_of(leaves.apply(i)) for i, name in enumerate(self.frames)}

    def _pieces(self, files: Mapping[str, Sequence[str]]) -> list[Piece] | None:
        pieces: list[Piece] = []
        for name, paths in files.items():
            columns = {c.ref.path[0] for c in self.encoders[name].source}
            for path in sorted(paths):
                found = _row_groups(self.query.by_name[name], columns, path)
                if found is None:
                    return None
                pieces += found
        return pieces

    def _by_spark(self, session: SparkSession, files: Mapping[str, Sequence[str]]) -> RDD[Addressed]:
        frames = {
            name: session.read.schema(self.frames[name].schema).parquet(*paths)
            for name, paths in files.items()
            if paths
        }
        sources = RowSources(self.query, frames, self.encoders)
        return sources.messages(sources.stream())


def sources_of(query: Query, frames: Mapping[str, DataFrame], encoders: Mapping[str, Encoder]) -> Sources:
    """How the streams of a query are read: by the tasks themselves if they can read all of them."""
    for name, frame in frames.items():
        if not (_is_plain_parquet(frame) and _is_read_alike(query.by_name[name], encoders[name])):
            return RowSources(query, frames, encoders)
    return ColumnarSources(query, frames, encoders)


def share_out(pieces: Sequence[Piece], tasks: int) -> list[list[Piece]]:
    """Give each task about the same number of bytes; the same pieces are always shared out alike."""
    shares: list[list[Piece]] = [[] for _ in range(tasks)]
    loads = [(0, number) for number in range(tasks)]
    for piece in sorted(pieces, key=lambda p: (-p.bytes, p.stream, p.path, p.group)):
        load, number = heapq.heappop(loads)
        shares[number].append(piece)
        heapq.heappush(loads, (load + piece.bytes, number))
    return [sorted(share, key=lambda p: (p.stream, p.path, p.group)) for share in shares]


@cache
def _numbers(context: SparkContext, tasks: int) -> RDD[int]:
    """One number for each task: something for tasks to be run on."""
    return context.parallelize(range(tasks), tasks)


def _read_task(
    encoders: Mapping[str, Encoder], shares: Sequence[Sequence[Piece]]
) -> Callable[[int, Iterable[int]], Iterator[Addressed]]:
    """The function that reads a task's share of the files and turns it into messages."""

    def run(origin: int, numbers: Iterable[int]) -> Iterator[Addressed]:
        for number in numbers:
            for stream, pieces in groupby(shares[number], key=lambda piece: piece.stream):
                encoder = encoders[stream]
                names = list(dict.fromkeys(c.ref.path[0] for c in encoder.source))
                table = pa.concat_tables(_read(pieces, names))
                source = pa.table({c.name: project(table, c, stream) for c in encoder.source})
                yield from encoded(encoder, source, origin)

    return run


def _read(pieces: Iterator[Piece], names: list[str]) -> Iterator[pa.Table]:
    for path, groups in groupby(pieces, key=lambda piece: piece.path):
        with pq.ParquetFile(path) as file:
            table = file.read_row_groups([piece.group for piece in groups], names, use_threads=False)
            yield table.replace_schema_metadata(None)


def _is_plain_parquet(frame: DataFrame) -> bool:
    try:
        plan = frame._jdf.queryExecution().analyzed()
        if plan.getClass().getSimpleName() != "StreamingRelation":
            return False
        source = plan.dataSource()
        keys = source.options().keySet().toSeq()
        options = {str(keys.apply(i)).lower() for i in range(keys.size())}
        plain = source.className() == "parquet" and source.partitionColumns().isEmpty()
        return bool(plain) and options <= _HARMLESS
    except Py4JError:
        return False  # Spark's inner workings are not promised to stay


def _is_read_alike(stream: Stream, encoder: Encoder) -> bool:
    """Whether Arrow projects a stream's columns as Spark does: zones and most casts are Spark's own."""
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


def _files_of(leaf: object) -> list[str]:
    """The files under a leaf of Spark's plan."""
    kind = leaf.getClass().getSimpleName()  # type: ignore[attr-defined]
    if kind == "LocalRelation":
        return []  # a source without news
    if kind != "LogicalRelation":
        raise InternalError("a stream of files must be a relation of Spark's plan", got=kind)
    return [str(url) for url in leaf.relation().location().inputFiles()]  # type: ignore[attr-defined]


def _row_groups(stream: Stream, columns: set[str], url: str) -> list[Piece] | None:
    """The row groups of a file; None if Spark would make something else of it than Arrow."""
    address = urlparse(url)
    path = unquote(address.path)
    if address.scheme != "file" or not Path(path).is_file():
        return None
    metadata = pq.read_metadata(path)
    if any(key in (metadata.metadata or {}) for key in _LEGACY):
        return None
    schema = metadata.schema.to_arrow_schema()
    for name in columns:
        if (
            schema.get_all_field_indices(name) == []
            or schema.field(name).type != stream.schema.field(name).type
        ):
            return None
    return [
        Piece(stream.name, path, group, metadata.row_group(group).total_byte_size)
        for group in range(metadata.num_row_groups)
    ]

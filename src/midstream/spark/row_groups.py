"""Row groups of Parquet files that tasks read, and how they are distributed among tasks.

Arrow must read the same from a file as Spark would: its columns have exactly the types of the stream, its
dates are in the current calendar, and it is on a mounted file system.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

_LEGACY_CALENDAR_KEYS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


@dataclass(frozen=True)
class RowGroup:
    """A row group of a file."""

    stream: str
    path: str
    number: int
    bytes: int


def row_groups(stream: str, columns: pa.Schema, url: str) -> list[RowGroup] | None:
    """The row groups of a file; None if Spark would read something else from it than Arrow."""
    address = urlsplit(url)
    path = unquote(address.path)
    if address.scheme != "file":
        return None
    try:
        metadata = pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return None  # Spark may skip it, or has the better error message
    if not _has_current_calendar(metadata.metadata or {}):
        return None
    schema = metadata.schema.to_arrow_schema()
    names = Counter(name.lower() for name in schema.names)
    for field in columns:
        if field.name not in schema.names or names[field.name.lower()] != 1:
            return None
        if schema.field(field.name).type != field.type:
            return None
    return [
        RowGroup(stream, path, number, metadata.row_group(number).total_byte_size)
        for number in range(metadata.num_row_groups)
    ]


def _has_current_calendar(metadata: Mapping[bytes, bytes]) -> bool:
    """Whether dates need no conversion: before version 3, Spark wrote them in another calendar."""
    version = metadata.get(b"org.apache.spark.version", b"3").partition(b".")[0]
    is_legacy = any(key in metadata for key in _LEGACY_CALENDAR_KEYS)
    return not is_legacy and version.isdigit() and int(version) >= 3


def distribute(groups: Sequence[RowGroup], tasks: int) -> list[list[RowGroup]]:
    """Give each task about the same number of bytes, the same way each time."""
    shares: list[list[RowGroup]] = [[] for _ in range(tasks)]
    loads = [(0, task) for task in range(tasks)]
    for group in sorted(groups, key=lambda g: (-g.bytes, g.stream, g.path, g.number)):
        load, task = heapq.heappop(loads)
        shares[task].append(group)
        heapq.heappush(loads, (load + group.bytes, task))
    return [sorted(share, key=lambda g: (g.stream, g.path, g.number)) for share in shares]

"""The watermark that a DataFrame declares: ``df.withWatermark("at", "30 minutes")``.

It says which column is the event time, and how late rows may be, so it need not be said again; if it is, both
must agree. Spark itself drops no row by it: only its stateful operators would, and they are refused.

Spark marks the column in the schema, and the mark goes wherever the column goes: into a selection, under
another name, into a struct. It is lost when the column is computed anew, and a union has that of its first
part. The delays are therefore taken from the plan, which has all of them: one that cannot be honoured is
refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
from py4j.java_gateway import get_field
from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from midstream.errors import QueryError
from midstream.query.stream import ColumnRef, resolve_path
from midstream.spark.join_arguments import name_parts
from midstream.spark.logical_plan import WATERMARK_NODE, kind_of, nodes_of
from midstream.values import Micros, duration, show_duration

_MARK = "spark.watermarkDelayMs"
_MICROS_PER_MILLI = 1000


@dataclass(frozen=True)
class DeclaredWatermark:
    """The watermarks of a DataFrame: columns, as paths, and delays, each once."""

    columns: tuple[tuple[str, ...], ...] = ()
    delays: tuple[Micros, ...] = ()


def declared_watermark(df: DataFrame) -> DeclaredWatermark:
    """What a DataFrame declares."""
    marks = dict(_marked(df.schema, ()))
    try:
        delays = set(_delays(df))
    except (Py4JError, AttributeError, TypeError):  # these are internals of Spark, which may change
        delays = set(marks.values())
    # Without a delay in the plan, the marks came with the schema of files that were written long ago.
    return DeclaredWatermark(tuple(marks) if delays else (), tuple(sorted(delays)))


def time_of(
    stream: str, schema: pa.Schema, time: str | Column | None, declared: DeclaredWatermark
) -> ColumnRef:
    """The event-time column of a stream: the one that is said, or the one with the watermark."""
    marked = [ColumnRef(stream, path) for path in declared.columns]
    if time is None:
        if len(marked) == 1:
            return marked[0]
        raise QueryError(
            f"stream {stream!r} must have an event-time column",
            got=f"watermarks on {', '.join(map(str, marked))}" if marked else "no time, and no watermark",
            hint=f"say which of them, e.g. time='{'.'.join(marked[0].path)}'"
            if marked
            else "say time=..., or df.withWatermark(column, delay)",
        )
    ref = resolve_path(stream, schema, name_parts(time, schema))
    if marked and ref not in marked:
        raise QueryError(
            f"the time of stream {stream!r} must be the column of its watermark",
            got=f"{ref}, and a watermark on {', '.join(map(str, marked))}",
            hint="leave out one of them",
        )
    return ref


def lateness_of(stream: str, lateness: str | timedelta | None, declared: DeclaredWatermark) -> Micros:
    """The lateness of a stream: the one that is said, or the delay of its watermark; zero without either."""
    delays = declared.delays
    shown = " and ".join(map(show_duration, delays))
    if lateness is None:
        if len(delays) > 1 or (delays and not declared.columns):
            lost = "" if declared.columns else " of a column that is gone, or was computed anew"
            raise QueryError(
                f"stream {stream!r} must have one lateness",
                got=f"watermarks with delays of {shown}{lost}"
                if len(delays) > 1
                else f"a watermark with a delay of {shown}{lost}",
                hint=f"say which, as in lateness='{shown.rpartition(' and ')[2]}'",
            )
        return delays[0] if delays else Micros(0)
    said = duration(lateness, f"the lateness of {stream}")
    if declared.columns and said not in delays:
        raise QueryError(
            f"the lateness of stream {stream!r} must be the delay of its watermark",
            got=f"{show_duration(said)}, and a watermark with {shown}",
            hint="leave out one of them",
        )
    return said


def _marked(schema: StructType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Micros]]:
    """The columns, and fields of structs, that are marked."""
    for field in schema.fields:
        here = (*path, field.name)
        # F.window passes the mark on to the window that it makes, which is no time.
        is_time = isinstance(field.dataType, TimestampType | TimestampNTZType)
        if is_time and _MARK in (field.metadata or {}):
            yield here, Micros(int(field.metadata[_MARK]) * _MICROS_PER_MILLI)
        if isinstance(field.dataType, StructType):
            yield from _marked(field.dataType, here)


def _delays(df: DataFrame) -> Iterator[Micros]:
    """The delays of all watermarks in the plan of a DataFrame."""
    for node in nodes_of(df):
        if kind_of(node) != WATERMARK_NODE:
            continue
        delay = node.delay()
        if get_field(delay, "months"):
            raise QueryError(
                "the delay of a watermark must have a fixed length",
                got=f"{delay.toString()!r}",
                hint="months and years have none: write days, as in withWatermark('at', '30 days')",
            )
        jvm: Any = df.sparkSession._jvm
        companion = getattr(jvm.org.apache.spark.sql.catalyst.plans.logical, WATERMARK_NODE)
        yield Micros(int(companion.getDelayMs(delay)) * _MICROS_PER_MILLI)

"""The reference implementation: which rows are accepted and what a join means, by nested loops over rows.

It is as short and simple as possible, and shares no code with the engine but the query value itself. Never
optimise it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from midstream.query.query import Query
from midstream.query.stream import ColumnRef

Row = dict[str, Any]
Condition = Callable[[Mapping[str, Row]], bool | None]
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class ExpectedProgress:
    """How many rows of a stream were accepted, late and so on, and how far it has come."""

    accepted: int = 0
    late: int = 0
    null_time: int = 0
    null_key: int = 0
    future: int = 0
    latest: int | None = None
    watermark: int | None = None
    last_active: int | None = None
    idle: bool = False


@dataclass(frozen=True, kw_only=True)
class AcceptRules:
    """The options that decide which rows of an epoch are accepted; durations in microseconds."""

    idle_timeout: int | None = None
    max_ahead: int | None = None
    """How far ahead of the clock a time may be."""
    clock_is_stream: bool = False
    """Whether the clock is the stream's own progress, rather than ``now``."""
    now: int = 0


@dataclass
class Accepted:
    """The rows that are joined, epoch by epoch, and the late ones."""

    epochs: list[dict[str, pa.Table]] = field(default_factory=list)
    late: list[dict[str, pa.Table]] = field(default_factory=list)
    """Epoch by epoch, the rows that were late, from the future, or without a time."""
    reasons: list[dict[str, list[str]]] = field(default_factory=list)
    """Which of these they were."""
    progress: dict[str, ExpectedProgress] = field(default_factory=dict)
    """The progress of each stream after the last epoch."""
    history: list[dict[str, ExpectedProgress]] = field(default_factory=list)
    """The progress of each stream after each epoch."""

    def tables(self, query: Query) -> dict[str, pa.Table]:
        """All accepted rows of every stream, in its types: files may have finer times, or no nulls."""
        return {
            s.name: pa.concat_tables(
                [s.schema.empty_table(), *(e[s.name].cast(s.schema) for e in self.epochs if s.name in e)]
            )
            for s in query.streams
        }


def accept(
    query: Query, epochs: Sequence[Mapping[str, pa.Table]], idle_timeout: int | None = None
) -> Accepted:
    """Decide row by row which rows are joined: those with a time and keys that are not late."""
    accepted = Accepted(progress={name: ExpectedProgress() for name in query.names})
    for epoch in epochs:
        accept_epoch(query, accepted, epoch, AcceptRules(idle_timeout=idle_timeout))
    return accepted


def accept_epoch(query: Query, accepted: Accepted, epoch: Mapping[str, pa.Table], rules: AcceptRules) -> None:
    """Add the rows of an epoch to those of earlier ones."""
    on_time: dict[str, list[int]] = {name: [] for name in epoch}
    late: dict[str, dict[int, str]] = {name: {} for name in epoch}
    times: dict[str, list[int]] = {name: [] for name in epoch}
    for name, table in epoch.items():
        progress = accepted.progress[name]
        clock = progress.latest if rules.clock_is_stream else rules.now
        last = None if rules.max_ahead is None or clock is None else clock + rules.max_ahead
        for position, (row, time) in enumerate(
            zip(_keys_of(query, name, table), times_of(query, name, table), strict=True)
        ):
            if time is None:
                progress.null_time += 1
                late[name][position] = "null time"
            elif not _has_keys(query, name, row):
                progress.null_key += 1
            elif last is not None and time > last:
                progress.future += 1
                late[name][position] = "future"
            elif progress.watermark is not None and time < progress.watermark:
                progress.late += 1
                late[name][position] = "late"
            else:
                progress.accepted += 1
                on_time[name].append(position)
                times[name].append(time)
    accepted.epochs.append({n: t.take(pa.array(on_time[n], pa.int64())) for n, t in epoch.items()})
    accepted.late.append({n: t.take(pa.array(list(late[n]), pa.int64())) for n, t in epoch.items()})
    accepted.reasons.append({name: list(reasons.values()) for name, reasons in late.items()})
    _advance(query, accepted.progress, times, rules.idle_timeout)
    accepted.history.append({name: replace(progress) for name, progress in accepted.progress.items()})


def times_of(query: Query, name: str, table: pa.Table) -> list[int | None]:
    """The event times of rows, as numbers: Python's calendar does not have all of them."""
    first, *fields = query.by_name[name].time.path
    values = table.column(first)
    for step in fields:
        values = pc.struct_field(values, [values.type.get_field_index(step)])
    moments: list[int | None] = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()).to_pylist()
    return moments


def _keys_of(query: Query, name: str, table: pa.Table) -> list[Row]:
    """The rows, with only the columns that have keys."""
    columns = {ref.path[0] for key_class in query.classes for ref in key_class.of(name)}
    # A table without columns would have no rows.
    return table.select(sorted(columns)).to_pylist() if columns else [{} for _ in range(table.num_rows)]


def naive_join(query: Query, tables: Mapping[str, pa.Table], where: Condition | None = None) -> pa.Table:
    """All results over the tables; ``where`` is the residuals as a function, as this does not parse SQL."""
    streams = [[(s.name, row) for row in tables[s.name].to_pylist()] for s in query.streams]
    results = [
        {o.name: value_of(rows[o.ref.stream], o.ref) for o in query.outputs}
        for rows in _combinations(query, streams, {})
        if where is None or where(rows)
    ]
    return pa.Table.from_pylist(results, schema=query.joined_schema)


def value_of(row: Row, ref: ColumnRef) -> Any:
    """A column of a row, or a field inside one."""
    value: Any = row
    for step in ref.path:
        value = None if value is None else value[step]
    return value


def micros(time: datetime | None) -> int | None:
    """Microseconds since 1970; a time without a zone counts as UTC."""
    if time is None:
        return None
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (aware - _UNIX_EPOCH) // timedelta(microseconds=1)


def equal(left: Any, right: Any) -> bool:
    """Spark's equality of keys: null equals nothing, NaN equals NaN, a date equals its midnight."""
    if left is None or right is None:
        return False
    if isinstance(left, float) or isinstance(right, float):
        a, b = float(left), float(right)
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(left, date) and isinstance(right, date) and type(left) is not type(right):
        return _moment(left) == _moment(right)
    if isinstance(left, datetime) and isinstance(right, datetime):
        return micros(left) == micros(right)
    if isinstance(left, int | Decimal) and isinstance(right, int | Decimal):
        return Decimal(left) == Decimal(right)
    return bool(left == right)


def _moment(day: date) -> int | None:
    return micros(day if isinstance(day, datetime) else datetime(day.year, day.month, day.day, tzinfo=UTC))


def _combinations(
    query: Query, streams: Sequence[Sequence[tuple[str, Row]]], chosen: dict[str, Row]
) -> Iterator[dict[str, Row]]:
    if not streams:
        yield chosen
        return
    for name, row in streams[0]:
        extended = {**chosen, name: row}
        if joins(query, name, extended):
            yield from _combinations(query, streams[1:], extended)


def joins(query: Query, new: str, rows: Mapping[str, Row]) -> bool:
    """Whether the row of stream ``new`` joins with the others."""
    for equality in query.equalities:
        ends = (equality.left, equality.right)
        if all(e.stream in rows for e in ends) and new in (e.stream for e in ends):
            left, right = (value_of(rows[e.stream], e) for e in ends)
            if not equal(left, right):
                return False
    times = {n: micros(value_of(row, query.by_name[n].time)) for n, row in rows.items()}
    for name, time in times.items():
        width = query.windows.width(name, new) if name != new else None
        new_time = times[new]
        if time is None or new_time is None or (width is not None and abs(time - new_time) > width):
            return False
    return True


def _has_keys(query: Query, stream: str, row: Row) -> bool:
    """Whether no key is null, and columns of one key class are equal."""
    for key_class in query.classes:
        values = [value_of(row, ref) for ref in key_class.of(stream)]
        if pa.types.is_floating(key_class.type):
            # They are only compared as doubles.
            values = [None if value is None else float(value) for value in values]
        if any(not equal(values[0], value) for value in values):
            return False
    return True


def _advance(
    query: Query,
    streams: Mapping[str, ExpectedProgress],
    times: Mapping[str, list[int]],
    idle_timeout: int | None,
) -> None:
    """Move the watermarks after an epoch: own time less lateness; if idle, that of the slowest active one."""
    for name, stream in streams.items():
        stream.latest = max([*times.get(name, []), *_present(stream.latest)], default=None)
        own = [] if stream.latest is None else [stream.latest - query.by_name[name].lateness]
        stream.watermark = max([*own, *_present(stream.watermark)], default=None)
    now = max((s.latest for s in streams.values() if s.latest is not None), default=None)
    if now is None:
        return
    for name, stream in streams.items():
        if times.get(name) or stream.last_active is None:
            stream.last_active = now
        silent = now - stream.last_active
        stream.idle = idle_timeout is not None and not times.get(name) and silent > idle_timeout
    active = [stream.watermark for stream in streams.values() if not stream.idle]
    watermarks = [watermark for watermark in active if watermark is not None]
    if active and len(watermarks) == len(active):
        for stream in streams.values():
            if stream.idle:
                stream.watermark = max([min(watermarks), *_present(stream.watermark)])


def _present(value: int | None) -> list[int]:
    return [] if value is None else [value]

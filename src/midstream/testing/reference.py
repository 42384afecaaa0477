"""The definition of the results, as a program: nested loops over rows, and nothing clever.

It says what a join means and which rows take part in it, in as few lines as that can be said, and shares no
code with the engine but the query value itself. Never optimise it.
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
_ZERO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Fate:
    """What became of a stream's rows, and how far the stream has come."""

    accepted: int = 0
    late: int = 0
    null_time: int = 0
    null_key: int = 0
    future: int = 0
    latest: int | None = None
    watermark: int | None = None
    seen: int | None = None
    idle: bool = False


@dataclass(frozen=True)
class Terms:
    """What decides, besides the rows, which rows of an epoch take part; durations in microseconds."""

    idle_timeout: int | None = None
    ahead: int | None = None
    """How far ahead of the clock a time may be."""
    by_stream: bool = False
    """Whether the clock is the stream's own progress, rather than ``now``."""
    now: int = 0


@dataclass
class Accepted:
    """The rows that take part, epoch by epoch, and the fate of all others."""

    epochs: list[dict[str, pa.Table]] = field(default_factory=list)
    late: list[dict[str, pa.Table]] = field(default_factory=list)
    """Epoch by epoch, the rows that came late, from the future, or without a time."""
    reasons: list[dict[str, list[str]]] = field(default_factory=list)
    """Which of these they were."""
    fates: dict[str, Fate] = field(default_factory=dict)
    history: list[dict[str, Fate]] = field(default_factory=list)
    """The fates as they were after each epoch."""

    def tables(self, query: Query) -> dict[str, pa.Table]:
        """All accepted rows of every stream."""
        return {
            s.name: pa.concat_tables(
                [s.schema.empty_table(), *(e[s.name] for e in self.epochs if s.name in e)]
            )
            for s in query.streams
        }


def accept(
    query: Query, epochs: Sequence[Mapping[str, pa.Table]], idle_timeout: int | None = None
) -> Accepted:
    """Decide row by row which rows take part: those with a time, with keys, and in time."""
    found = Accepted(fates={name: Fate() for name in query.names})
    for epoch in epochs:
        accept_epoch(query, found, epoch, Terms(idle_timeout))
    return found


def accept_epoch(query: Query, found: Accepted, epoch: Mapping[str, pa.Table], terms: Terms) -> None:
    """Add an epoch to those that have been decided."""
    taken: dict[str, list[int]] = {name: [] for name in epoch}
    late: dict[str, dict[int, str]] = {name: {} for name in epoch}
    times: dict[str, list[int]] = {name: [] for name in epoch}
    for name, table in epoch.items():
        fate = found.fates[name]
        clock = fate.latest if terms.by_stream else terms.now
        last = None if terms.ahead is None or clock is None else clock + terms.ahead
        for position, (row, time) in enumerate(
            zip(_keys_of(query, name, table), times_of(query, name, table), strict=True)
        ):
            if time is None:
                fate.null_time += 1
                late[name][position] = "null time"
            elif not _has_keys(query, name, row):
                fate.null_key += 1
            elif last is not None and time > last:
                fate.future += 1
                late[name][position] = "future"
            elif fate.watermark is not None and time < fate.watermark:
                fate.late += 1
                late[name][position] = "late"
            else:
                fate.accepted += 1
                taken[name].append(position)
                times[name].append(time)
    found.epochs.append({n: t.take(pa.array(taken[n], pa.int64())) for n, t in epoch.items()})
    found.late.append({n: t.take(pa.array(list(late[n]), pa.int64())) for n, t in epoch.items()})
    found.reasons.append({name: list(reasons.values()) for name, reasons in late.items()})
    _advance(query, found.fates, times, terms.idle_timeout)
    found.history.append({name: replace(fate) for name, fate in found.fates.items()})


def times_of(query: Query, name: str, table: pa.Table) -> list[int | None]:
    """The event times of rows, as numbers: Python's calendar does not have all of them."""
    first, *fields = query.by_name[name].time.path
    values = table.column(first)
    for step in fields:
        values = pc.struct_field(values, [values.type.get_field_index(step)])
    moments: list[int | None] = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()).to_pylist()
    return moments


def _keys_of(query: Query, name: str, table: pa.Table) -> list[Row]:
    """The rows, with no other columns than those that keys are in."""
    wanted = {ref.path[0] for key_class in query.classes for ref in key_class.of(name)}
    # A row without columns would be no row.
    return table.select(sorted(wanted)).to_pylist() if wanted else [{} for _ in range(table.num_rows)]


def naive_join(query: Query, tables: Mapping[str, pa.Table], where: Condition | None = None) -> pa.Table:
    """All results over the tables; ``where`` stands for the residuals, which only SQL can say otherwise."""
    streams = [[(s.name, row) for row in tables[s.name].to_pylist()] for s in query.streams]
    results = [
        {o.name: value_of(rows[o.ref.stream], o.ref) for o in query.outputs}
        for rows in _combinations(query, streams, {})
        if where is None or where(rows)
    ]
    return pa.Table.from_pylist(results, schema=query.output_schema)


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
    return (aware - _ZERO) // timedelta(microseconds=1)


def equal(left: Any, right: Any) -> bool:
    """Equality as Spark has it for keys: null equals nothing, NaN equals NaN, a date is its midnight."""
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
        more = {**chosen, name: row}
        if _fits(query, name, more):
            yield from _combinations(query, streams[1:], more)


def _fits(query: Query, new: str, rows: Mapping[str, Row]) -> bool:
    """Whether the rows, the last of which is ``new``, may be in one result."""
    for equality in query.equalities:
        ends = (equality.left, equality.right)
        if all(e.stream in rows for e in ends) and new in (e.stream for e in ends):
            left, right = (value_of(rows[e.stream], e) for e in ends)
            if not equal(left, right):
                return False
    times = {n: micros(value_of(row, query.by_name[n].time)) for n, row in rows.items()}
    for name, time in times.items():
        bound = query.windows.bound(name, new) if name != new else None
        here = times[new]
        if time is None or here is None or (bound is not None and abs(time - here) > bound):
            return False
    return True


def _has_keys(query: Query, stream: str, row: Row) -> bool:
    """Whether no key is null, and columns of one class equal each other."""
    for key_class in query.classes:
        values = [value_of(row, ref) for ref in key_class.of(stream)]
        if pa.types.is_floating(key_class.type):
            # Never compared with each other but through a double.
            values = [None if value is None else float(value) for value in values]
        if any(not equal(values[0], value) for value in values):
            return False
    return True


def _advance(
    query: Query, fates: Mapping[str, Fate], times: Mapping[str, list[int]], idle: int | None
) -> None:
    """Move the watermarks after an epoch: own time less lateness; if idle, the slowest active one's."""
    for name, fate in fates.items():
        fate.latest = max([*times.get(name, []), *_known(fate.latest)], default=None)
        own = [] if fate.latest is None else [fate.latest - query.by_name[name].lateness]
        fate.watermark = max([*own, *_known(fate.watermark)], default=None)
    now = max((f.latest for f in fates.values() if f.latest is not None), default=None)
    if now is None:
        return
    for name, fate in fates.items():
        if times.get(name) or fate.seen is None:
            fate.seen = now
        fate.idle = idle is not None and not times.get(name) and now - fate.seen > idle
    active = [fate.watermark for fate in fates.values() if not fate.idle]
    reached = [w for w in active if w is not None]
    if active and len(reached) == len(active):
        for fate in fates.values():
            if fate.idle:
                fate.watermark = max([min(reached), *_known(fate.watermark)])


def _known(value: int | None) -> list[int]:
    return [] if value is None else [value]

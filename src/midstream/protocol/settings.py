"""The settings of a query. Those that shape its state are in the checkpoint, and a restart must agree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

import msgspec

from midstream.adapt.policy import MigrationPolicy
from midstream.adapt.single_partition import SinglePartition, check_plan
from midstream.engine.references import MAX_PARTITIONS
from midstream.engine.routing import Routing, even_routing
from midstream.errors import CheckpointError
from midstream.plan.tree import Plan
from midstream.query.query import Query
from midstream.query.stream import ColumnRef
from midstream.query.types import show_type
from midstream.query.window import Windows
from midstream.values import Micros, duration, show_duration

MAX_GROUPS = 1 << 20
ONE_DAY = Micros(86_400_000_000)
Clock = Literal["wall", "stream"]
CLOCKS: tuple[Clock, ...] = get_args(Clock)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a query runs, apart from what it asks; only partitions and groups must stay as they are."""

    partitions: int
    groups: int
    idle_timeout: Micros | None = None
    adapt: bool = False
    """Whether the query changes its plan by itself."""
    policy: MigrationPolicy = field(default_factory=MigrationPolicy)
    max_event_time_ahead: Micros | None = ONE_DAY
    """How far ahead of the clock an event time may be; None for any time."""
    event_time_clock: Clock = "wall"
    """What event times are compared with: the wall clock, or the newest event time of their stream."""
    single_partition: SinglePartition = "auto"
    """Whether plans may have nodes that no key places, whose rows are all in one partition."""

    def check_plan(self, query: Query, plan: Plan) -> None:
        """Refuse a plan that has all rows of a node in one partition, if that is forbidden."""
        check_plan(query, plan, self.partitions, self.single_partition)

    def routing(self) -> Routing:
        """Which engine partition has which partition group."""
        return even_routing(self.partitions, self.groups)


def describe(query: Query, settings: Settings) -> dict[str, Any]:
    """What a restart must agree with, as plain values that a person can read in the manifest."""
    return {
        "order": list(query.names),
        "timeZone": query.zone,
        "streams": {
            stream.name: {
                "time": str(stream.time),
                "lateness": show_duration(stream.lateness),
                "columns": {f.name: show_type(f.type) for f in stream.schema},
            }
            for stream in query.streams
        },
        "on": [*map(str, query.equalities), *(residual.text for residual in query.residuals)],
        "within": {f"{a}, {b}": show_duration(bound) for a, b, bound in query.windows.bounds},
        "select": [f"{output.ref} AS {output.name}" for output in query.outputs],
        "options": {"partitions": settings.partitions, "groups": settings.groups},
    }


def must_agree(stored: dict[str, Any], query: Query, settings: Settings) -> None:
    """Refuse to go on from a checkpoint of another query, naming the first thing that differs.

    Columns of a source that the query does not use are in no state: they may be added, removed and changed.
    """
    read_description(stored)
    used = {name: query.columns_of(name) | _selected(stored, name) for name in query.names}
    current = _only_used(describe(query, settings), used)
    stored = _with_current_type_names(stored, query)
    for path, before, now in _differences(_only_used(stored, used), current, ()):
        was = f"{'.'.join(path)} was {_show(before)}"
        raise CheckpointError(
            f"a query must go on with what its checkpoint was made with: {was}",
            got=_show(now),
            hint=_hint(path, before),
        )


def _with_current_type_names(stored: dict[str, Any], query: Query) -> dict[str, Any]:
    """A description with Spark's names of nested types: earlier versions wrote Arrow's."""
    streams = dict(stored["streams"])
    for stream in query.streams:
        if stream.name in streams:
            columns = streams[stream.name]["columns"]
            same = {f.name: show_type(f.type) for f in stream.schema if columns.get(f.name) == str(f.type)}
            streams[stream.name] = {**streams[stream.name], "columns": {**columns, **same}}
    return {**stored, "streams": streams}


class PersistedOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options that a checkpoint remembers."""

    partitions: Annotated[int, msgspec.Meta(ge=1, le=MAX_PARTITIONS)]
    groups: Annotated[int, msgspec.Meta(ge=1, le=MAX_GROUPS)]


def read_description(stored: dict[str, Any]) -> PersistedOptions:
    """The persisted options of a description, if it has the form that :func:`describe` gives it."""
    try:
        return msgspec.convert(stored, _Description).options
    except msgspec.ValidationError as error:
        raise CheckpointError(
            "a checkpoint must say what it was made with",
            got=str(error),
            hint="restore its manifests from a copy",
        ) from None


def described_windows(stored: dict[str, Any]) -> Windows:
    """The windows of a description."""
    pairs = ((pair.split(", "), bound) for pair, bound in stored["within"].items())
    return Windows(tuple((a, b, duration(bound, "a window")) for (a, b), bound in pairs))


def described_lateness(stored: dict[str, Any], stream: str) -> Micros:
    """The lateness of a stream of a description."""
    return duration(stored["streams"][stream]["lateness"], "lateness")


class _Source(msgspec.Struct, forbid_unknown_fields=True):
    time: str
    lateness: str
    columns: dict[str, str]


class _Description(msgspec.Struct, forbid_unknown_fields=True, rename={"time_zone": "timeZone"}):
    order: list[str]
    time_zone: str
    streams: dict[str, _Source]
    on: list[str]
    within: dict[str, str]
    select: list[str]
    options: PersistedOptions


def _selected(stored: dict[str, Any], stream: str) -> frozenset[str]:
    """The columns of a stream that were outputs. One that is gone is no longer part of ``*``."""
    columns = stored["streams"][stream]["columns"] if stream in stored["streams"] else {}
    refs = {column: str(ColumnRef(stream, (column,))) for column in columns}
    outputs = [item.rpartition(" AS ")[0] for item in stored["select"]]
    return frozenset(column for column, ref in refs.items() if ref in outputs)


def _only_used(description: dict[str, Any], used: dict[str, frozenset[str]]) -> dict[str, Any]:
    streams = {
        name: {**source, "columns": {c: t for c, t in source["columns"].items() if c in used.get(name, ())}}
        for name, source in description["streams"].items()
    }
    return {**description, "streams": streams}


def _hint(path: tuple[str, ...], before: Any) -> str:
    new_query = "start a new query with another checkpointLocation"
    if "columns" not in path:
        return f"restore it, or {new_query}"
    if before is None:
        return f"name the columns in select, so that a new one of the source stays out, or {new_query}"
    return f"give the column its old name and type in the DataFrame, or {new_query}"


def _show(value: Any) -> str:
    return "nothing" if value is None else repr(value)


def _differences(stored: Any, current: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any, Any]]:
    if stored == current:
        return []
    if isinstance(stored, dict) and isinstance(current, dict):
        keys = dict.fromkeys([*stored, *current])
        return [
            difference
            for key in keys
            for difference in _differences(stored.get(key), current.get(key), (*path, key))
        ] or [(path, list(stored), list(current))]
    return [(path, stored, current)]

"""The settings of a query. What shapes its state is in the checkpoint, and a restart must agree.

What may change nevertheless are the options that are not in the checkpoint, and the terms
(``protocol/query_terms.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, get_args

import msgspec

from midstream.adapt.policy import MigrationPolicy
from midstream.adapt.single_partition import SinglePartition, check_plan
from midstream.errors import CheckpointError, QueryError
from midstream.memory.balance import BalanceSettings
from midstream.memory.settings import MemorySettings
from midstream.migration.lifecycle import ROWS_MOVED_AT_ONCE
from midstream.plan.tree import Plan
from midstream.protocol.query_terms import (
    check_terms,
    describe_outputs,
    read_columns,
    read_windows,
    terms_of,
)
from midstream.query.clauses import Output
from midstream.query.query import Query
from midstream.query.stream import ColumnRef
from midstream.query.types import show_type
from midstream.sites.planner import SitePolicy, first_plan
from midstream.state.json_with_digest import RESTORE
from midstream.state.manifest import Manifest
from midstream.state.routing_table import Shares
from midstream.values import Micros, duration, show_duration

MAX_GROUPS = 1 << 20
ONE_DAY = Micros(86_400_000_000)
Clock = Literal["wall", "stream"]
CLOCKS: tuple[Clock, ...] = get_args(Clock)
# Where the description of a query has the names of its streams.
_ORDER = ("order",)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a query runs, apart from what it asks; only the number of groups must stay as it is."""

    partitions: int | None
    """The number of engine partitions that a start asks for; later requests may change it. None goes on with
    the number of the checkpoint, and with what is requested."""
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
    memory: MemorySettings | None = None
    """The budget of memory; None if there is none."""
    balance: BalanceSettings = field(default_factory=BalanceSettings)
    """When state moves between partitions."""
    shares: Shares = ()
    """In which proportion partitions have groups when the query begins; empty for as many each."""
    rows_moved_at_once: int = ROWS_MOVED_AT_ONCE
    """How many rows a state may have that a migration moves at once; a larger one is moved in portions."""
    sites: SitePolicy = field(default_factory=SitePolicy)
    """How plans are found if streams live at sites."""

    def first_plan(self, query: Query) -> Plan:
        """The plan of a query for which the user gives none."""
        return first_plan(query, self.sites)

    def check_plan(self, query: Query, plan: Plan, partitions: int) -> None:
        """Refuse a plan that has all rows of a node in one partition, if that is forbidden."""
        check_plan(query, plan, partitions, self.single_partition)


def definition_of(query: Query, settings: Settings) -> dict[str, Any]:
    """What a restart must agree with, as plain values that a person can read in the manifest."""
    terms = terms_of(query)
    return {
        "order": list(query.names),
        "timeZone": query.zone,
        "streams": {
            stream.name: {
                "time": str(stream.time),
                "lateness": terms.lateness[stream.name],
                "columns": {f.name: show_type(f.type) for f in stream.schema},
            }
            for stream in query.streams
        },
        "on": [*map(str, query.equalities), *(residual.text for residual in query.residuals)],
        "within": terms.within,
        "select": terms.select,
        "keeps": describe_outputs(query.kept),
        "aggregation": None if query.aggregation is None else query.aggregation.description,
        "options": {"groups": settings.groups},
        **_sites_of(query),
    }


def _sites_of(query: Query) -> dict[str, Any]:
    """Where streams and the sink live; nothing if they live at no sites. Links are not of the state."""
    topology = query.topology
    if topology is None:
        return {}
    sites = {"streams": dict(topology.site_of), "sink": topology.sink}
    return {"sites": {**sites, "partitions": topology.partitions_of_sites}}


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing that a query asks otherwise than a definition in a checkpoint, apart from its terms."""

    was: str
    """What it was, such as ``on was ['a.k = b.k']``."""
    now: str
    hint: str


def first_difference(definition: dict[str, Any], query: Query, settings: Settings) -> Difference | None:
    """What a query asks otherwise than a definition, if it is not the same one up to its terms.

    Columns of a source that the query does not use are in no state: they may be added, removed and changed.
    """
    read_persisted_options(definition)
    current = definition_of(query, settings)
    if definition == current:
        return None
    kept = _kept_columns(definition)
    used = {
        name: query.columns_of(name) | {ref.path[0] for ref, _ in kept if ref.stream == name}
        for name in query.names
    }
    stored = _with_current_type_names(definition, query)
    before_now = (_fixed(stored, used), _fixed(current, used))
    for path, before, now in _differences(*before_now, ()):
        show = ", ".join if path == _ORDER else _show
        return Difference(
            f"{_subject(path, before, now)} {show(before)}", show(now), _hint(path, before, now)
        )
    return None


def with_kept(definition: dict[str, Any], query: Query) -> Query:
    """A query with what the states of a definition keep, of which it is the same one up to its terms."""
    return replace(query, kept=tuple(_output(query, ref, name) for ref, name in _kept_columns(definition)))


def check_same_definition(manifest: Manifest, query: Query, settings: Settings) -> Query:
    """The query that goes on from a manifest: as it is asked now, with what the states keep.

    Another query is refused, naming the first thing that differs, and so are terms that the state does not
    allow.
    """
    if (difference := first_difference(manifest.definition, query, settings)) is not None:
        must = f"a query must go on with what its checkpoint was made with: {difference.was}"
        raise CheckpointError(must, got=difference.now, hint=difference.hint)
    resumed = with_kept(manifest.definition, query)
    check_terms(manifest, resumed)
    return resumed


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

    groups: Annotated[int, msgspec.Meta(ge=1, le=MAX_GROUPS)]


def read_persisted_options(stored: dict[str, Any]) -> PersistedOptions:
    """The persisted options of a description, if it has the form that ``definition_of`` gives it."""
    try:
        description = msgspec.convert(stored, _Description)
        read_windows(description.within)
        for source in description.streams.values():
            duration(source.lateness, "lateness")
        return description.options
    except (ValueError, QueryError) as error:
        raise CheckpointError(
            "a checkpoint must say what it was made with",
            got=str(error),
            hint="restore its manifests from a copy",
        ) from None


class _Source(msgspec.Struct, forbid_unknown_fields=True):
    time: str
    lateness: str
    columns: dict[str, str]


class _Windows(msgspec.Struct, forbid_unknown_fields=True):
    length: int
    slide: int
    start: int
    time: str | None
    position: int


class _Aggregated(msgspec.Struct, forbid_unknown_fields=True):
    mode: Literal["append", "update"]
    by: list[str]
    window: _Windows
    aggregates: list[str]


class _Sites(msgspec.Struct, forbid_unknown_fields=True):
    streams: dict[str, str]
    sink: str
    partitions: dict[str, int]


class _Description(msgspec.Struct, forbid_unknown_fields=True, rename={"time_zone": "timeZone"}):
    order: list[str]
    time_zone: str
    streams: dict[str, _Source]
    on: list[str]
    within: dict[str, str]
    select: list[str]
    keeps: list[str]
    aggregation: _Aggregated | None
    options: PersistedOptions
    sites: _Sites | None = None


def _kept_columns(stored: dict[str, Any]) -> list[tuple[ColumnRef, str]]:
    """What the states keep for outputs: columns and their names."""
    try:
        kept = read_columns(stored["keeps"])
        unknown = [ref for ref, _ in kept if ref.path[0] not in stored["streams"][ref.stream]["columns"]]
    except (KeyError, ValueError, IndexError) as error:
        raise CheckpointError("a checkpoint must say what its states keep", got=error, hint=RESTORE) from None
    if unknown:
        raise CheckpointError("states must keep columns of the streams", got=unknown[0], hint=RESTORE)
    return kept


def _output(query: Query, ref: ColumnRef, name: str) -> Output:
    try:
        return Output(name, ref, query.by_name[ref.stream].type_of(ref))
    except KeyError:
        raise CheckpointError("states must keep columns of the streams", got=ref, hint=RESTORE) from None


def _fixed(description: dict[str, Any], used: dict[str, frozenset[str]]) -> dict[str, Any]:
    """What must stay as it is: no terms, and of the columns only those that are used."""
    streams = {
        name: {
            "time": source["time"],
            "columns": {c: t for c, t in source["columns"].items() if c in used.get(name, ())},
        }
        for name, source in description["streams"].items()
    }
    fixed = {key: description[key] for key in ("order", "timeZone", "on", "options")}
    fixed |= {"sites": description["sites"]} if description.get("sites") else {}
    return {**fixed, **_in_calls(description["aggregation"]), "streams": streams}


def _in_calls(aggregation: dict[str, Any] | None) -> dict[str, list[str] | str | None]:
    """An aggregation as the calls that ask for it, so that errors show what a user writes."""
    if aggregation is None:
        return {"groupBy": None, "agg": None, "outputMode": None}
    window = aggregation["window"]
    parts = ["length"]
    if window["start"] or window["slide"] != window["length"]:
        parts += ["slide", "start"] if window["start"] else ["slide"]
    durations = ", ".join(repr(show_duration(window[part])) for part in parts)
    time = "" if window["time"] is None else f", time of {window['time']}"
    groups = list(aggregation["by"])
    groups.insert(window["position"], f"window({durations}{time})")
    return {"groupBy": groups, "agg": aggregation["aggregates"], "outputMode": aggregation["mode"]}


_UNDO = {
    "timeZone": "set spark.sql.session.timeZone to what it was",
    "options": "leave the option out",
}


_REPLACED = frozenset({"on", "groupBy", "agg"})
"""What another definition may have that replaces the one of the checkpoint."""


def _hint(path: tuple[str, ...], before: Any, now: Any) -> str:
    new_query = "start a new query with another checkpointLocation"
    if "columns" not in path:
        other = ""
        if path[0] in _REPLACED or (path == _ORDER and set(before) < set(now)):
            other = "let it replace the old one with the option 'replace', "
        elif path == _ORDER and set(before) > set(now):
            other = "leave a stream out while the query runs, with query.replace(new_join), "
        undo = _UNDO.get(path[0], "write it as it was")
        return f"{undo}, {other}or {new_query}"
    if before is None:
        return f"name the columns in select, so that a new one of the source stays out, or {new_query}"
    return f"give the column its old name and type in the DataFrame, or {new_query}"


def _subject(path: tuple[str, ...], before: Any, now: Any) -> str:
    """What has changed. If streams have come or gone, their order is the first thing that differs."""
    if path != _ORDER:
        return f"{'.'.join(path)} was"
    return "the order of the streams was" if sorted(before) == sorted(now) else "the streams were"


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


# msgspec works out a type when it is first used, which is not safe in two threads at once. So it is done at
# import.
msgspec.json.Decoder(_Description)

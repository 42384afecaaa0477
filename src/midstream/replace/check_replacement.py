"""Which definitions a running query may get, and what of its states the new box can use."""

from __future__ import annotations

from midstream.engine.encode import make_encoder
from midstream.engine.places import Places
from midstream.engine.stored_columns import StoredColumns
from midstream.errors import QueryError
from midstream.migration.strategies import WITHOUT_HISTORY, BlackBoxStrategy
from midstream.plan.build_layout import build_layout
from midstream.plan.default_plan import default_plan
from midstream.plan.layout import Layout
from midstream.query.query import Query
from midstream.query.types import show_type
from midstream.replace.handover_time import longest_window
from midstream.replace.shared_streams import keeps_all_keys, shared_streams
from midstream.state.routing_table import RoutingTable

_NEW_QUERY = "start a new query with another checkpointLocation"
_NO_HISTORY = f"replace with strategy='{WITHOUT_HISTORY}', which needs no history"


def check_replacement(old: Query, new: Query, layout: Layout, strategy: BlackBoxStrategy, path: str) -> None:
    """Refuse a definition that a query cannot get, by this strategy or by any."""
    _check_no_sites(old, new)
    _check_streams(old, new)
    _check_output(old, new, path)
    missing = missing_columns(old, new, layout) if strategy.history != "none" else {}
    if missing:
        columns = [column for of_stream in missing.values() for column in of_stream]
        raise QueryError(
            "a strategy with stored rows must find the columns of the new definition in them",
            got=f"none of {', '.join(columns)}, which the query has not used so far",
            hint=_NO_HISTORY,
        )
    for stream in shared_streams(old, new):
        has_all = strategy.history != "none" and keeps_all_keys(old, new, stream)
        if longest_window(new, stream) is None and not (has_all and longest_window(old, stream) is None):
            raise QueryError(
                f"streams must be joined within a window, unless all rows of {stream} are replayed: "
                "otherwise the new definition never has all rows of a result",
                got=f"no window between {stream} and another stream",
                hint=f"say a long one, or {_NEW_QUERY}",
            )


def missing_columns(old: Query, new: Query, layout: Layout) -> dict[str, tuple[str, ...]]:
    """The columns of the new definition that the rows of each stream lack that the old box has stored."""
    return {
        stream: missing
        for stream in shared_streams(old, new)
        if (missing := _missing(StoredColumns.of(old, layout, stream), new, stream))
    }


def _missing(history: StoredColumns, new: Query, stream: str) -> tuple[str, ...]:
    places = Places(1, (RoutingTable(0, 1),))
    layout = build_layout(new, default_plan(new))
    encoder = make_encoder(new, layout, stream, places, whole_rows=False)
    return tuple(dict.fromkeys(str(column.ref) for column in encoder.source if not history.has(column)))


def _check_no_sites(old: Query, new: Query) -> None:
    topology = old.topology or new.topology
    if topology is not None:
        raise QueryError(
            "a definition that is replaced must have no streams that live at sites, before or after",
            got=", ".join(topology.sites),
            hint=_NEW_QUERY,
        )


def _check_streams(old: Query, new: Query) -> None:
    shared, added = shared_streams(old, new), set(new.names) - set(old.names)
    removed = set(old.names) - set(new.names)
    if not shared or (added and removed):
        raise QueryError(
            "a replacement must add streams, or leave some out, but not both: the query could not be started "
            "again before it has ended, as neither definition has all streams",
            got=f"{', '.join(new.names)} instead of {', '.join(old.names)}",
            hint=f"replace twice, or {_NEW_QUERY}",
        )
    if old.zone != new.zone:
        must = f"a replacement must keep the time zone, {old.zone}"
        raise QueryError(must, got=new.zone, hint="set spark.sql.session.timeZone to what it was")
    for name in shared:
        before, after = old.by_name[name], new.by_name[name]
        if before.time != after.time:
            must = f"a stream must keep its event time: {name} had {before.time}"
            raise QueryError(must, got=after.time, hint=f"write time={str(before.time)!r}, or {_NEW_QUERY}")
        for column in sorted(old.columns_of(name) & new.columns_of(name)):
            types = [stream.schema.field(column).type for stream in (before, after)]
            if types[0] != types[1]:
                must = f"a column must keep its type: {name}.{column} was {show_type(types[0])}"
                hint = "give it another name in the DataFrame of its stream"
                raise QueryError(must, got=show_type(types[1]), hint=hint)


def _check_output(old: Query, new: Query, path: str) -> None:
    same = old.output_schema.equals(new.output_schema) and _is_update_mode(old) == _is_update_mode(new)
    if not same and not path:
        raise QueryError(
            "results of another schema must have a place of their own",
            got=f"{_show(new)} instead of {_show(old)}",
            hint="select the same columns with the same names; or let the running query have it with "
            "replace(..., path=folder), if its sink is Parquet",
        )


def _is_update_mode(query: Query) -> bool:
    return query.aggregation is not None and query.aggregation.is_update_mode


def _show(query: Query) -> str:
    return ", ".join(f"{field.name} {show_type(field.type)}" for field in query.output_schema)

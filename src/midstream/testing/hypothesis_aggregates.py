"""Drawing aggregates of a drawn query: groups, windows and functions over any of its columns."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from pyarrow import types

from midstream.aggregate.read_aggregation import check_output_time, read_aggregation
from midstream.aggregate.window import Window, window
from midstream.errors import QueryError
from midstream.query.aggregation import Aggregation
from midstream.query.query import Query
from midstream.query.stream import ColumnRef
from midstream.query.types import canonical_type

_SIMPLE = (
    "count({})",
    "min({})",
    "max({})",
    "count(DISTINCT {})",
    "first({})",
    "last({})",
    "collect_list({})",
)
_EXACT = ("sum({})", "avg({})")
_SPREAD = (
    "stddev({})",
    "stddev_pop({})",
    "variance({})",
    "var_pop({})",
    "median({})",
    "percentile({}, 0.3)",
    "percentile_approx({}, 0.6)",
)
_SECONDS = st.sampled_from([(10, 10), (100, 25), (30, 20), (25, 7), (1000, 250), (1, 1)])


@st.composite
def aggregated(draw: st.DrawFn, query: Query) -> Query:
    """The query with aggregates of its results."""
    length, slide = draw(_SECONDS)
    start = draw(st.sampled_from([0, 0, 1]))
    timed = draw(st.sampled_from([None, None, *query.streams]))
    of_time = None if timed is None else str(timed.time)
    asked = window(
        f"{length} seconds", f"{slide} seconds", f"{start} seconds" if start < slide else None, time=of_time
    )
    keys: list[str | Window] = [f"{ref} AS g{i}" for i, ref in enumerate(draw(_some(_columns(query), 2)))]
    keys.insert(draw(st.integers(0, len(keys))), asked)
    functions = draw(st.lists(st.sampled_from((*_SIMPLE, *_EXACT, *_SPREAD)), max_size=6))
    calls = [
        "count(*)",
        *(call for function in functions for call in draw(_some(_calls(query, function), 2))),
    ]
    aggregation = read_aggregation(keys, [f"{call} AS a{i}" for i, call in enumerate(calls)], query.streams)
    found = with_aggregation(query, aggregation)
    try:
        check_output_time(found)
    except QueryError:
        windows = replace(aggregation.windows, stream=None)
        return with_aggregation(query, replace(aggregation, windows=windows))
    return found


def with_aggregation(query: Query, aggregation: Aggregation) -> Query:
    """The query, whose results are aggregated."""
    columns = aggregation.columns
    return replace(query, outputs=columns, kept=columns, aggregation=aggregation)


def _columns(query: Query) -> list[ColumnRef]:
    """The columns by which results may be grouped."""
    found = []
    for stream in query.streams:
        for field in stream.schema:
            ref = ColumnRef(stream.name, (field.name,))
            if types.is_struct(field.type):
                found += [ColumnRef(stream.name, (field.name, child.name)) for child in field.type]
            elif canonical_type(field.type) is not None:
                found.append(ref)
    return found


def _calls(query: Query, function: str) -> list[str]:
    """A function of each column of which DuckDB computes what Spark does."""
    calls = []
    for ref in _columns(query):
        dtype = query.by_name[ref.stream].type_of(ref)
        is_number = types.is_decimal(dtype) or types.is_floating(dtype) or types.is_integer(dtype)
        # Sums of the largest keys do not fit into their types, and DuckDB refuses what is infinite.
        is_summed = is_number and ref.path[0] in ("v", "w", "x", "id")
        allowed = function in _SIMPLE or is_summed
        if function in _SPREAD:
            allowed = is_summed and ref.path[0] != "x"
        calls += [function.format(ref)] if allowed else []
    return calls


def _some(items: list, most: int) -> st.SearchStrategy[list]:  # type: ignore[type-arg]  # any items
    return st.lists(st.sampled_from(items), max_size=most, unique=True)

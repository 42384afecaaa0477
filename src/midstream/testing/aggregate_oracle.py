"""DuckDB as the oracle of aggregates: of the rows of a batch join, in windows that it makes by itself.

What DuckDB has in other types than Spark, or rounds differently, is computed from its exact lists of values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from midstream.engine.results import TIME
from midstream.query.aggregation import Aggregate, Aggregation
from midstream.query.query import Query
from midstream.testing.oracle import database, matching_rows, outputs
from midstream.values import Micros

_SQL: dict[str, str] = {
    "count": "count({x})",
    "sum": "sum({x})",
    "min": "min({x})",
    "max": "max({x})",
    "stddev": "stddev_samp({x}::DOUBLE)",
    "stddev_pop": "stddev_pop({x}::DOUBLE)",
    "variance": "var_samp({x}::DOUBLE)",
    "var_pop": "var_pop({x}::DOUBLE)",
    "count distinct": "count(DISTINCT {x})",
    "approx_count_distinct": "count(DISTINCT {x})",
    "median": "quantile_cont({x}::DOUBLE, 0.5)",
    "percentile": "quantile_cont({x}::DOUBLE, {p})",
    "percentile_approx": "quantile_disc({x}, {p})",
    "first": "first({x} ORDER BY time, {x} ASC NULLS LAST)",
    "last": "last({x} ORDER BY time, {x} ASC NULLS FIRST)",
    "collect_list": "list({x} ORDER BY {x}) FILTER ({x} IS NOT NULL)",
}
"""Each function in DuckDB's words."""


def aggregate_windows(
    query: Query,
    tables: Mapping[str, pa.Table],
    *,
    after: int | None = None,
    until: int | None = None,
) -> pa.Table:
    """The windows over all results of some tables, those that end in a range of time."""
    return aggregate_results(query, timed_results(query, tables), after=after, until=until)


def timed_results(
    query: Query, tables: Mapping[str, pa.Table], *, since: Mapping[str, int] | None = None
) -> pa.Table:
    """The results of some tables with their times; of tables that have grown, those with a row that is new.

    New are the rows of each stream since some position.
    """
    rows = matching_rows(query, tables)
    if since is not None:
        are_new = [rows.column(name).to_numpy() >= since[name] for name in query.names]
        rows = rows.filter(pa.array(np.any(are_new, axis=0)))
    return results_with_times(query, tables, rows)


def results_with_times(query: Query, tables: Mapping[str, pa.Table], rows: pa.Table) -> pa.Table:
    """Results, as row numbers of tables, with their columns and times."""
    times = _times(query, tables, rows)
    # There may be no other column.
    columns = [*outputs(query, tables, rows).columns, times]
    return pa.table(columns, schema=query.joined_schema.append(pa.field(TIME, pa.int64())))


def aggregate_results(
    query: Query, results: pa.Table, *, after: int | None = None, until: int | None = None, since: int = 0
) -> pa.Table:
    """The windows over results that have their times, those that end in a range of time.

    Of their groups, those that have a result since some position.
    """
    aggregation = aggregation_of(query)
    *names, time = results.schema.names
    columns = {f"c{i}": results.column(name) for i, name in enumerate(names)} | {"time": results.column(time)}
    if since:
        columns["is_new"] = pa.array(np.arange(results.num_rows) >= since)
    with database().cursor() as connection:
        connection.register("joined", pa.table(columns))
        sql = _sql(aggregation, names, after, until) + (" HAVING bool_or(is_new)" if since else "")
        found = connection.sql(sql).to_arrow_table()
    return _as_results(aggregation, found)


def assert_same_updates(got: pa.Table, made: pa.Table, before: pa.Table, query: Query) -> None:
    """Fail unless an epoch in update mode gave the windows and groups of the results that it has made.

    Each comes once, with its value over these results and those of ``before``.
    """
    want = aggregate_results(query, pa.concat_tables([before, made]), since=before.num_rows)
    assert_same_windows(got, want, query)


def only_groups_of(table: pa.Table, others: pa.Table, query: Query) -> pa.Table:
    """The rows of a table whose windows and groups are in another table, too."""
    kept = set(_groups_of(others, aggregation_of(query)))
    groups = _groups_of(table, aggregation_of(query))
    return table.filter(pa.array([group in kept for group in groups], pa.bool_()))


def last_updates(updates: Sequence[pa.Table], query: Query) -> pa.Table:
    """Of all updates of a window and group the last one."""
    table = pa.concat_tables(updates)
    last = {group: row for row, group in enumerate(_groups_of(table, aggregation_of(query)))}
    return table.take(pa.array(last.values(), pa.int64()))


def aggregation_of(query: Query) -> Aggregation:
    """What a query aggregates, which it must."""
    if query.aggregation is None:
        raise ValueError("the query has no aggregates")
    return query.aggregation


def assert_same_windows(got: pa.Table, want: pa.Table, query: Query) -> None:
    """Fail unless both have the same windows and groups, each once, with the same aggregates.

    Doubles may differ by what the order of additions does, and lists in their order.
    """
    aggregation = aggregation_of(query)
    rows, wanted = _by_group(got, aggregation), _by_group(want, aggregation)
    missing, surplus = sorted(wanted.keys() - rows.keys()), sorted(rows.keys() - wanted.keys())
    assert got.num_rows == len(rows), f"groups must leave once; got {got.num_rows} rows of {len(rows)} groups"
    assert not missing, f"{want.num_rows} groups are wanted, {got.num_rows} were got; missing: {missing[:3]}"
    assert not surplus, f"{want.num_rows} groups are wanted, {got.num_rows} were got; surplus: {surplus[:3]}"
    for group, values in wanted.items():
        for aggregate, one, other in zip(aggregation.aggregates, rows[group], values, strict=True):
            is_same = _is_near if aggregate.function == "approx_count_distinct" else _is_same
            assert is_same(one, other), f"{aggregate.text} of {group} must be {other}; got {one}"


def _by_group(table: pa.Table, aggregation: Aggregation) -> dict[tuple[str, ...], tuple[Any, ...]]:
    values = zip(*(column.to_pylist() for column in table.columns[1 + len(aggregation.keys) :]), strict=True)
    return dict(zip(_groups_of(table, aggregation), values, strict=True))


def _groups_of(table: pa.Table, aggregation: Aggregation) -> list[tuple[str, ...]]:
    """The window and group of each row, as text."""
    columns = (_plain(column).to_pylist() for column in table.columns[: 1 + len(aggregation.keys)])
    return list(zip(*(map(str, column) for column in columns), strict=True))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """A column without times that Python's calendar does not have: windows by the numbers of their ends."""
    if not types.is_struct(column.type):
        return column
    return column.combine_chunks().field("end").cast(pa.int64())


def _is_near(one: int, other: int) -> bool:
    """Whether an approximate count is what it may be: five standard deviations are allowed."""
    return abs(one - other) <= max(3, other // 4)


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return sorted(map(str, one)) == sorted(map(str, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-7, abs_tol=1e-7) or (math.isnan(one) and math.isnan(other))
    return one == other and type(one) is type(other)


def _times(query: Query, tables: Mapping[str, pa.Table], rows: pa.Table) -> pa.Array:
    """The time of each result, in microseconds, by which it is in windows."""
    times = {}
    for stream in query.streams:
        moments = tables[stream.name].column(stream.time.path[0])
        micros = moments.cast(pa.timestamp("us", moments.type.tz)).cast(pa.int64())
        times[stream.name] = micros.take(rows.column(stream.name)).to_numpy()
    chosen = aggregation_of(query).windows.stream
    of_results = times[chosen] if chosen is not None else np.maximum.reduce(list(times.values()))
    return pa.array(of_results, pa.int64())


def _sql(aggregation: Aggregation, names: list[str], after: int | None, until: int | None) -> str:
    windows = aggregation.windows
    column = {name: f"c{i}" for i, name in enumerate(names)}
    keys = [column[str(key.ref)] for key in aggregation.keys]
    # Times before 1970 are negative, and so would be what is left of a division.
    last_begin = (
        f"(time - (((time - {windows.start}) % {windows.slide}) + {windows.slide}) % {windows.slide})"
    )
    number = -(-windows.length // windows.slide)
    begins = f"unnest(range(0, {number})) AS step"
    grouped = ", ".join(["begin", *keys])
    computed = ", ".join(f"{_call(each, column)} AS a{i}" for i, each in enumerate(aggregation.aggregates))
    bounds = [f"begin + {windows.length} > time"]
    bounds += [] if after is None else [f"begin + {windows.length} > {after}"]
    bounds += [] if until is None else [f"begin + {windows.length} <= {until}"]
    return (
        f"WITH spread AS (SELECT *, {begins} FROM joined), "  # noqa: S608 - names are our own
        f"placed AS (SELECT *, {last_begin} - step * {windows.slide} AS begin FROM spread) "
        f"SELECT {grouped}, {computed} FROM placed WHERE {' AND '.join(bounds)} GROUP BY {grouped}"
    )


def _call(aggregate: Aggregate, column: Mapping[str, str]) -> str:
    if aggregate.column is None:
        return "count(*)"
    x = column[aggregate.column.name]
    if aggregate.function == "avg":
        # DuckDB has a double for decimals too.
        return f"{{'sum': sum({x}), 'count': count({x})}}"
    share = aggregate.parameters[0] if aggregate.parameters else ""
    return _SQL[aggregate.function].format(x=x, p=share)


def _as_results(aggregation: Aggregation, found: pa.Table) -> pa.Table:
    windows, schema = aggregation.windows, aggregation.schema
    begins = found.column("begin").to_pylist()
    stamps = [
        pa.array([Micros(begin + length) for begin in begins], pa.int64()).cast(windows.type)
        for length in (0, windows.length)
    ]
    columns: list[Any] = [_with_one_zero(found.column(1 + i)) for i in range(len(aggregation.keys))]
    columns.insert(aggregation.window_position, pa.StructArray.from_arrays(stamps, ["start", "end"]))
    for i, aggregate in enumerate(aggregation.aggregates):
        values = found.column(f"a{i}").to_pylist()
        columns.append(pa.array(list(map(_converter(aggregate), values)), aggregate.type))
    return pa.table(
        [c.cast(f.type) if isinstance(c, pa.Array) else c for c, f in zip(columns, schema, strict=True)],
        schema=schema,
    )


def _with_one_zero(column: pa.ChunkedArray) -> pa.Array:
    """A key as Spark has it: DuckDB's group of -0.0 and 0.0 has the one that it found first."""
    key = column.combine_chunks()
    return pc.add(key, pa.scalar(0.0, key.type)) if types.is_floating(key.type) else key


def _converter(aggregate: Aggregate) -> Callable[[Any], Any]:
    dtype = aggregate.type
    if aggregate.function == "collect_list":
        return lambda value: value or []
    if aggregate.function == "avg" and types.is_decimal(dtype):
        return lambda parts: _average(parts["sum"], parts["count"], dtype.scale)
    if aggregate.function == "avg":
        return lambda parts: float(parts["sum"]) / parts["count"] if parts["count"] else None
    if types.is_integer(dtype):
        return lambda value: None if value is None else int(value)
    return lambda value: value


def _average(total: Decimal | None, count: int, scale: int) -> Decimal | None:
    if total is None or not count:
        return None
    with localcontext(prec=60):
        return (total / count).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)

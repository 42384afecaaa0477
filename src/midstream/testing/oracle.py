"""DuckDB as the oracle: the query as one batch join in SQL, run by an independent engine.

The SQL computes only *which rows join*, as row numbers; the columns are then taken from the given tables, so
that no value changes its type or its bits in another system.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from pyarrow import types
from sqlglot import exp

from midstream.query.query import Query
from midstream.query.stream import ColumnRef
from midstream.query.types import common_type

_ROW = "#row"
_TIME = "#time"
_ZONE = "UTC"


def batch_join(query: Query, tables: Mapping[str, pa.Table], *, zone: str = _ZONE) -> pa.Table:
    """All results over the tables, in no particular order."""
    return outputs(query, tables, matching_rows(query, tables, zone=zone))


def matching_rows(query: Query, tables: Mapping[str, pa.Table], *, zone: str = _ZONE) -> pa.Table:
    """The results as row numbers: a column per stream."""
    with database().cursor() as connection:
        if zone != _ZONE:
            connection.execute(f"SET TimeZone = '{zone}'")
        for stream in query.streams:
            table = tables[stream.name]
            connection.register(stream.name, _prepare(table, stream.time))
        # Numbers without nulls: as a relation, the query would be bound twice.
        return pa.table(connection.execute(batch_sql(query)).fetchnumpy())


@cache
def database() -> duckdb.DuckDBPyConnection:
    """One empty database, in UTC, for all joins: opening one takes longer than a small join."""
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute(f"SET GLOBAL TimeZone = '{_ZONE}'")
    return connection


def outputs(query: Query, tables: Mapping[str, pa.Table], rows: pa.Table) -> pa.Table:
    """The query's output columns for the rows of :func:`matching_rows`."""
    columns = [
        _follow(tables[output.ref.stream], output.ref).take(rows.column(output.ref.stream))
        for output in query.outputs
    ]
    return pa.table(columns, schema=query.joined_schema)


def batch_sql(query: Query) -> str:
    """The join in DuckDB's SQL, over tables that :func:`matching_rows` registers."""
    conditions = [
        *(_equality(query, e.left, e.right) for e in query.equalities),
        *(_window(a, b, width) for a, b, width in query.windows.widths),
        *(f'"{name}"."{_TIME}" IS NOT NULL' for name in query.names),
        *(f"({_residual(residual.text)})" for residual in query.residuals),
    ]
    picked = ", ".join(f'"{name}"."{_ROW}" AS "{name}"' for name in query.names)
    sources = ", ".join(f'"{name}"' for name in query.names)
    return f"SELECT {picked} FROM {sources} WHERE {' AND '.join(conditions)}"  # noqa: S608 - names are checked words


def _prepare(table: pa.Table, time: ColumnRef) -> pa.Table:
    moments = _follow(table, time)
    micros = moments.cast(pa.timestamp("us", moments.type.tz)).cast(pa.int64())
    numbers = pa.array(np.arange(table.num_rows))
    return table.append_column(_ROW, numbers).append_column(_TIME, micros)


def _follow(table: pa.Table, ref: ColumnRef) -> pa.ChunkedArray:
    values = table.column(ref.path[0])
    for step in ref.path[1:]:
        values = pc.struct_field(values, step)
    return values


def _equality(query: Query, left: ColumnRef, right: ColumnRef) -> str:
    dtype = common_type(query.by_name[ref.stream].type_of(ref) for ref in (left, right))
    name = _sql_type(dtype)
    return " = ".join(f"CAST({_column(ref)} AS {name})" for ref in (left, right))


def _window(a: str, b: str, width: int) -> str:
    return f'abs("{a}"."{_TIME}" - "{b}"."{_TIME}") <= {width}'


def _column(ref: ColumnRef) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in (ref.stream, *ref.path))


def _sql_type(dtype: pa.DataType) -> str:
    if types.is_decimal(dtype):
        return f"DECIMAL({dtype.precision}, {dtype.scale})"
    if types.is_timestamp(dtype):
        return "TIMESTAMP" if dtype.tz is None else "TIMESTAMPTZ"
    return {
        pa.int64(): "BIGINT",
        pa.float64(): "DOUBLE",
        pa.string(): "VARCHAR",
        pa.binary(): "BLOB",
        pa.bool_(): "BOOLEAN",
        pa.date32(): "DATE",
    }[dtype]


@lru_cache(maxsize=256)
def _residual(text: str) -> str:
    """The text in DuckDB's dialect, with Spark's semantics where the two differ."""
    tree = sqlglot.parse_one(text, read="spark").transform(_as_spark_means)
    return tree.sql(dialect="duckdb", identify=True)


def _as_spark_means(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Mod):
        # A remainder by zero is an error in DuckDB.
        divisor = exp.Nullif(this=node.expression, expression=exp.Literal.number(0))
        return exp.Mod(this=node.this, expression=divisor)
    if isinstance(node, exp.Like) and not isinstance(node.parent, exp.Escape):
        # DuckDB has no escape character unless it is given one.
        return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))
    return node

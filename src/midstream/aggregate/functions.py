"""The aggregate functions, by the names that they have in Spark, with Spark's types and nulls."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pyarrow as pa
from pyarrow import types

from midstream.aggregate.distinct_sketch import MAX_ERROR, MIN_ERROR, estimates, merge_codes, sketch_codes
from midstream.aggregate.function import Argument, Exprs, Function, State
from midstream.aggregate.quantiles import interpolated, nearest
from midstream.aggregate.unscaled import from_unscaled, unscaled
from midstream.engine.results import TIME
from midstream.query.aggregation import Parameter
from midstream.query.types import canonical_type

_MAX_DIGITS = 38
_WIDE = pl.Decimal(_MAX_DIGITS, 0)
_MAX_DIGITS_ADDED = 28
"""Of more digits, a sum may not fit into 128 bits, and wraps. Spark's has ten more digits for 10**10 rows."""
_MAX_BIGINT = 2**63 - 1


def _is_number(dtype: pa.DataType) -> bool:
    return bool(types.is_integer(dtype) or types.is_floating(dtype) or types.is_decimal(dtype))


def _can_be_added(dtype: pa.DataType) -> bool:
    return _is_number(dtype) and not (types.is_decimal(dtype) and dtype.precision > _MAX_DIGITS_ADDED)


def _is_simple(dtype: pa.DataType) -> bool:
    return canonical_type(dtype) is not None


def _has_order(dtype: pa.DataType) -> bool:
    return _is_number(dtype) or types.is_date32(dtype) or types.is_timestamp(dtype)


def with_one_zero(x: pl.Expr) -> pl.Expr:
    """Numbers with 0.0 for -0.0, as Spark has them in groups; Polars leaves out what only adds zero."""
    return pl.when(x == 0.0).then(pl.lit(0.0)).otherwise(x)


def _as_double(x: pl.Expr) -> pl.Expr:
    return x.cast(pl.Float64)


def _only_if_any(value: pl.Expr, of: pl.Expr) -> pl.Expr:
    """A sum is null, not zero, if there is nothing to add."""
    return pl.when(of.count() > 0).then(value)


# Sums.


def _sum_type(dtype: pa.DataType) -> pa.DataType:
    if types.is_decimal(dtype):
        return pa.decimal128(dtype.precision + 10, dtype.scale)
    return pa.float64() if types.is_floating(dtype) else pa.int64()


def _wide_sum(x: pl.Expr, dtype: pa.DataType) -> pl.Expr:
    """A sum that cannot overflow: of whole numbers in 38 digits."""
    if types.is_floating(dtype):
        return _as_double(x).sum()
    if types.is_decimal(dtype):
        return x.cast(pl.Decimal(_MAX_DIGITS, dtype.scale)).sum()
    # Fewer bits than 64 leave room for the rows of an epoch.
    return x.cast(pl.Int64).sum().cast(_WIDE) if dtype.bit_width < 64 else x.cast(_WIDE).sum()


def _finish_sum(state: State, dtype: pa.DataType, _parameters: tuple[Parameter, ...]) -> pl.Series:
    total = state["sum"]
    if not types.is_integer(dtype):
        return total
    return total.to_frame("sum").select(pl.col("sum").cast(pl.Int64, strict=False)).to_series()


def _average_type(dtype: pa.DataType) -> pa.DataType:
    if types.is_decimal(dtype):
        return pa.decimal128(dtype.precision + 4, dtype.scale + 4)
    return pa.float64()


def _finish_average(state: State, dtype: pa.DataType, _parameters: tuple[Parameter, ...]) -> pl.Series:
    total, count = state["sum"], state["count"]
    frame = pl.DataFrame({"sum": total if types.is_floating(dtype) else unscaled(total), "count": count})
    if not types.is_decimal(dtype):
        return frame.select(pl.when(pl.col("count") > 0).then(pl.col("sum") / pl.col("count"))).to_series()
    # Rounded half up, as Spark does.
    more = 10 ** (_average_type(dtype).scale - dtype.scale)
    size, n = pl.col("sum").abs(), pl.col("count").cast(pl.Int128)
    rounded = (size // n) * more + ((size % n) * (2 * more) + n) // (2 * n)
    # Polars has no minus for 128 bits.
    signed = pl.when(pl.col("sum") < 0).then(0 - rounded).otherwise(rounded)
    quotient = frame.select(pl.when(pl.col("count") > 0).then(signed)).to_series()
    return from_unscaled(quotient, _average_type(dtype))


# Moments: how many, their mean, and the sum of squared distances from it.


def _moments(x: pl.Expr, _dtype: pa.DataType) -> Exprs:
    x = _as_double(x)
    return {"count": x.count().cast(pl.Int64), "mean": x.mean(), "m2": x.var(ddof=0) * x.count()}


def _merge_moments(state: Exprs, _dtype: pa.DataType) -> Exprs:
    count, mean, m2 = state["count"], state["mean"], state["m2"]
    total = pl.when(count.sum() > 0).then((count * mean).sum() / count.sum())
    return {"count": count.sum(), "mean": total, "m2": m2.sum() + (count * (mean - total) ** 2).sum()}


def _spread(less: int, *, root: bool) -> Callable[[State, pa.DataType, tuple[Parameter, ...]], pl.Series]:
    def finish(state: State, _dtype: pa.DataType, _parameters: tuple[Parameter, ...]) -> pl.Series:
        count = pl.col("count")
        value = pl.when(count > less).then(pl.col("m2") / (count - less))
        return pl.DataFrame(dict(state)).select(value.sqrt() if root else value).to_series()

    return finish


# Lists of values.


def _values(x: pl.Expr, _dtype: pa.DataType) -> Exprs:
    return {"values": x.drop_nulls()}


def _numbers(x: pl.Expr, _dtype: pa.DataType) -> Exprs:
    return {"values": _as_double(x).drop_nulls()}


def _merge_values(state: Exprs, _dtype: pa.DataType) -> Exprs:
    return {"values": state["values"].explode().drop_nulls()}


def _distinct(x: pl.Expr, dtype: pa.DataType) -> Exprs:
    return {"values": (with_one_zero(x) if types.is_floating(dtype) else x).drop_nulls().unique().sort()}


def _one_of(pick: Callable[[pl.Expr], pl.Expr], *, nulls_last: bool) -> Function:
    """The value at the earliest or the latest time; of several the smallest or the largest."""

    def chosen(value: pl.Expr, time: pl.Expr) -> Exprs:
        at = value.filter(time == pick(time)).sort(nulls_last=nulls_last)
        return {"time": pick(time), "value": at.first() if nulls_last else at.last()}

    return Function(
        accepts=_is_simple,
        wants=_SIMPLE,
        result=_same,
        partial=lambda x, _dtype: chosen(x, pl.col(TIME)),
        merge=lambda state, _dtype: chosen(state["value"], state["time"]),
        finish=_column("value"),
    )


def _same(dtype: pa.DataType) -> pa.DataType:
    return dtype


def _bigint(_dtype: pa.DataType) -> pa.DataType:
    return pa.int64()


def _double(_dtype: pa.DataType) -> pa.DataType:
    return pa.float64()


def _column(name: str) -> Callable[[State, pa.DataType, tuple[Parameter, ...]], pl.Series]:
    return lambda state, _dtype, _parameters: state[name]


_NUMBERS = "a number"
_ADDABLE = f"a number, and if that is a decimal, of at most {_MAX_DIGITS_ADDED} digits"
_SIMPLE = "a number, text, a boolean, bytes, a date or a timestamp"
_SHARE = Argument("percentage", 0.0, 1.0)


def _moments_function(less: int, *, root: bool) -> Function:
    return Function(
        accepts=_is_number,
        wants=_NUMBERS,
        result=_double,
        partial=_moments,
        merge=_merge_moments,
        finish=_spread(less, root=root),
    )


def _percentile(arguments: tuple[Argument, ...]) -> Function:
    return Function(
        accepts=_is_number,
        wants=_NUMBERS,
        result=_double,
        partial=_numbers,
        merge=_merge_values,
        finish=lambda state, _dtype, given: interpolated(state["values"], float((*given, 0.5)[0])),
        arguments=arguments,
    )


def _largest(x: pl.Expr, dtype: pa.DataType) -> pl.Expr:
    # Spark's NaN is larger than any other number; a minimum leaves it out unless there is nothing else.
    return x.nan_max() if types.is_floating(dtype) else x.max()


def _extreme(best: Callable[[pl.Expr, pa.DataType], pl.Expr]) -> Function:
    return Function(
        accepts=_is_simple,
        wants=_SIMPLE,
        result=_same,
        partial=lambda x, dtype: {"value": best(x, dtype)},
        merge=lambda state, dtype: {"value": best(state["value"], dtype)},
        finish=_column("value"),
    )


FUNCTIONS: dict[str, Function] = {
    "count": Function(
        accepts=lambda _dtype: True,
        wants="any column",
        result=_bigint,
        partial=lambda x, _dtype: {"count": x.count().cast(pl.Int64)},
        merge=lambda state, _dtype: {"count": state["count"].sum()},
        finish=_column("count"),
    ),
    "sum": Function(
        accepts=_can_be_added,
        wants=_ADDABLE,
        result=_sum_type,
        partial=lambda x, dtype: {"sum": _only_if_any(_wide_sum(x, dtype), x)},
        merge=lambda state, _dtype: {"sum": _only_if_any(state["sum"].sum(), state["sum"])},
        finish=_finish_sum,
        may_overflow=True,
    ),
    "avg": Function(
        accepts=_can_be_added,
        wants=_ADDABLE,
        result=_average_type,
        partial=lambda x, dtype: {"sum": _wide_sum(x, dtype), "count": x.count().cast(pl.Int64)},
        merge=lambda state, _dtype: {name: part.sum() for name, part in state.items()},
        finish=_finish_average,
    ),
    "min": _extreme(lambda x, _dtype: x.min()),
    "max": _extreme(_largest),
    "stddev": _moments_function(1, root=True),
    "stddev_pop": _moments_function(0, root=True),
    "variance": _moments_function(1, root=False),
    "var_pop": _moments_function(0, root=False),
    "count distinct": Function(
        accepts=_is_simple,
        wants=_SIMPLE,
        result=_bigint,
        partial=_distinct,
        merge=lambda state, _dtype: {"values": state["values"].explode().drop_nulls().unique().sort()},
        finish=lambda state, _dtype, _given: state["values"].list.len().cast(pl.Int64),
    ),
    "approx_count_distinct": Function(
        accepts=_is_simple,
        wants=_SIMPLE,
        result=_bigint,
        prepare=sketch_codes,
        partial=lambda code, _dtype: {"codes": merge_codes(code)},
        merge=lambda state, _dtype: {"codes": merge_codes(state["codes"].explode())},
        finish=lambda state, _dtype, given: estimates(state["codes"], float(given[0])),
        arguments=(Argument("relative standard deviation", MIN_ERROR, MAX_ERROR, 0.05),),
    ),
    "median": _percentile(()),
    "percentile": _percentile((_SHARE,)),
    "percentile_approx": Function(
        accepts=_has_order,
        wants="a number, a date or a timestamp",
        result=_same,
        partial=_values,
        merge=_merge_values,
        finish=lambda state, _dtype, given: nearest(state["values"], float(given[0])),
        arguments=(_SHARE, Argument("accuracy", 1, _MAX_BIGINT, 10_000, whole=True)),
    ),
    "first": _one_of(lambda time: time.min(), nulls_last=True),
    "last": _one_of(lambda time: time.max(), nulls_last=False),
    "collect_list": Function(
        accepts=_is_simple,
        wants=_SIMPLE,
        result=pa.list_,
        partial=_values,
        merge=_merge_values,
        finish=_column("values"),
    ),
}

ALIASES = {
    "mean": "avg",
    "std": "stddev",
    "stddev_samp": "stddev",
    "var_samp": "variance",
    "approx_percentile": "percentile_approx",
    "first_value": "first",
    "last_value": "last",
}
"""Other names that Spark has for them."""

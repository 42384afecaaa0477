"""Functions by themselves: whatever is merged, their results are those of all rows, and like Spark's."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal, localcontext
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.aggregate.distinct_sketch import estimates, merge_codes, sketch_codes
from midstream.aggregate.emit import emitted_windows
from midstream.aggregate.functions import FUNCTIONS
from midstream.aggregate.partials import in_order, merge_partials, partial_aggregates
from midstream.aggregate.quantiles import interpolated
from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.window import window
from midstream.engine.results import TIME
from midstream.errors import InternalError, QueryError, StreamError
from midstream.query.aggregation import AggregationWindows
from tests.helpers import make_stream

NAN = math.nan
BIG = 2**63 - 1


def aggregate(call: str, values: pa.Array, parts: int = 1, times: list[int] | None = None) -> object:
    """The aggregate of values in one group and window, made from several partial aggregates."""
    column = "v"
    stream = make_stream("a", {"t": pa.timestamp("us"), column: values.type})
    aggregation = read_aggregation([window("10 seconds")], [f"{call.format('a.v')} AS x"], [stream])
    rows = {output.name: values for output in aggregation.columns}
    table = pa.table({**rows, TIME: pa.array(times or [0] * len(values), pa.int64())})
    cuts = np.linspace(0, len(values), parts + 1).astype(int)
    pieces = [table.slice(a, b - a) for a, b in pairwise(cuts) if b > a]
    merged = merge_partials(aggregation, [partial_aggregates(aggregation, piece) for piece in pieces])
    (result,) = emitted_windows(aggregation, [merged], None, 1 << 50)
    assert result.schema == aggregation.schema
    (value,) = result.column("x").to_pylist()
    return value


def doubles(*values: float | None) -> pa.Array:
    return pa.array(values, pa.float64())


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(
    ("call", "values", "wanted"),
    [
        # What Spark 4.3 gives for the same rows.
        ("sum({})", doubles(None, None), None),
        ("avg({})", pa.array([None, None], pa.int32()), None),
        ("count({})", doubles(None, None), 0),
        ("count(DISTINCT {})", doubles(None, None), 0),
        ("approx_count_distinct({})", doubles(None, None), 0),
        ("median({})", doubles(None, None), None),
        ("percentile_approx({}, 0.5)", doubles(None, None), None),
        ("collect_list({})", pa.array([None, None], pa.int32()), []),
        ("collect_list({})", pa.array([1, None], pa.int32()), [1]),
        ("stddev({})", doubles(1.0, None), None),
        ("variance({})", doubles(1.0, None), None),
        ("stddev_pop({})", doubles(1.0, None), 0.0),
        ("var_pop({})", doubles(1.0, None), 0.0),
        ("max({})", doubles(NAN, 1.0, 2.0), "nan"),
        ("min({})", doubles(NAN, 1.0, 2.0), 1.0),
        ("sum({})", doubles(NAN, 1.0, 2.0), "nan"),
        ("median({})", doubles(NAN, 1.0, 2.0), 2.0),
        ("percentile({}, 0.75)", doubles(NAN, 1.0, 2.0), "nan"),
        ("count(DISTINCT {})", doubles(NAN, NAN, 0.0, -0.0), 2),
        ("approx_count_distinct({})", doubles(NAN, NAN, 0.0, -0.0), 2),
        ("avg({})", pa.array([BIG, BIG]), 9.223372036854776e18),
        ("sum({})", pa.array([BIG, 5, -5]), BIG),
        (
            "avg({})",
            pa.array(map(Decimal, ("1.00", "1.01", "1.01")), pa.decimal128(10, 2)),
            Decimal("1.006667"),
        ),
        (
            "avg({})",
            pa.array(map(Decimal, ("-1.00", "0.00", "0.00")), pa.decimal128(10, 2)),
            Decimal("-0.333333"),
        ),
        ("sum({})", pa.array(map(Decimal, ("1.00", "2.02")), pa.decimal128(10, 2)), Decimal("3.02")),
        ("percentile({}, 0.1)", pa.array([4, 3, 2, 1], pa.int32()), 1.3),
        ("percentile_approx({}, 0.25)", pa.array([4, 3, 2, 1], pa.int32()), 1),
        ("percentile_approx({}, 0.5)", pa.array([4, 3, 2, 1], pa.int32()), 2),
        ("percentile_approx({}, 1)", pa.array([4, 3, 2, 1], pa.int32()), 4),
        ("max({})", pa.array([True, False, None]), True),
        ("max({})", pa.array([b"a", b"\xff", None]), b"\xff"),
    ],
)
def test_a_function_gives_what_spark_gives(call, values, wanted, parts):
    got = aggregate(call, values, parts)
    if wanted == "nan":
        assert isinstance(got, float)
        assert math.isnan(got)
        return
    assert got == pytest.approx(wanted) if isinstance(wanted, float) else got == wanted
    assert type(got) is type(wanted)


def test_a_sum_that_does_not_fit_is_an_error_that_names_it():
    with pytest.raises(StreamError, match=r"a sum must fit.*got x, of more than a bigint can hold\. Hint"):
        aggregate("sum({})", pa.array([BIG, 1]))


@pytest.mark.parametrize("call", ["sum({})", "avg({})", "mean({})"])
def test_decimals_whose_sums_may_not_fit_into_128_bits_are_refused(call):
    name = call.partition("(")[0]
    wanted = rf"{name} must be of a number, and if that is a decimal, of at most 28 digits; got a\.v.*cast it"
    with pytest.raises(QueryError, match=wanted):
        aggregate(call, pa.array([Decimal(1)], pa.decimal128(29, 10)))


@given(st.data(), st.integers(0, 28), st.integers(1, 4))
def test_decimals_of_as_many_digits_as_are_accepted_are_added_exactly(data, scale, parts):
    most = 10**28 - 1
    numbers = st.integers(-most, most) | st.sampled_from([most, -most])
    with localcontext(prec=200):
        values = [Decimal(n).scaleb(-scale) for n in data.draw(st.lists(numbers, min_size=1, max_size=50))]
        column = pa.array(values, pa.decimal128(28, scale))
        total = sum(values, Decimal(0))
        average = (total / len(values)).quantize(Decimal(1).scaleb(-scale - 4), ROUND_HALF_UP)
    assert aggregate("sum({})", column, parts) == total
    assert aggregate("avg({})", column, parts) == average


@pytest.mark.parametrize("sign", [1, -1])
def test_ten_thousand_million_of_the_largest_decimals_fit(sign):
    largest = sign * (10**28 - 1)
    rows, kind = 10**10, pa.decimal128(28, 0)
    state = {"sum": pl.Series([Decimal(largest * rows)], dtype=pl.Decimal(38, 0)), "count": pl.Series([rows])}
    assert FUNCTIONS["sum"].finish(state, kind, ()).to_list() == [largest * rows]
    assert FUNCTIONS["avg"].finish(state, kind, ()).to_list() == [largest]


def test_first_and_last_go_by_time_and_then_by_value():
    values = pa.array([5, None, 3, None, 9, 7], pa.int32())
    times = [20, 10, 10, 30, 30, 30]
    for parts in (1, 2, 3):
        assert aggregate("first({})", values, parts, times) == 3
        assert aggregate("last({})", values, parts, times) == 9
    assert aggregate("last({})", pa.array([1, None], pa.int32()), 2, [1, 2]) is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60), st.integers(2, 7))
def test_moments_do_not_depend_on_what_is_merged(values, parts):
    whole = np.var(values)
    assert aggregate("var_pop({})", doubles(*values), parts) == pytest.approx(whole, rel=1e-6, abs=1e-3)


@pytest.mark.parametrize("count", [10, 100, 1_000, 3_000, 30_000, 1_000_000])
def test_sketches_are_as_good_as_was_asked_for(count):
    """The relative errors of many sketches; their standard deviation is 0.05 by default."""
    errors = []
    for seed in range(20):
        values = np.random.default_rng((count, seed)).integers(-(2**62), 2**62, count)
        codes = sketch_codes(pa.chunked_array([values]), (0.05,))
        frame = pl.DataFrame({"code": pl.Series(pl.from_arrow(codes)), "half": np.arange(count) % 2})
        halves = frame.group_by("half").agg(merge_codes(pl.col("code")).alias("codes"))
        merged = halves.select(merge_codes(pl.col("codes").explode()).implode().alias("codes"))
        (estimate,) = estimates(merged["codes"], 0.05)
        errors.append(estimate / count - 1)
    assert np.sqrt(np.mean(np.square(errors))) < 0.07
    assert abs(np.mean(errors)) < 0.03


@given(st.integers(-(2**50), 2**50), st.integers(1, 40), st.integers(1, 40), st.integers(0, 39))
def test_the_first_window_that_ends_after_a_time_is_the_first(time, length, slide, start):
    slide, start = min(slide, length), start % min(slide, length)
    windows = AggregationWindows(length, slide, start, None, pa.timestamp("us"))
    end = windows.first_end_after(time)
    assert time < end <= time + slide
    assert (end - length - start) % slide == 0
    assert length % windows.pane == slide % windows.pane == 0


def test_an_error_while_groups_are_made_names_the_aggregates():
    stream = make_stream("a", {"t": pa.timestamp("us"), "v": pa.int64()})
    items = ["sum(a.v) AS total", "median(a.v) AS middle"]
    aggregation = read_aggregation([window("10 seconds")], items, [stream])
    table = pa.table({"a.v": pa.array([1]), TIME: pa.array([0])})
    partials = partial_aggregates(aggregation, table)
    wrong = partials.with_columns(pl.lit("text").alias("0 sum"))
    with pytest.raises(
        InternalError, match="the aggregates total, middle must work with any rows; got a fail"
    ):
        merge_partials(aggregation, [wrong])


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
@pytest.mark.parametrize("values", [[-0.0, 0.0], [0.0, -0.0], [-0.0]])
def test_the_group_of_both_zeros_is_zero(values, kind):
    stream = make_stream("a", {"t": pa.timestamp("us"), "v": kind})
    aggregation = read_aggregation(["a.v AS v", window("10 seconds")], ["count(*) AS n"], [stream])
    rows = [*values, math.nan, math.nan, None]
    table = pa.table({"a.v": pa.array(rows, kind), TIME: pa.array([0] * len(rows))})
    (result,) = emitted_windows(
        aggregation, [in_order(partial_aggregates(aggregation, table))], None, 1 << 50
    )
    groups = zip(map(str, result.column("v").to_pylist()), result.column("n").to_pylist(), strict=True)
    assert dict(groups) == {"0.0": len(values), "nan": 2, "None": 1}


@given(st.lists(st.lists(st.integers(-9, 9)), min_size=1), st.floats(0, 1) | st.sampled_from([0.1, 0.3, 0.7]))
def test_percentiles_lie_between_the_neighbours_of_their_position(lists, share):
    def wanted(values: list[int]) -> float | None:
        if not values:
            return None
        ordered: list[float] = sorted(map(float, values))
        position = (len(values) - 1) * share
        lower, upper = math.floor(position), math.ceil(position)
        low, high = ordered[lower], ordered[upper]
        between: float = (upper - position) * low + (position - lower) * high
        return low if lower == upper or low == high else between

    got = interpolated(pl.Series(lists, dtype=pl.List(pl.Float64)), share)
    assert got.to_list() == [wanted(values) for values in lists]

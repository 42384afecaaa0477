"""Any column becomes JSON text: what Python's own reader makes of it is what went in."""

import base64
import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.storage.iso_text import date_texts, time_texts
from midstream.storage.json_text import json_objects, json_texts

LOCAL, ZONED = pa.timestamp("us"), pa.timestamp("us", "UTC")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NAN, INF = float("nan"), float("inf")

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    **{pa.from_numpy_dtype(f"int{bits}"): st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
       for bits in (8, 16, 32, 64)},
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(38, 10): st.decimals(-(10**20), 10**20, places=10),
    pa.decimal128(5, 0): st.decimals(-99999, 99999, places=0),
    pa.string(): TEXTS,
    pa.binary(): st.binary(max_size=8),
    pa.date32(): st.dates(),
    LOCAL: st.datetimes(),
    ZONED: st.datetimes(timezones=st.just(UTC)),
}  # fmt: skip


def _kinds() -> st.SearchStrategy[pa.DataType]:
    scalar = st.sampled_from(list(SCALARS))
    names = st.lists(TEXTS, max_size=3, unique=True)
    return st.recursive(
        scalar,
        lambda inner: st.one_of(
            inner.map(pa.list_),
            names.flatmap(
                lambda ns: st.tuples(*(inner for _ in ns)).map(
                    lambda kinds: pa.struct(list(zip(ns, kinds, strict=True)))
                )
            ),
            st.builds(pa.map_, scalar, inner),
        ),
        max_leaves=5,
    )


def _values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if kind in SCALARS:
        return st.none() | SCALARS[kind]
    if pa.types.is_map(kind):
        entry = st.tuples(SCALARS[kind.key_type], _values(kind.item_type))
        return st.none() | st.lists(entry, max_size=3, unique_by=lambda e: str(e[0]))
    if pa.types.is_list(kind):
        return st.none() | st.lists(_values(kind.value_type), max_size=3)
    fields = {kind.field(i).name: _values(kind.field(i).type) for i in range(kind.num_fields)}
    return st.none() | st.fixed_dictionaries(fields)


def _read(kind: pa.DataType, value: Any) -> Any:  # noqa: PLR0911  # one for each kind
    """What a reader of JSON should find for a value of a kind."""
    if value is None or kind in (pa.bool_(), pa.string()) or pa.types.is_integer(kind):
        return value
    if pa.types.is_floating(kind):
        return value if math.isfinite(value) else {INF: "Infinity", -INF: "-Infinity"}.get(value, "NaN")
    if pa.types.is_decimal(kind):
        return f"{value:f}"
    if pa.types.is_binary(kind):
        return base64.b64encode(value).decode()
    if kind == pa.date32():
        return value.isoformat()
    if pa.types.is_timestamp(kind):
        exact = "seconds" if not value.microsecond else "microseconds" if value.microsecond % 1000 else None
        return value.isoformat(" " if kind.tz is None else "T", exact or "milliseconds")
    if pa.types.is_map(kind) and kind.key_type == pa.string():
        return {key: _read(kind.item_type, item) for key, item in value}
    if pa.types.is_map(kind):
        return [{"key": _read(kind.key_type, k), "value": _read(kind.item_type, v)} for k, v in value]
    if pa.types.is_list(kind):
        return [_read(kind.value_type, one) for one in value]
    return {kind.field(i).name: _read(kind.field(i).type, v) for i, v in enumerate(value.values())}


@given(data=st.data(), kind=_kinds(), cut=st.integers(0, 3))
def test_a_reader_finds_the_values_that_went_in(data, kind, cut):
    values = data.draw(st.lists(_values(kind), min_size=cut, max_size=cut + 4))
    whole = pa.array(values, kind)
    column = pa.chunked_array([whole.slice(cut), whole.slice(0, cut), whole.slice(0, 0)], kind)
    got = [json.loads(text) for text in json_texts(column)]
    want = [_read(kind, value) for value in column.to_pylist()]
    if "float" in str(kind):  # Python's float is a double
        got, want = ([_rounded(v) for v in values] for values in (got, want))
    assert got == want


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            return float(np.float32(value))
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return {k: _rounded(v) for k, v in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [True, None]),
        (pa.int64(), [-(2**63), None]),
        (pa.float32(), [0.1, 1e30, -0.0, 16777216.0, None]),
        (pa.float64(), [0.1, 1e300, 1e-10, -0.0, 1e15, 1e16, 5e-324, None]),
        (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-0.05"), None]),
        (pa.string(), ['a"\\/\b\f\n\r\t\x00\x1f\x7f\u2028é😀', "}", '{"v":', None]),
        (pa.date32(), [date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31), None]),
        (LOCAL, [datetime(2024, 1, 2, 3, 4, 5, us) for us in (0, 6, 120_000)]),  # noqa: DTZ001
        (ZONED, [datetime(2024, 1, 2, 3, 4, 5, us, tzinfo=UTC) for us in (0, 6, 120_000)]),
        (pa.list_(pa.date32()), [[date(2024, 2, 29), None], [], None]),
        (pa.struct([("a", pa.int64()), ('"', pa.string())]), [{"a": 1, '"': None}, None]),
        (pa.map_(pa.string(), pa.int64()), [[('"', 1), ("l", None)], [], None]),
    ],
    ids=str,
)
def test_what_polars_can_write_looks_as_polars_writes_it(kind, values):
    array = pa.array(values, kind)
    frame = pl.DataFrame({"x": pl.Series(pl.from_arrow(array))})
    want = frame.to_struct().struct.json_encode().to_list()
    assert json_objects([("x", json_texts(array))], len(array)).to_list() == want


def test_headers_of_kafka_have_their_bytes_in_base64():
    array = pa.array([[{"key": "h", "value": b"\xff"}, None], None, []], HEADERS)
    assert json_texts(array).to_list() == ['[{"key":"h","value":"/w=="},null]', "null", "[]"]


def test_numbers_that_json_does_not_have_are_texts():
    want = ['"NaN"', '"Infinity"', '"-Infinity"', "1.5", "null"]
    for kind in (pa.float32(), pa.float64()):
        assert json_texts(pa.array([NAN, INF, -INF, 1.5, None], kind)).to_list() == want
    nested = pa.array([{"x": [NAN]}], pa.struct([("x", pa.list_(pa.float64()))]))
    assert json_texts(nested).to_list() == ['{"x":["NaN"]}']


def test_fields_of_one_name_are_both_there():
    twins = pa.StructArray.from_arrays([pa.array([1]), pa.array(["x"])], names=["a", "a"])
    assert json_texts(twins).to_list() == ['{"a":1,"a":"x"}']


def test_nulls_hide_what_lies_beneath_them():
    values = pa.array([1, 2, 3])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3]), values, mask=pa.array([True, False]))
    assert json_texts(lists).to_list() == ["null", "[3]"]
    structs = pa.StructArray.from_arrays([values], names=["a"], mask=pa.array([False, True, False]))
    assert json_texts(structs.slice(1)).to_list() == ["null", '{"a":3}']


@pytest.mark.parametrize("kind", [pa.int64(), HEADERS, pa.struct([]), pa.map_(pa.string(), ZONED), ZONED])
def test_no_rows_are_no_texts(kind):
    for empty in (pa.array([], kind), pa.chunked_array([], kind), pa.array([None], kind).slice(1)):
        assert json_texts(empty).to_list() == []


def test_the_ends_of_dates_and_times_are_written_as_spark_writes_them():
    days = pa.array([-(2**31), 2**31 - 1], pa.int32()).view(pa.date32())
    assert json_texts(days).to_list() == ['"-5877641-06-23"', '"+5881580-07-11"']
    times = pa.array([-(2**63), 2**63 - 1]).cast(ZONED)
    low, high = "-290308-12-21T19:59:05.224192+00:00", "+294247-01-10T04:00:54.775807+00:00"
    assert json_texts(times).to_list() == [f'"{low}"', f'"{high}"']
    local = [f'"{text[:-6].replace("T", " ")}"' for text in (low, high)]
    assert json_texts(times.cast(LOCAL)).to_list() == local


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1))
def test_the_calendar_repeats_every_400_years(days):
    """Python's calendar is the oracle for the days of four centuries; all others are those, shifted."""
    for text, day in zip(date_texts(np.array(days, np.int64)), days, strict=True):
        rounds, rest = divmod(day, 146_097)
        like = date(1970, 1, 1) + timedelta(days=rest)
        year = like.year + 400 * rounds
        shown = f"{year:04d}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):04d}"
        assert text == f"{shown}-{like:%m-%d}"


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.sampled_from(["s", "ms", "us", "ns"]))
def test_the_time_of_a_day_is_what_is_left_of_it(times, unit):
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    values = np.array(times, np.int64)
    dates = date_texts(values // per_second // 86_400)
    for text, day, time in zip(time_texts(values, unit, zoned=False), dates, times, strict=True):
        seconds, rest = divmod(time, per_second)
        clock = timedelta(seconds=seconds % 86_400)
        assert text.split(" ")[0] == day
        hours, _, fraction = text.split(" ")[1].partition(".")
        assert hours == str(clock).zfill(8)
        assert len(fraction) in (0, 3, 6, 9)
        assert int(fraction.ljust(9, "0") or 0) * per_second == rest * 10**9

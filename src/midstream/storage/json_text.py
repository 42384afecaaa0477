"""Values as JSON text, column by column, for all types and values that a stream may have.

Polars writes JSON too, but panics at nested binary and at dates outside of its calendar, and turns NaN into
null. For everything else the text is the same as that of Polars. The guide has the text of each type, under
late rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import polars as pl
import pyarrow as pa
from pyarrow import types

from midstream.engine.arrays import as_array, as_column
from midstream.storage.iso_text import Integers, date_texts, time_texts

_NULL = "null"


def json_texts(column: pa.Array | pa.ChunkedArray) -> pl.Series:
    """The values of a column; a null is the text ``null``."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    empty = pl.Series("text", [], pl.String)
    return pl.concat([empty, *(_texts(chunk).alias("text") for chunk in chunks)])


def json_objects(fields: Iterable[tuple[str, pl.Series]], rows: int) -> pl.Series:
    """Objects of fields that are JSON text already."""
    parts: list[pl.Expr] = []
    for name, texts in fields:
        key = json.dumps(name, ensure_ascii=False)
        parts += [pl.lit(f"{',' if parts else '{'}{key}:"), pl.lit(texts)]
    if not parts:
        return pl.repeat("{}", rows, dtype=pl.String, eager=True)
    return pl.select(pl.concat_str([*parts, pl.lit("}")]).alias("text")).to_series()


def _texts(array: pa.Array) -> pl.Series:
    dtype = array.type
    if len(array) == 0:
        return pl.Series("text", [], pl.String)  # without rows there may be no offsets either
    if types.is_struct(dtype):
        # By position: names inside a struct need not be unique. Nulls of the struct are nulls of its fields.
        children = zip(range(dtype.num_fields), array.flatten(), strict=True)
        fields = [(dtype.field(i).name, _texts(child)) for i, child in children]
        return _or_null(json_objects(fields, len(array)), array)
    if types.is_map(dtype):
        return _map_texts(array)
    if types.is_list(dtype) or types.is_large_list(dtype):
        return _or_null(_brackets("[", _gathered(array, _texts(_of(array, array.values))), "]"), array)
    if types.is_date32(dtype):
        return _or_null(_quoted(date_texts(_integers(array.view(pa.int32())))), array)
    if types.is_timestamp(dtype):
        times = _integers(array.view(pa.int64()))
        return _or_null(_quoted(time_texts(times, dtype.unit, zoned=dtype.tz is not None)), array)
    values = pl.Series(pl.from_arrow(array))
    if types.is_floating(dtype):
        return _number_texts(values)
    return _encoded(values.bin.encode("base64") if values.dtype == pl.Binary else values)


def _number_texts(values: pl.Series) -> pl.Series:
    value = pl.lit(values)
    text = (
        pl.when(value.is_nan())
        .then(pl.lit('"NaN"'))
        .when(value == float("inf"))
        .then(pl.lit('"Infinity"'))
        .when(value == float("-inf"))
        .then(pl.lit('"-Infinity"'))
        .otherwise(pl.lit(_encoded(values)))
    )
    return pl.select(text.alias("text")).to_series()


def _map_texts(array: pa.Array) -> pl.Series:
    keys, values = _texts(_of(array, array.keys)), _texts(_of(array, array.items))
    if types.is_string(array.type.key_type) or types.is_large_string(array.type.key_type):
        entries = pl.select(pl.concat_str([pl.lit(keys), pl.lit(":"), pl.lit(values)]).alias("text"))
        return _or_null(_brackets("{", _gathered(array, entries.to_series()), "}"), array)
    objects = json_objects([("key", keys), ("value", values)], len(keys))
    return _or_null(_brackets("[", _gathered(array, objects), "]"), array)


def _of(array: pa.Array, values: pa.Array) -> pa.Array:
    """The values of a list array, without those outside of its slice."""
    offsets = as_array(array.offsets)
    return values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def _gathered(array: pa.Array, texts: pl.Series) -> pl.Series:
    """The texts of the values of each list, with commas between them."""
    offsets = as_array(array.offsets).astype("int64")
    lists = pa.LargeListArray.from_arrays(as_column(offsets - offsets[0]), texts.to_arrow())
    return pl.Series(pl.from_arrow(lists)).list.join(",")


def _brackets(begin: str, texts: pl.Series, end: str) -> pl.Series:
    return pl.select(pl.concat_str([pl.lit(begin), pl.lit(texts), pl.lit(end)]).alias("text")).to_series()


def _quoted(texts: pl.Series) -> pl.Series:
    """Text in which nothing needs escaping."""
    return _brackets('"', texts, '"')


def _or_null(texts: pl.Series, array: pa.Array) -> pl.Series:
    if not array.null_count:
        return texts
    valid = pl.lit(pl.Series(pl.from_arrow(array.is_valid())))
    return pl.select(pl.when(valid).then(pl.lit(texts)).otherwise(pl.lit(_NULL)).alias("text")).to_series()


def _encoded(values: pl.Series) -> pl.Series:
    """The text of values that Polars writes correctly, and of nulls."""
    objects = pl.struct(pl.lit(values).alias("v")).struct.json_encode()
    return pl.select(objects.str.strip_prefix('{"v":').str.strip_suffix("}").alias("text")).to_series()


def _integers(array: pa.Array) -> Integers:
    """The integers of an array, with 0 in place of nulls."""
    numbers: Integers = pl.Series(pl.from_arrow(array)).fill_null(0).to_numpy()
    return numbers

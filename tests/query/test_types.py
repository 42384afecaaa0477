from itertools import permutations

import pyarrow as pa
import pytest

from midstream.query.types import canonical_type, common_type, fits_in_hash, show_type, type_family

UTC, LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")


@pytest.mark.parametrize(
    ("kinds", "common"),
    [
        ([pa.int8(), pa.int64()], pa.int64()),
        ([pa.int8(), pa.int8()], pa.int64()),
        ([pa.int32(), pa.float32()], pa.float64()),
        ([pa.int64(), pa.decimal128(5, 2)], pa.decimal128(21, 2)),
        ([pa.decimal128(10, 2), pa.decimal128(12, 4)], pa.decimal128(12, 4)),
        ([pa.decimal128(38, 0), pa.decimal128(5, 0)], pa.decimal128(38, 0)),
        ([pa.decimal128(38, 0), pa.decimal128(5, 1)], None),
        ([pa.decimal128(38, 10), pa.float64()], pa.float64()),
        ([pa.string(), pa.large_string()], pa.string()),
        ([pa.binary(), pa.large_binary()], pa.binary()),
        ([pa.string(), pa.binary()], None),
        ([pa.string(), pa.int64()], None),
        ([pa.bool_(), pa.bool_()], pa.bool_()),
        ([pa.bool_(), pa.int8()], None),
        ([pa.date32(), pa.date32()], pa.date32()),
        ([pa.date32(), LOCAL], LOCAL),
        ([pa.date32(), UTC], UTC),
        ([LOCAL, UTC], UTC),
        ([pa.timestamp("ms"), LOCAL], LOCAL),
        ([pa.timestamp("s", tz="Europe/Berlin"), UTC], UTC),
        ([pa.date32(), pa.string()], None),
        ([pa.list_(pa.int64()), pa.list_(pa.int64())], None),
        ([pa.struct([("k", pa.int64())])] * 2, None),
        ([pa.int8(), pa.decimal128(5, 2), pa.float32()], pa.float64()),
        ([pa.int8(), pa.int16(), pa.string()], None),
    ],
)
def test_the_common_type_is_that_of_spark_regardless_of_order(kinds, common):
    for order in permutations(kinds):
        assert common_type(order) == common


def test_only_simple_types_can_be_keys():
    for kind in (
        pa.list_(pa.int8()),
        pa.map_(pa.int8(), pa.int8()),
        pa.struct([]),
        pa.duration("us"),
        pa.null(),
    ):
        assert canonical_type(kind) is None


def test_equal_hashes_mean_equal_values_only_up_to_64_bits():
    assert all(fits_in_hash(k) for k in (pa.int64(), pa.float64(), pa.bool_(), pa.date32(), UTC))
    assert not any(fits_in_hash(k) for k in (pa.string(), pa.binary(), pa.decimal128(5, 2)))


@pytest.mark.parametrize(
    ("kind", "name", "family"),
    [
        (pa.int8(), "tinyint", "number"),
        (pa.decimal128(5, 2), "decimal(5,2)", "number"),
        (UTC, "timestamp", "time"),
        (LOCAL, "timestamp_ntz", "time"),
        (pa.large_string(), "string", "string"),
        (pa.list_(pa.int8()), "array<tinyint>", None),
        (pa.list_(pa.field("element", pa.int8(), nullable=False)), "array<tinyint not null>", None),
        (pa.map_(pa.string(), pa.list_(UTC)), "map<string,array<timestamp>>", None),
        (
            pa.struct([("k", pa.int64()), ("s", pa.struct([("d", pa.date32())]))]),
            "struct<k:bigint,s:struct<d:date>>",
            None,
        ),
        (pa.struct([pa.field("k", pa.int64(), nullable=False)]), "struct<k:bigint not null>", None),
        (pa.duration("us"), "interval day to second", "interval"),
        (pa.binary(), "binary", "binary"),
        (pa.null(), "void", "null"),
    ],
)
def test_types_have_the_names_of_spark_and_a_family(kind, name, family):
    assert (show_type(kind), type_family(kind)) == (name, family)

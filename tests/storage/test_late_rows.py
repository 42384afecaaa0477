"""Late rows go into their table whatever is in them."""

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream.engine.encode import time_column
from midstream.engine.intake import REASON
from midstream.storage.late_rows import LATE_SCHEMA, late_rows

ENDS = [-(2**63), 2**63 - 1]


def late(columns: dict[str, pa.Array], times: Sequence[int | None] | None = None) -> pa.Table:
    count = len(next(iter(columns.values()))) if columns else len(times or [])
    sent = {f"a.{name}": column for name, column in columns.items()}
    sent[time_column("a")] = pa.array([0] * count if times is None else times, pa.int64())
    sent[REASON] = pa.array(
        ["late" if time is not None else "null time" for time in times or [0] * count], pa.string()
    )
    return late_rows(7, "a", pa.table(sent), {f"a.{name}": name for name in columns})


def test_what_streams_share_are_columns():
    table = late({"k": pa.array([1, 2])}, [5, None])
    assert table.schema == LATE_SCHEMA
    assert table.column("stream").to_pylist() == ["a", "a"]
    assert table.column("reason").to_pylist() == ["late", "null time"]
    assert table.column("time").cast(pa.int64()).to_pylist() == [5, None]
    assert table.column("batchId").to_pylist() == [7, 7]
    assert table.column("row").to_pylist() == ['{"k":1}', '{"k":2}']


def test_times_of_any_year_come_back_from_the_file(tmp_path):
    pq.write_table(late({"k": pa.array([1, 2])}, ENDS), tmp_path / "late.parquet")
    time = pq.read_table(tmp_path / "late.parquet").column("time")
    assert time.type == pa.timestamp("us", "UTC")
    assert time.cast(pa.int64()).to_pylist() == ENDS


@pytest.mark.parametrize("name", ["*", "^.*$", 'say "x"', "a\\b", "tab\t", "é", "", "v", "literal", "text"])
def test_columns_may_have_any_name(name):
    (row,) = late({"k": pa.array([1]), name: pa.array([2])}).column("row").to_pylist()
    assert json.loads(row) == {"k": 1, name: 2}


def test_there_may_be_no_rows_and_no_columns():
    assert late({"k": pa.array([], pa.int64())}).num_rows == 0
    assert late({}, [1, 2]).column("row").to_pylist() == ["{}", "{}"]
    assert late({}, []).schema == LATE_SCHEMA

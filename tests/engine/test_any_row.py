"""No row ends a query: whatever is in it, it is joined, or late, or counted. What fails still says where."""

import json
import traceback
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from midstream.engine import encode, joiner, key_sample, move_states, send, step
from midstream.errors import InternalError
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.state.manifest import OutputFile
from midstream.storage import late_rows
from midstream.storage.json_text import json_texts
from midstream.storage.output_table import FragmentRunId
from midstream.storage.slice_files import SliceFiles
from tests.helpers import TIME, make_stream, rows, small_query

NAN, INF = float("nan"), float("inf")
INT = {bits: [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1] for bits in (8, 16, 32, 64)}
LOCAL = pa.timestamp("us")
CANARY = "canary-7f3a"


def dates(days: list[int]) -> pa.Array:
    return pa.array(days, pa.int32()).view(pa.date32())


COLUMNS: dict[str, pa.Array] = {
    **{f"int{bits}": pa.array(ends, pa.from_numpy_dtype(f"int{bits}")) for bits, ends in INT.items()},
    "boolean": pa.array([True, None]),
    "float": pa.array([NAN, -INF], pa.float32()),
    "double": pa.array([INF, 5e-324]),
    "decimal": pa.array([Decimal("9" * 38), Decimal("-" + "9" * 38)], pa.decimal128(38, 0)),
    "string": pa.array(['\x00"\\\u2028\U0010ffff', ""]),
    "binary": pa.array([b"", bytes(range(256))]),
    "date": dates(INT[32]),
    "timestamp": pa.array(INT[64]).cast(TIME),
    "timestamp_ntz": pa.array(INT[64]).cast(LOCAL),
    "array": pa.array([[b"\xff", None], None], pa.list_(pa.binary())),
    "dates": pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), dates(INT[32])),
    "map": pa.array([[(b"\xff", NAN)], []], pa.map_(pa.binary(), pa.float64())),
    "struct": pa.StructArray.from_arrays([pa.array(INT[64]).cast(TIME), dates(INT[32])], names=["t", "d"]),
    "headers": pa.array(
        [[{"key": "h", "value": b"\xff"}], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    ),
}


@dataclass
class Sink:
    tables: list[pa.Table] = field(default_factory=list)

    def stage(self, task: FragmentRunId, rows: pa.Table) -> OutputFile:
        self.tables.append(rows)
        return OutputFile("late", str(task), str(task), rows.num_rows)

    def publish(self, outputs: object) -> None:
        pass

    def sweep(self) -> None:
        pass


def joined(kind: pa.DataType, on: list[str]) -> Any:
    streams = [make_stream(name, {"t": TIME, "k": pa.int64(), "x": kind}) for name in "ab"]
    return build_query(streams, on, select=["a.x", "b.k"])


def table(values: pa.Array, times: list[int | None]) -> pa.Table:
    return pa.table(
        {"t": pa.array(times, pa.int64()).cast(TIME), "k": pa.array([1] * len(times)), "x": values}
    )


@pytest.mark.parametrize("name", COLUMNS)
def test_any_row_is_joined_and_may_be_late(name):
    values = COLUMNS[name]
    sink = Sink()
    join = InlineJoin(joined(values.type, ["a.k = b.k"]), settings=Settings(1, 1), late_sink=sink)
    results = join.run_epoch({"a": table(values, [10, 10]), "b": table(values[:1], [10])})
    texts = json_texts(values).to_list()
    assert json_texts(results.column("a_x")).to_list() == texts
    join.run_epoch({"a": table(values, [1, None])})
    (written,) = sink.tables
    assert written.column("reason").to_pylist() == ["late", "null time"]
    kept = [json.loads(row)["x"] for row in written.column("row").to_pylist()]
    assert kept == [json.loads(text) for text in texts]


@pytest.mark.parametrize(
    "name", [n for n in COLUMNS if n not in ("array", "dates", "map", "struct", "headers")]
)
def test_any_value_may_be_in_a_condition_and_in_a_key(name):
    values = COLUMNS[name]
    both = pa.concat_arrays([values, pa.nulls(1, values.type)])
    for on in (["a.k = b.k", "a.x <= b.x"], ["a.x = b.x"]):
        join = InlineJoin(joined(values.type, on), settings=Settings(2, 4))
        results = join.run_epoch({stream: table(both, [1, 2, 3]) for stream in "ab"})
        assert results.num_rows >= len(values) - values.null_count


def test_a_date_that_no_timestamp_holds_does_not_end_a_query_that_compares_them():
    columns = {"t": TIME, "k": pa.int64(), "day": pa.date32(), "local": LOCAL}
    streams = [make_stream(name, columns) for name in "ab"]
    query = build_query(streams, ["a.k = b.k", "a.day <= b.local"], select=["a.k"])
    arrivals = pa.table(
        [pa.array([1, 2]).cast(TIME), pa.array([1, 1]), dates([2**31 - 1, 0]), pa.array([0, 1]).cast(LOCAL)],
        schema=pa.schema(columns),
    )
    assert InlineJoin(query).run_epoch({"a": arrivals, "b": arrivals}).num_rows == 2


def test_a_date_that_no_timestamp_holds_is_no_key_of_theirs():
    left = make_stream("a", {"t": TIME, "day": pa.date32()})
    right = make_stream("b", {"t": TIME, "local": LOCAL})
    join = InlineJoin(build_query([left, right], ["a.day = b.local"], select=["a.day"]))
    days = pa.table({"t": pa.array([1, 2, 3]).cast(TIME), "day": dates([2**31 - 1, -(2**31), 1])})
    locals_ = pa.table({"t": pa.array([1]).cast(TIME), "local": pa.array([86_400_000_000]).cast(LOCAL)})
    assert join.run_epoch({"a": days, "b": locals_}).num_rows == 1
    assert join.manifest.streams["a"].null_key == 2


def test_event_times_may_be_anything_that_64_bits_hold_and_beyond_that_are_none():
    query = small_query(["a.k = b.k"], lateness=1000, default_window=10)
    sink = Sink()
    any_time = Settings(1, 1, max_event_time_ahead=None)
    join = InlineJoin(query, settings=any_time, late_sink=sink)
    for low in (-(2**63), -(2**63) + 5):
        join.run_epoch({name: rows((low, 1, 0, "x")) for name in "ab"})
    assert join.manifest.results == 4
    join.run_epoch({name: rows((2**63 - 1, 1, 0, "x")) for name in "ab"})
    assert join.manifest.results == 5
    join.run_epoch({"a": rows((-(2**63), 1, 0, "late"))})
    assert sink.tables[0].column("time").cast(pa.int64()).to_pylist() == [-(2**63)]
    millis = {"t": pa.timestamp("ms", "UTC"), "k": pa.int64()}
    other = build_query([make_stream(name, millis) for name in "ab"], ["a.k = b.k"], select=["a.k"])
    join = InlineJoin(other)
    far = pa.table([pa.array([2**63 - 1, 0]).cast(millis["t"]), pa.array([1, 1])], schema=pa.schema(millis))
    assert join.run_epoch({"a": far, "b": far}).num_rows == 1
    assert join.manifest.streams["a"].null_time == 1


TWO_KEYS = ["a.k = b.k", "b.j = c.j", "a.v <> c.v"]
FAILURES = {
    "a column on its way in": (encode, "int64_micros", "encoding rows", "batch 0, stream a, column a.t"),
    "the key of a row on its way in": (encode, "hash_key", "encoding rows", "batch 0, stream a, column a.k"),
    "rows that are ingested": (step, "ingest", "a step", "batch 0, stream a"),
    "keys that are counted": (key_sample, "hash_values", "a step", "batch 0, stream b, column b."),
    "a condition": (
        joiner,
        "filter_residual",
        "a step",
        "batch 0, streams a, b, c, condition a.v <> c.v, columns a.v, c.v",
    ),
    "keys by which rows go on": (send, "hash_key", "a step", "batch 0, streams a, b, column b.j = c.j"),
    "a state": (SliceFiles, "encode", "writing a state", "batch 0, stream "),
    "a late row": (late_rows, "json_texts", "staging late rows", "batch 0, stream a, column a.t"),
    "late rows": (late_rows, "json_objects", "staging late rows", "batch 0, stream a, column row"),
    "results": (Sink, "stage", "staging results", "batch 0, streams a, b, c, columns a_v, c_v"),
}


def three(*, timeless: bool) -> dict[str, pa.Table]:
    return {name: rows((None if timeless else 0, 1, 1, CANARY + name)) for name in "abc"}


@pytest.mark.parametrize("error", [pl.exceptions.PanicException, pa.ArrowInvalid, pl.exceptions.ComputeError])
@pytest.mark.parametrize("case", FAILURES)
def test_what_fails_in_any_task_names_stream_column_and_batch_but_no_value(monkeypatch, case, error):
    module, name, what, place = FAILURES[case]
    query = small_query(TWO_KEYS, "abc", default_window=10, select=["a.v", "c.v"])
    lost = "late" in case
    sink, late_sink = (None, Sink()) if lost else (Sink(), None)
    join = InlineJoin(query, "(a b) c", settings=Settings(1, 1), sink=sink, late_sink=late_sink)

    def fail(*_given: object, **_named: object) -> None:
        raise error(f"cannot do anything with {CANARY}")

    monkeypatch.setattr(module, name, fail)
    with pytest.raises(InternalError) as failure:
        join.run_epoch(three(timeless=lost))
    text = "".join(traceback.format_exception(failure.value))
    assert failure.value.must == f"{what} must work with any rows"
    assert "got a failure of " in text
    assert f"({place}" in text
    assert CANARY not in text
    assert join.manifest.epoch == -1


def test_moving_states_names_the_streams_too(monkeypatch):
    query = small_query(["a.k = b.k", "b.j = c.j"], "abc", default_window=10)
    join = InlineJoin(query, "(a b) c", settings=Settings(2, 4))
    join.run_epoch(three(timeless=False))
    join.migrate("a (b c)", "moving_state")

    def fail(*_given: object, **_named: object) -> None:
        raise pl.exceptions.PanicException(CANARY)

    monkeypatch.setattr(move_states, "send", fail)
    with pytest.raises(InternalError, match=r"moving states must .* \(batch 1, stream") as failure:
        join.run_epoch(three(timeless=False))
    assert CANARY not in str(failure.value)
    monkeypatch.undo()
    join.run_epoch({})
    assert join.manifest.epoch == 1

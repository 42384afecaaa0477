"""An error in any kind of task travels to the driver as a message that names stream, column and batch."""

from collections.abc import Iterable

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row

from midstream.engine import encode
from midstream.engine.encode import make_encoders
from midstream.engine.places import Places
from midstream.engine.program import Program
from midstream.errors import InternalError, MidstreamError, StreamError, error_from
from midstream.plan.build_layout import build_layout
from midstream.plan.tree import parse_plan
from midstream.protocol.coordinator import Coordinator
from midstream.protocol.intent import Intent
from midstream.protocol.settings import Settings
from midstream.spark import messages, parquet_source, row_source, stage_task
from midstream.spark.messages import EPOCH_PROPERTY, AddressedMessage, ControlMessage, SourceMessage
from midstream.spark.row_groups import RowGroup
from midstream.spark.task_ranges import TaskRanges
from midstream.spark.task_slices import slice_messages, slices_by_task
from midstream.state.routing_table import RoutingTable
from midstream.storage.memory_store import MemoryStore
from tests.helpers import rows, small_query

CANARY = "canary-7f3a"
QUERY = small_query(["a.k = b.k"], default_window=10)
LAYOUT = build_layout(QUERY, parse_plan("a b", QUERY.names))
PLACES = Places(4, (RoutingTable(0, 2),))
ENCODERS = make_encoders(QUERY, LAYOUT, PLACES, whole_rows=True)
RANGES = TaskRanges(partitions=2, tasks=2)
ROWS = rows((0, 1, 0, CANARY))


class _Context:
    """What Spark tells a task."""

    def partitionId(self) -> int:  # noqa: N802  # Spark's name
        return 5

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802  # Spark's name
        return {EPOCH_PROPERTY: "3"}.get(key)


@pytest.fixture(autouse=True)
def _inside_a_task(monkeypatch):
    for module in (messages, row_source):
        monkeypatch.setattr(module.TaskContext, "get", _Context)


@pytest.fixture
def panics(monkeypatch):
    """Makes a function panic, as Polars does, with a value of a row in what it says."""

    def patch(module: object, name: str) -> None:
        def fail(*_given: object, **_named: object) -> None:
            raise pl.exceptions.PanicException(CANARY)

        monkeypatch.setattr(module, name, fail)

    return patch


def failure(sent: Iterable[AddressedMessage]) -> MidstreamError:
    """The one error among messages; it goes to an engine partition that there is."""
    ((target, message),) = [one for one in sent if getattr(one[1], "kind", None) == "error"]
    assert target == 0
    assert isinstance(message, ControlMessage)
    error = error_from(msgspec.json.decode(message.blob))
    assert CANARY not in str(error)
    return error


def read(tmp_path) -> Iterable[AddressedMessage]:
    path = str(tmp_path / "a.parquet")
    pq.write_table(ROWS, path)
    schemas = {"a": QUERY.by_name["a"].schema}
    return parquet_source._read_task(ENCODERS, schemas, [[RowGroup("a", path, 0, 1)]], RANGES)(5, [0])


def encode_rows() -> list[SourceMessage]:
    schema = row_source._source_schema(QUERY, ENCODERS["a"])
    given = pa.table({c.name: encode.project(ROWS, c, "a") for c in ENCODERS["a"].source}).to_batches()
    encoding = row_source._StreamEncoding(0, ENCODERS["a"], schema, 0)
    sent = row_source._encode_task([encoding], RANGES)(iter(given))
    return [row_source._addressed(Row(**row)) for batch in sent for row in batch.to_pylist()]


def test_a_failure_names_the_column_that_a_task_reads(tmp_path, panics):
    panics(encode, "int64_micros")
    error = failure(read(tmp_path))
    assert isinstance(error, InternalError)
    assert error.must == "encoding rows must work with any rows"
    assert "a failure of Polars (panic) in encode.py, line" in str(error)
    assert "(batch 3, stream a, column a.t)" in str(error)


def test_a_failure_names_the_key_that_a_task_hashes(tmp_path, panics):
    panics(encode, "hash_key")
    assert "(batch 3, stream a, column a.k)" in str(failure(read(tmp_path)))


def test_a_failure_names_the_column_of_rows_that_spark_has_read(panics):
    panics(encode, "hash_key")
    assert "(batch 3, stream a, column a.k)" in str(failure(encode_rows()))


def test_a_failure_names_the_columns_of_rows_that_are_not_what_spark_said():
    schema = pa.schema([("x", pa.int64())] * 1)
    encoder = ENCODERS["a"]
    batch = pa.record_batch({"c0": pa.array([CANARY])})
    encoding = row_source._StreamEncoding(0, encoder, schema, 0)
    (sent,) = row_source._encode_task([encoding], RANGES)(iter([batch]))
    error = failure(row_source._addressed(Row(**row)) for row in sent.to_pylist())
    assert "a failure of Arrow (invalid) in row_source.py" in str(error)
    assert "(batch 3, stream a, columns a.t, a.k, " in str(error)


def test_a_failure_to_encode_rows_again_for_another_plan_names_the_column(panics):
    query = small_query(["a.k = b.k", "b.j = c.j"], "abc", default_window=10)
    plans = (build_layout(query, parse_plan(plan, query.names)) for plan in ("(a b) c", "a (b c)"))
    before, after = (make_encoders(query, plan, PLACES, whole_rows=True) for plan in plans)
    source = pa.table({c.name: encode.project(ROWS, c, "b") for c in before["b"].source})
    sent = list(row_source.encoded(before["b"], source, 5, RANGES))
    again = row_source.encode_again(before, after, RANGES)
    assert all(message.kind == "arriving" for one in sent for _, message in again(one))
    panics(encode, "hash_key")
    assert "(batch 3, stream b, column b.j)" in str(failure(m for one in sent for m in again(one)))


def test_an_error_passes_through_encoding_again(panics):
    panics(encode, "hash_key")
    (sent,) = encode_rows()
    assert list(row_source.encode_again(ENCODERS, ENCODERS, RANGES)(sent)) == [sent]


def first_program() -> Program:
    coordinator = Coordinator(QUERY, Settings(2, 4))
    manifest = coordinator.initial_manifest("x", parse_plan("a b", QUERY.names))
    return coordinator.program(manifest, Intent("x", 0, now=0, settings=coordinator.settings))


def test_a_failure_of_a_stage_names_the_batch(panics):
    program = first_program()
    task = stage_task.stage_task(program, 0, RANGES, MemoryStore(), None)  # type: ignore[arg-type]  # nothing is written
    (sent,) = encode_rows()
    panics(stage_task, "unpack")
    assert f"(batch {program.epoch})" in str(failure(task(0, [sent, slice_messages(program, RANGES)[0]])))


def test_a_failure_to_move_states_names_the_batch(panics):
    program = first_program()
    panics(stage_task, "move_states")
    error = failure(
        stage_task.move_task(program, RANGES, MemoryStore())(1, slices_by_task(program, RANGES)[1:])
    )
    assert error.must == "moving states must work with any rows"
    assert f"(batch {program.epoch})" in str(error)


@pytest.mark.parametrize(
    ("raised", "got"),
    [
        (pa.ArrowInvalid(CANARY), "bytes that cannot be decoded"),
        (OSError(f"Corrupt snappy compressed data: {CANARY}"), "bytes that cannot be decoded"),
        (OSError(5, "Input/output error", CANARY), "Input/output error"),
    ],
)
def test_a_damaged_file_is_the_streams_fault(tmp_path, monkeypatch, raised, got):
    def fail(*_given: object, **_named: object) -> None:
        raise raised

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", fail)
    error = failure(read(tmp_path))
    assert isinstance(error, StreamError)
    assert f"a.parquet; got {got} (batch 3, stream a)" in str(error)

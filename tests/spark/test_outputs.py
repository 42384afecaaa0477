"""Where results go while a definition is replaced: folders, as the steps of an epoch leave them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from midstream.errors import OptionError
from midstream.spark.output_tables import QueryTables
from midstream.spark.outputs import Outputs
from midstream.spark.sink_formats import FORMATS, SinkRequest
from midstream.spark.sinks import ParquetSink
from midstream.state.manifest import EndedReplacement
from midstream.state.replacement import ReplacementRequest
from midstream.storage.folder_overlap import check_folders
from midstream.storage.output_table import ParquetWriter

SCHEMA = pa.schema([("id", pa.int64())])


def outputs_in(path: Path, *partition_by: str, own: str = "own", late: str | None = None) -> Outputs:
    tables = QueryTables(query="12345678", lease=1, checkpoint=f"{path}/checkpoint", compression="snappy")
    own = str(path / own)
    writer = ParquetWriter(tables.results_in(own), None, SCHEMA, {}, ())
    sink = ParquetSink(tables.results_in(own))
    return Outputs(
        sink,
        None,
        writer,
        path=own,
        open_table=tables.results_in,
        check_path=lambda folder: check_folders(folder, late, None),
        check_columns=SinkRequest(FORMATS["parquet"], partition_by).partition_columns,
    )


def replacing(number: int, path: Path) -> tuple[ReplacementRequest, EndedReplacement]:
    strategy = "generalized_parallel_track"
    ended = EndedReplacement(
        number=number, strategy=strategy, start_epoch=1, live_since=1, until=None, path=str(path)
    )
    return ReplacementRequest(definition={}, plan="a b", strategy=strategy, path=str(path)), ended


def program_of(table: str, path: str = "") -> Any:
    query = SimpleNamespace(output_schema=SCHEMA, streams=())
    return SimpleNamespace(query=query, output_table=table, output_path=path)


def folder(outputs: Outputs, program: Any) -> str:
    return str(cast("Any", outputs.writer(program)).results_table.path)


def test_an_end_is_that_of_its_own_replacement(tmp_path):
    """An epoch without a batch may fail that has begun another one; the query goes on."""
    outputs = outputs_in(tmp_path)
    first, first_ended = replacing(1, tmp_path / "first")
    second, _ = replacing(2, tmp_path / "second")
    assert outputs.with_paths(first, SCHEMA, None).old_path == str(tmp_path / "own")
    assert folder(outputs, program_of("successor", first.path)) == first.path
    # It has ended, but nobody was told yet.
    assert outputs.with_paths(second, SCHEMA, first_ended).old_path == first.path
    outputs.end_replacement(first_ended)
    assert outputs.with_paths(second, SCHEMA, first_ended).old_path == first.path
    assert folder(outputs, program_of("successor", second.path)) == second.path
    outputs.end_replacement(first_ended)
    assert folder(outputs, program_of("results")) == first.path


@pytest.mark.parametrize("of_new", [False, True])
def test_the_folder_of_either_definition_is_not_that_of_late_rows(tmp_path, of_new):
    """The one that a start does not say either: files of both have the same names."""
    request, _ = replacing(1, tmp_path / "first")
    request = outputs_in(tmp_path).with_paths(request, SCHEMA, None)
    own, other = ("first", request.old_path) if of_new else ("own", request.path)
    with pytest.raises(OptionError, match="lateRows must be another folder than path"):
        outputs_in(tmp_path, own=own, late=other).open_replacement_tables(request, of_new=of_new)
    outputs_in(tmp_path, own=own, late=str(tmp_path / "late")).open_replacement_tables(request, of_new=of_new)


def test_folders_are_by_columns_that_the_new_definition_has(tmp_path):
    """Else a start with the new one would not have them, and results of the old one would lie beside."""
    request, _ = replacing(1, tmp_path / "first")
    more = SCHEMA.append(pa.field("day", pa.date32()))
    outputs = outputs_in(tmp_path, "day")
    for schema, text in ((SCHEMA, "name columns"), (more.remove(0), "leave a column")):
        with pytest.raises(OptionError, match=f"partitionBy must {text}"):
            outputs.with_paths(request, schema, None)
    assert outputs.with_paths(request, more, None).path == request.path

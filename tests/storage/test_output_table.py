"""Publishing staged files once more: a reader who has moved them away does not get them twice."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream.errors import CheckpointError
from midstream.storage.output_table import OutputTable, TaskId

ONE = pa.table({"x": [1]})


@pytest.fixture
def table(tmp_path) -> OutputTable:
    return OutputTable("results", str(tmp_path / "out"), "0123abcd", lease=7).identified()


def _task(epoch: int, partition: int, fragment: int = 0) -> TaskId:
    return TaskId(epoch=epoch, partition=partition, fragment=fragment)


def _there(table: OutputTable) -> dict[str, list[int]]:
    return {p.name: pq.read_table(p)["x"].to_pylist() for p in sorted(Path(table.path).glob("*.parquet"))}


def test_a_reader_who_moved_files_away_gets_nothing_twice(table, tmp_path):
    outputs = [table.stage(_task(0, 0), ONE)]
    table.publish(outputs)
    for path in Path(table.path).glob("*.parquet"):
        path.rename(tmp_path / path.name)
    table.publish(outputs)
    assert _there(table) == {}


def test_results_that_were_staged_elsewhere_are_missed(table, tmp_path):
    outputs = [table.stage(_task(0, 0), ONE)]
    table.publish(outputs)
    elsewhere = OutputTable("results", str(tmp_path / "elsewhere"), "0123abcd", lease=8).identified()
    with pytest.raises(CheckpointError, match="results of a committed epoch must be there to publish"):
        elsewhere.publish(outputs)
    # The same folder by another name is the same folder.
    Path(table.path).rename(tmp_path / "moved")
    moved = OutputTable("results", str(tmp_path / "moved"), "0123abcd", lease=8).identified()
    assert moved.folder == table.folder != elsewhere.folder
    moved.publish(outputs)
    # A table that does not know its folder cannot tell.
    for path in Path(moved.path).glob("*.parquet"):
        path.unlink()
    with pytest.raises(CheckpointError, match="must be there to publish"):
        OutputTable("results", moved.path, "0123abcd").must_have(outputs)
    moved.must_have(outputs)

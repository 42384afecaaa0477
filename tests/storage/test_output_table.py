"""Staged files are published once, though a reader moves them away, and deleted by lease and epoch."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream.errors import CheckpointError
from midstream.state.manifest import OutputFile
from midstream.storage.output_table import STAGED, FragmentRunId, OutputTable

QUERY = "0123abcd"
ONE = pa.table({"x": [1]})


@pytest.fixture
def table(tmp_path) -> OutputTable:
    return OutputTable("results", str(tmp_path / "out"), QUERY, lease=7).identified()


def _task(epoch: int) -> FragmentRunId:
    return FragmentRunId(epoch=epoch, partition=0, fragment=0)


def _there(table: OutputTable) -> dict[str, list[int]]:
    return {p.name: pq.read_table(p)["x"].to_pylist() for p in sorted(Path(table.path).glob("*.parquet"))}


def test_a_reader_who_moved_files_away_gets_nothing_twice(table, tmp_path):
    outputs = [table.stage(_task(0), ONE)]
    table.publish(outputs)
    for path in Path(table.path).glob("*.parquet"):
        path.rename(tmp_path / path.name)
    table.publish(outputs)
    assert _there(table) == {}


def test_results_that_were_staged_elsewhere_are_missed(table, tmp_path):
    outputs = [table.stage(_task(0), ONE)]
    table.publish(outputs)
    elsewhere = OutputTable("results", str(tmp_path / "elsewhere"), QUERY, lease=8).identified()
    with pytest.raises(CheckpointError, match="results of a committed epoch must be there to publish"):
        elsewhere.publish(outputs)
    # The same folder by another name is the same folder.
    Path(table.path).rename(tmp_path / "moved")
    moved = OutputTable("results", str(tmp_path / "moved"), QUERY, lease=8).identified()
    assert moved.folder == table.folder != elsewhere.folder
    moved.publish(outputs)
    # A table that does not know its folder cannot tell.
    for path in Path(moved.path).glob("*.parquet"):
        path.unlink()
    with pytest.raises(CheckpointError, match="must be there to publish"):
        OutputTable("results", moved.path, QUERY).check_present(outputs)
    moved.check_present(outputs)


def _of(folder: Path, lease: int) -> OutputTable:
    return OutputTable("results", str(folder), QUERY, lease=lease)


def _names(folder: Path) -> set[str]:
    return {path.name for path in (folder / STAGED).iterdir()}


def test_old_files_are_pruned_by_their_epoch_whatever_the_lease(tmp_path):
    staged = {
        (lease, epoch): _of(tmp_path, lease).stage(_task(epoch), ONE).staged
        for lease in (1, 40)
        for epoch in (9, 10, 20)
    }
    earlier = {epoch: f"{QUERY}-{epoch:010d}-00000-000-{'a' * 32}" for epoch in (9, 10)}
    strange = f"{QUERY}-strange"
    for name in (*earlier.values(), strange):
        (tmp_path / STAGED / name).touch()
    _of(tmp_path, 40).prune(10)
    kept = {name for (_, epoch), name in staged.items() if epoch >= 10}
    assert _names(tmp_path) == {*kept, earlier[10], strange}


def test_what_a_later_driver_has_staged_is_not_swept(tmp_path):
    (tmp_path / STAGED).mkdir()
    (tmp_path / STAGED / f"{QUERY}-{3:010d}-00000-000-{'a' * 32}").touch()
    mine, later = (_of(tmp_path, lease).stage(_task(3), ONE).staged for lease in (7, 8))
    _of(tmp_path, 7).sweep()
    assert _names(tmp_path) == {later}
    assert mine != later


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "..", "a/b", "a\\b", "", "x\0", ".x", "é"])
def test_a_name_of_an_output_file_does_not_lead_out_of_its_folder(tmp_path, name):
    outside = tmp_path / "outside"
    outside.write_text("mine")
    table = OutputTable("results", str(tmp_path / "out"), QUERY)
    (tmp_path / "out" / STAGED).mkdir(parents=True)
    (tmp_path / "out" / STAGED / "good").touch()
    for output in (OutputFile("results", name, "good", 1), OutputFile("results", "good", name, 1)):
        with pytest.raises(CheckpointError, match="name of an output file must be a word"):
            table.publish([output])
    assert outside.read_text() == "mine"
    with pytest.raises(CheckpointError, match="must be a word"):
        OutputTable("results", str(tmp_path / "out"), name)

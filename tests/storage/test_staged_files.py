"""Staged files go by the lease and the epoch in their names, which earlier formats have only half of."""

from pathlib import Path

import pyarrow as pa

from midstream.storage.output_table import STAGED, OutputTable, TaskId

QUERY = "0123abcd"
ROWS = pa.table({"x": [1]})


def _table(folder: Path, lease: int) -> OutputTable:
    return OutputTable("results", str(folder), QUERY, lease=lease)


def _task(epoch: int) -> TaskId:
    return TaskId(epoch=epoch, partition=0, fragment=0)


def _names(folder: Path) -> set[str]:
    return {path.name for path in (folder / STAGED).iterdir()}


def test_old_files_are_pruned_by_their_epoch_whatever_the_lease(tmp_path):
    staged = {
        (lease, epoch): _table(tmp_path, lease).stage(_task(epoch), ROWS).staged
        for lease in (1, 40)
        for epoch in (9, 10, 20)
    }
    earlier = {epoch: f"{QUERY}-{epoch:010d}-00000-000-{'a' * 32}" for epoch in (9, 10)}
    strange = f"{QUERY}-strange"
    for name in (*earlier.values(), strange):
        (tmp_path / STAGED / name).touch()
    _table(tmp_path, 40).prune(10)
    kept = {name for (_, epoch), name in staged.items() if epoch >= 10}
    assert _names(tmp_path) == {*kept, earlier[10], strange}


def test_what_a_later_driver_has_staged_is_not_swept(tmp_path):
    (tmp_path / STAGED).mkdir()
    (tmp_path / STAGED / f"{QUERY}-{3:010d}-00000-000-{'a' * 32}").touch()
    mine, later = (_table(tmp_path, lease).stage(_task(3), ROWS).staged for lease in (7, 8))
    _table(tmp_path, 7).sweep()
    assert _names(tmp_path) == {later}
    assert mine != later

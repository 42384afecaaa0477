"""Publishing an epoch once more: nothing of an earlier attempt stays, nothing of anybody else's goes."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream.errors import CheckpointError
from midstream.inline import InlineJoin
from midstream.runtime.crash_points import crash_hook
from midstream.storage.lease import claim_lease
from midstream.storage.manifest_log import manifests_newest_first
from midstream.storage.memory import MemoryStore
from midstream.storage.output_table import STAGED, OutputTable, TaskId
from midstream.testing.faults import SimulatedCrash
from tests.golden.case import EPOCHS, QUERY, SETTINGS

ONE, TWO = pa.table({"x": [1]}), pa.table({"x": [2]})


@pytest.fixture
def table(tmp_path) -> OutputTable:
    return OutputTable("results", str(tmp_path / "out"), "0123abcd", lease=7).identified()


def _task(epoch: int, partition: int, fragment: int = 0) -> TaskId:
    return TaskId(epoch=epoch, partition=partition, fragment=fragment)


def _there(table: OutputTable) -> dict[str, list[int]]:
    return {p.name: pq.read_table(p)["x"].to_pylist() for p in sorted(Path(table.path).glob("*.parquet"))}


def test_what_an_earlier_attempt_published_under_other_names_goes(table):
    first = [table.stage(_task(3, *part), ONE) for part in ((0, 0), (1, 0), (1, 1))]
    table.publish(first)
    before = [table.stage(_task(2, 1), ONE)]
    after = [table.stage(_task(30, 1), ONE)]
    table.publish(before)
    table.publish(after)
    others = OutputTable("results", table.path, "89ef")
    others.publish([others.stage(_task(3, 1), ONE)])
    alike = OutputTable("results", table.path, "x-0123abcd")
    alike.publish([alike.stage(_task(4, 1), ONE)])
    again = [table.stage(_task(3, 0), TWO), table.stage(_task(3, 2), TWO)]
    table.publish(again, again_of=3)
    assert _there(table) == {
        "part-0000000002-00001-000-0123abcd.parquet": [1],
        "part-0000000003-00000-000-0123abcd.parquet": [2],
        "part-0000000003-00001-000-89ef.parquet": [1],
        "part-0000000003-00002-000-0123abcd.parquet": [2],
        "part-0000000004-00001-000-x-0123abcd.parquet": [1],
        "part-0000000030-00001-000-0123abcd.parquet": [1],
    }
    # Repeated, as after a crash; and with an epoch that has no results any more.
    table.publish(again, again_of=3)
    assert len(_there(table)) == 6
    table.publish([], again_of=3)
    assert not [name for name in _there(table) if name.startswith("part-0000000003") and "0123abcd" in name]


def test_for_the_first_time_nothing_is_removed(table):
    table.publish([table.stage(_task(3, 1), ONE)])
    table.publish([table.stage(_task(3, 0), TWO)])
    assert len(_there(table)) == 2


def test_a_reader_who_moved_files_away_gets_nothing_twice(table, tmp_path):
    outputs = [table.stage(_task(0, 0), ONE)]
    table.publish(outputs)
    for path in Path(table.path).glob("*.parquet"):
        path.rename(tmp_path / path.name)
    table.publish(outputs, again_of=0)
    assert _there(table) == {}


def test_results_that_were_staged_elsewhere_are_missed(table, tmp_path):
    outputs = [table.stage(_task(0, 0), ONE)]
    table.publish(outputs)
    elsewhere = OutputTable("results", str(tmp_path / "elsewhere"), "0123abcd", lease=8).identified()
    with pytest.raises(CheckpointError, match="results of a committed epoch must be there to publish"):
        elsewhere.publish(outputs, again_of=0)
    # The same folder by another name is the same folder.
    Path(table.path).rename(tmp_path / "moved")
    moved = OutputTable("results", str(tmp_path / "moved"), "0123abcd", lease=8).identified()
    assert moved.folder == table.folder != elsewhere.folder
    moved.publish(outputs, again_of=0)
    # A table that does not know its folder cannot tell.
    for path in Path(moved.path).glob("*.parquet"):
        path.unlink()
    with pytest.raises(CheckpointError, match="must be there to publish"):
        OutputTable("results", moved.path, "0123abcd").must_have(outputs)
    moved.must_have(outputs)


@pytest.mark.parametrize("point", ["after publishing", "after noting that it was published", "damage"])
def test_a_reader_who_moves_files_away_gets_each_row_once(tmp_path, point):
    """The driver dies when results are published, or the manifest is damaged once that is noted."""
    store = MemoryStore()
    got: list[pa.Table] = []

    def read() -> None:
        for path in sorted((tmp_path / "out").glob("*.parquet")):
            got.append(pq.read_table(path))
            path.unlink()

    def hook(here: str) -> None:
        if here == "after publishing":
            read()
        if here == point:
            raise SimulatedCrash(point)

    results = 0
    for number, epoch in enumerate(EPOCHS):
        lease = claim_lease(store, "run")
        sink = OutputTable("results", str(tmp_path / "out"), "q", lease=lease.number).identified()
        join = InlineJoin(QUERY, settings=SETTINGS, store=store, sink=sink, lease=lease)
        while join.manifest.epoch < number:
            try:
                with crash_hook(hook):
                    join.run_epoch(epoch)
            except SimulatedCrash:
                break
        if point == "damage" and number:
            name = next(manifests_newest_first(store)).file
            store.put(name, store.read(name).to_pybytes()[:-9])
            lease = claim_lease(store, "run")
            sink = OutputTable("results", str(tmp_path / "out"), "q", lease=lease.number).identified()
            join = InlineJoin(QUERY, settings=SETTINGS, store=store, sink=sink, lease=lease)
            assert join.manifest.epoch == number - 1
            join.run_epoch(epoch)
        results = join.manifest.results
    claim = claim_lease(store, "run")
    sink = OutputTable("results", str(tmp_path / "out"), "q", lease=claim.number).identified()
    InlineJoin(QUERY, settings=SETTINGS, store=store, sink=sink, lease=claim)
    read()
    assert sum(table.num_rows for table in got) == results > 0
    assert [path.name for path in (tmp_path / "out" / STAGED).iterdir()] == ["folder-id"]

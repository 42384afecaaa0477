"""The results of an epoch are published once, from the files that were noted first, whatever is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from midstream.errors import CheckpointError
from midstream.inline import InlineJoin
from midstream.runtime.crash_points import POINTS
from midstream.state.manifest import Manifest, OutputFile
from midstream.state.routing_table import RoutingTable
from midstream.storage.fsck import check as fsck
from midstream.storage.lease import seize_lease
from midstream.storage.manifest_log import manifests_newest_first
from midstream.storage.memory_store import MemoryStore
from midstream.storage.output_table import STAGED, FragmentRunId, OutputTable
from midstream.storage.publish_log import begin_publishing, is_published, noted_epochs
from midstream.testing.faults import SimulatedCrash
from tests.helpers import die_at
from tests.small_case import EPOCHS, QUERY, SETTINGS

AFTER = POINTS[POINTS.index("after the commit") :]
BETWEEN_FILES = "when one file is published"


@dataclass(frozen=True)
class Sink:
    """A folder of Parquet files; its driver may die when it has published the first of several."""

    table: OutputTable
    dies: list[str] = field(default_factory=list)

    def stage(self, task: FragmentRunId, rows: pa.Table) -> OutputFile:
        return self.table.stage(task, rows)

    def publish(self, outputs: Sequence[OutputFile]) -> None:
        if BETWEEN_FILES in self.dies and len(outputs) > 1:
            self.table.publish(outputs[:1])
            raise SimulatedCrash(BETWEEN_FILES)
        self.table.publish(outputs)

    def sweep(self) -> None:
        self.table.sweep()


class Scenario:
    """A query whose driver dies at some point of every epoch, and a reader who moves files away."""

    def __init__(self, out: Path) -> None:
        self.store = MemoryStore()
        self.out = out
        self.read: list[pa.Table] = []
        self.died = 0

    def open(self, point: str | None = None) -> InlineJoin:
        lease = seize_lease(self.store, "run")
        table = OutputTable("results", str(self.out), "q", lease=lease.number).identified()
        sink = Sink(table, [point] if point else [])
        return InlineJoin(QUERY, settings=SETTINGS, store=self.store, sink=sink, lease=lease)

    def run(self, number: int, point: str | None = None) -> None:
        """Run an epoch, unless its driver dies at a point."""
        query = self.open(point)
        assert query.manifest.epoch == number - 1
        try:
            with die_at(point):
                query.run_epoch(EPOCHS[number])
        except SimulatedCrash:
            self.died += 1

    def damage(self) -> None:
        name = next(manifests_newest_first(self.store)).file
        self.store.put(name, self.store.read(name).to_pybytes()[:-9])

    def move_away(self) -> None:
        for path in sorted(self.out.glob("*.parquet")):
            self.read.append(pq.read_table(path))
            path.unlink()

    def note(self) -> str:
        return noted_epochs(self.store)[max(noted_epochs(self.store))]


@pytest.fixture
def scenario(tmp_path) -> Scenario:
    return Scenario(tmp_path / "out")


@pytest.mark.parametrize("damaged", [0, 1, 2])
@pytest.mark.parametrize("point", [*AFTER, BETWEEN_FILES, None])
def test_a_reader_who_moves_files_away_gets_each_row_once(scenario, point, damaged):
    """The driver dies at a point after each commit; then the manifest is damaged, once or again."""
    results = 0
    for number in range(len(EPOCHS)):
        scenario.run(number, point)
        scenario.move_away()
        for attempt in range(damaged if number else 0):
            scenario.damage()
            # First it dies at the same point again, then it comes to the end.
            scenario.run(number, point if attempt == 0 else None)
            scenario.move_away()
        results = scenario.open().manifest.results
        scenario.move_away()
        assert sum(table.num_rows for table in scenario.read) == results
    assert results > 0
    assert point is None or scenario.died > 0
    scenario.open().run_epoch({})
    assert [path.name for path in (scenario.out / STAGED).iterdir()] == ["folder-id"]


def test_what_an_attempt_has_noted_is_what_all_others_publish():
    """A driver that was given up notes its files after another has run the epoch again, or the reverse."""
    store = MemoryStore()
    first, again = (_manifest(3, f"{lease}-x") for lease in (4, 5))
    begun = begin_publishing(store, first)
    assert begun is not None
    assert begun.outputs == first.outputs
    repeated = begin_publishing(store, again)
    assert repeated is not None
    assert repeated.outputs == first.outputs


def test_that_all_is_published_is_noted_by_deleting_what_was_noted_before():
    store = MemoryStore()
    assert begin_publishing(store, _manifest(-1)) is None
    for epoch in range(3):
        for attempt in range(3):
            publication = begin_publishing(store, _manifest(epoch, str(attempt)))
            assert publication is not None
            assert not is_published(noted_epochs(store), epoch)
            assert is_published(noted_epochs(store), epoch - 1)
            for name in publication.earlier_notes if attempt == 2 else ():
                store.delete(name)
        assert list(noted_epochs(store)) == [epoch]
        assert is_published(noted_epochs(store), epoch)
        assert not is_published(noted_epochs(store), epoch + 1)
        assert begin_publishing(store, _manifest(epoch)) is None


def test_where_no_note_is_left_publishing_that_is_cut_off_is_still_known(scenario):
    scenario.run(0)
    scenario.run(1, "after the commit")
    for name in scenario.store.list("published"):
        scenario.store.delete(name)
    with pytest.raises(SimulatedCrash), die_at("after noting what is published"):
        scenario.open()
    assert not is_published(noted_epochs(scenario.store), 1)
    results = scenario.open().manifest.results
    scenario.move_away()
    assert sum(table.num_rows for table in scenario.read) == results > 0


@pytest.mark.parametrize("notes", [{0: b"", 1: b""}, {1: b""}], ids=["cut off", "published"])
def test_an_empty_note_of_an_earlier_version_says_that_its_epoch_is_published(scenario, notes):
    """That version has published the epoch and noted it; its manifest is damaged."""
    scenario.run(0)
    scenario.run(1)
    scenario.move_away()
    for name in scenario.store.list("published"):
        scenario.store.delete(name)
    for epoch, data in notes.items():
        scenario.store.put(f"published/{epoch:012d}", data)
    scenario.damage()
    scenario.run(1)
    before = len(scenario.read)
    scenario.move_away()
    assert len(scenario.read) == before > 0
    scenario.run(2)
    scenario.move_away()
    assert sum(table.num_rows for table in scenario.read) == scenario.open().manifest.results


@pytest.mark.parametrize(
    ("point", "refused"),
    [("after noting what is published", True), ("after publishing", True), (None, False)],
)
def test_a_damaged_note_is_refused_as_long_as_it_is_needed(scenario, point, refused):
    scenario.run(0)
    scenario.run(1, point)
    note = scenario.store.read(scenario.note()).to_pybytes()
    scenario.store.put(scenario.note(), note[:-9] + bytes([note[-9] ^ 1]) + note[-8:])
    assert [problem.file for problem in fsck(scenario.store).problems] == refused * [scenario.note()]
    if refused:
        with pytest.raises(CheckpointError, match=f"{scenario.note()} must"):
            scenario.open()
        scenario.store.put(scenario.note(), note)
    assert fsck(scenario.store).problems == ()
    scenario.run(2)


@pytest.mark.parametrize("manifest", [{"id": "another"}, {"epoch": 0}], ids=str)
def test_a_note_of_another_query_or_epoch_is_refused(scenario, manifest):
    scenario.run(0)
    scenario.run(1, "after noting what is published")
    other = MemoryStore()
    begin_publishing(other, replace(_manifest(1, "x"), **manifest))
    scenario.store.put(scenario.note(), other.read(max(other.list("published"))))
    with pytest.raises(CheckpointError, match="must be the note of its epoch and query"):
        scenario.open()


def test_another_folder_is_refused_until_all_is_published(scenario, tmp_path):
    scenario.run(0)
    scenario.run(1, "after publishing")
    here, scenario.out = scenario.out, tmp_path / "elsewhere"
    with pytest.raises(CheckpointError, match="must be there to publish"):
        scenario.open()
    scenario.out = here
    scenario.open()
    scenario.move_away()
    scenario.out = tmp_path / "elsewhere"
    scenario.run(2)
    scenario.move_away()
    assert sum(table.num_rows for table in scenario.read) == scenario.open().manifest.results > 0


def _manifest(epoch: int, *staged: str) -> Manifest:
    outputs = tuple(OutputFile("results", name, f"{epoch}-{place}", 1) for place, name in enumerate(staged))
    return Manifest(
        routings=(RoutingTable(0, 3),),
        id="q",
        epoch=epoch,
        spark_query="",
        definition={},
        plan="",
        initial_plan="",
        streams={},
        outputs=outputs,
    )

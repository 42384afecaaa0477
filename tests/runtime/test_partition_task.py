"""Engine partitions that run one after the other write together, and what they write is what each would."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from midstream.engine.encode import make_encoders, project
from midstream.engine.program import Program
from midstream.engine.routed_rows import Arrivals, RowsKind
from midstream.plan.state_id import StateId
from midstream.plan.tree import parse_plan
from midstream.protocol.coordinator import Coordinator
from midstream.protocol.intent import Intent
from midstream.protocol.report import merge_reports
from midstream.protocol.settings import Settings
from midstream.runtime import partition_task
from midstream.runtime.crash_points import crash_hook
from midstream.runtime.partition_task import StageRun, run_partition
from midstream.state.manifest import OutputFile
from midstream.storage.memory_store import MemoryStore
from midstream.storage.output_table import FragmentRunId
from tests.helpers import rows, small_query

QUERY = small_query(["a.k = b.k"], default_window=10)
PARTITIONS = 6
PARTS = range(1, PARTITIONS)
"""The partitions that run: not the first, to see after which one files are named."""


@dataclass(frozen=True)
class Batches(MemoryStore):
    """A store that notes how many files are written at once."""

    batches: list[int] = field(default_factory=list)

    def put_all(self, files):
        self.batches.append(len(files))
        super().put_all(files)


@dataclass
class Written:
    """Keeps what is staged."""

    staged: list[tuple[int, str, pa.Table | None]] = field(default_factory=list)

    def results(self, task: FragmentRunId, rows: pa.Table | None) -> list[OutputFile]:
        self.staged.append((task.partition, "results", rows))
        return [] if rows is None else [OutputFile("results", str(task), str(task), rows.num_rows)]

    def late(self, task: FragmentRunId, rows: Mapping[str, pa.Table]) -> list[OutputFile]:
        self.staged += [(task.partition, name, part) for name, part in rows.items()]
        return [OutputFile("late", str(task), str(task), sum(part.num_rows for part in rows.values()))]


@pytest.fixture
def program() -> Program:
    coordinator = Coordinator(QUERY, Settings(PARTITIONS, 64))
    manifest = coordinator.initial_manifest("x", parse_plan("a b", QUERY.names))
    return coordinator.program(manifest, Intent("x", 0, now=0, settings=coordinator.settings))


@pytest.fixture
def arrivals(program) -> Sequence[Arrivals]:
    """Rows for every partition, of which some have no time."""
    table = rows(*((0, k, 0, f"row {k}") for k in range(100)), *((None, k, 0, "late") for k in range(40)))
    found: list[dict[tuple[StateId, RowsKind], list[pa.Table]]] = [{} for _ in range(PARTITIONS)]
    for name, encoder in make_encoders(QUERY, program.layout, program.places, whole_rows=True).items():
        parts, _ = encoder(pa.table({c.name: project(table, c, name) for c in encoder.source}))
        for part in parts:
            found[part.partition].setdefault((part.input, part.kind), []).append(part.table)
    assert all(found)
    return found


def run_all(program, arrivals):
    store, writer = Batches(), Written()
    run = StageRun(program, 0, store, writer)
    for partition in PARTS:
        assert run.run(partition, arrivals[partition]) == []
    return store, writer, run.finish()


def test_partitions_of_a_task_write_together_what_each_would_write(program, arrivals):
    store, writer, report = run_all(program, arrivals)
    alone, written = MemoryStore(), Written()
    reports = [run_partition(program, 0, p, arrivals[p], alone, written)[0] for p in PARTS]
    merged = merge_reports(reports)
    assert store.files == alone.files
    assert store.batches == [len(store.files)] == [4 * len(PARTS)]
    for part in ("slices", "replaced", "counts", "results", "work", "keys", "produced"):
        assert getattr(report, part) == getattr(merged, part)
    # One file of results and one of late rows, named after the first partition.
    assert [(partition, what) for partition, what, _ in writer.staged] == [(1, "a"), (1, "b"), (1, "results")]
    for _, what, table in writer.staged:
        assert table == pa.concat_tables(t for _, name, t in written.staged if name == what and t is not None)
    assert [output.rows for output in report.outputs] == [2 * 40 - late_in(0, arrivals), report.results]
    assert set(report.millis) == {"open", "join", "state", "stage"}


def late_in(partition: int, arrivals: Sequence[Arrivals]) -> int:
    return sum(table.column(1).null_count for parts in arrivals[partition].values() for table in parts)


@pytest.mark.parametrize("limit", ["_WRITTEN_TOGETHER_BYTES", "_WRITTEN_TOGETHER_FILES"])
def test_what_is_kept_to_be_written_together_is_bounded(program, arrivals, monkeypatch, limit):
    whole, _, want = run_all(program, arrivals)
    monkeypatch.setattr(partition_task, limit, 0)
    store, writer, report = run_all(program, arrivals)
    assert store.files == whole.files
    assert store.batches == [4] * len(PARTS)
    assert [p for p, what, _ in writer.staged if what == "results"] == list(PARTS)
    assert (report.slices, report.results) == (want.slices, want.results)
    assert len(report.outputs) == 2 * len(PARTS)


def test_a_slice_is_written_between_its_crash_points(program, arrivals):
    seen: list[tuple[str, int]] = []
    store = MemoryStore()
    with crash_hook(lambda point: seen.append((point, len(store.files)))):
        run_partition(program, 0, 1, arrivals[1], store, Written())
    before, after, staged = (
        "before a slice is written",
        "after a slice is written",
        "after results are staged",
    )
    assert seen == [*[(before, 0)] * 4, *[(after, 4)] * 4, (staged, 4)]

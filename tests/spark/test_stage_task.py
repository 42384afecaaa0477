"""Tasks that run several engine partitions write what single partitions do, and get only their own slices."""

from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from midstream.errors import InternalError
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.spark.task_ranges import TaskRanges
from midstream.state.slices import Slice
from midstream.storage.local import LocalStore
from midstream.storage.slice_files import SliceFiles
from midstream.testing import Shape, accept, assert_same_rows, batch_join, generate, stream
from midstream.values import Micros
from tests.spark import local_tasks
from tests.spark.local_tasks import LocalTasks

SHAPE = Shape(rows=40, late=0.05, null_keys=0.05, null_times=0.02, keys=20)
EPOCHS = generate(dict.fromkeys("abcd", SHAPE), epochs=7, seed=4)
QUERY = build_query(
    [stream(name, SHAPE) for name in "abcd"],
    ["a.k = b.k", "b.k2 = c.k2", "c.k = d.k"],
    default_window=Micros(9_000_000),
    select=["a.id", "b.id", "c.id", "d.id"],
)
LEFT_DEEP, RIGHT_DEEP = "((a b) c) d", "a (b (c d))"
PARTITIONS = 5


def run_epochs(
    folder: Path, strategy: str | None = None, partitions: int = PARTITIONS, rescale: int | None = None
) -> InlineJoin:
    """A run on a store that tasks share, as they do on Spark."""
    settings = Settings(partitions, groups=512)
    join = InlineJoin(QUERY, LEFT_DEEP, settings=settings, store=LocalStore(str(folder)))
    results = []
    for number, epoch in enumerate(EPOCHS):
        if strategy is not None and number == 2:
            join.migrate(RIGHT_DEEP, strategy)
        if rescale is not None and number == 3:
            join.rescale(rescale)
        results.append(join.run_epoch(epoch))
    want = all_results()
    assert sum(table.num_rows for table in results) == want.num_rows > 0
    if strategy != "parallel_track" or join.manifest.migration is None:
        assert_same_rows(pa.concat_tables(results), want)
    return join


@cache
def all_results() -> pa.Table:
    return batch_join(QUERY, accept(QUERY, EPOCHS).tables(QUERY))


@pytest.fixture(scope="module")
def by_partition(tmp_path_factory):
    """Runs whose partitions run one by one, each made once."""

    @cache
    def made(strategy: str | None, rescale: int | None = None) -> InlineJoin:
        return run_epochs(tmp_path_factory.mktemp("partitions"), strategy, rescale=rescale)

    return made


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("strategy", [None, "moving_state", "parallel_track", "hybrid"])
def test_tasks_write_what_single_partitions_write(tmp_path, by_partition, tasks, strategy):
    with LocalTasks(tasks).run_epochs():
        found = run_epochs(tmp_path / "tasks", strategy)
    want = by_partition(strategy)
    assert contents(found) == contents(want)
    one, other = found.manifest, want.manifest
    assert (one.streams, one.results) == (other.streams, other.results)
    assert one.statistics.produced == other.statistics.produced


@pytest.mark.parametrize("strategy", [None, "hybrid"])
@pytest.mark.parametrize("rescale", [2, 11])
def test_tasks_get_what_their_partitions_read_when_the_number_of_these_has_changed(
    tmp_path, by_partition, strategy, rescale
):
    tasks = LocalTasks(3)
    with tasks.run_epochs():
        found = run_epochs(tmp_path / "tasks", strategy, rescale=rescale)
    assert contents(found) == contents(by_partition(strategy, rescale))
    foreign = 0
    for task, program in tasks.programs:
        partitions = program.places.partitions
        runs = set(TaskRanges(partitions, min(partitions, 3)).partitions_of(task))
        for slice_ in (slice_ for owned in program.slices.values() for slice_ in owned):
            assert runs & set(program.places.readers(slice_))
            foreign += slice_.owner.partition not in runs
    assert foreign > 0, "slices of partitions that a task does not run"


def contents(join: InlineJoin) -> list[tuple[Slice, pa.Table]]:
    """The slices with their rows, without names: files also have what happens to be next to the rows."""
    files = SliceFiles(join.store)
    return [(replace(s, name="", bytes=0, sha256=""), files.open(s)) for s in join.manifest.slices]


def test_a_task_is_sent_its_own_slices_and_a_program_that_does_not_grow(tmp_path):
    function_bytes = {}
    for partitions in (4, 32):
        tasks = LocalTasks(partitions // 4)
        with tasks.run_epochs():
            join = run_epochs(tmp_path / str(partitions), partitions=partitions)
        ranges = TaskRanges(partitions, partitions // 4)
        sent: list[Slice] = []
        for task, program in tasks.programs:
            own = [slice_ for owned in program.slices.values() for slice_ in owned]
            assert {ranges.task_of(slice_.owner.partition) for slice_ in own} <= {task}
            assert program.run.written == {slice_.name for slice_ in own}, "this run has written them"
            sent += own if program.epoch == join.manifest.epoch else []
        # No slice goes to two tasks or stages, and none is left out.
        assert len(sent) == len(set(sent)) > 4 * partitions
        assert {s for s in join.manifest.slices if s.last_epoch < join.manifest.epoch} <= set(sent)
        function_bytes[partitions] = max(tasks.function_bytes)
    assert function_bytes[32] == pytest.approx(function_bytes[4], abs=600)


def test_a_task_without_its_slices_fails_instead_of_joining_with_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(local_tasks, "slice_messages", lambda *_: [])
    with LocalTasks(2).run_epochs(), pytest.raises(InternalError, match="its slices once; got 0 times"):
        run_epochs(tmp_path)

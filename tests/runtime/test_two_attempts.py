"""Two attempts of the same task at once, in processes of their own: one enters the manifest, none does harm.

Spark runs a task again while its first attempt still lives if it has lost sight of that one, or if it
speculates. It never does so on one machine, so here the partitions of an epoch are run twice by hand.
"""

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream.engine.program import Program
from midstream.engine.routed_rows import Arrivals, RoutedRows
from midstream.inline import InlineJoin, execution
from midstream.protocol.report import Report
from midstream.query.build import build_query
from midstream.runtime.crash_points import crash_hook
from midstream.runtime.partition_task import run_partition
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.storage.manifest_log import manifest_name
from midstream.storage.output_table import STAGED, OutputTable, ParquetWriter
from midstream.testing import Shape, accept, assert_same_rows, batch_join, generate, stream
from midstream.values import Micros

SHAPE = Shape(rows=12)
EPOCHS = generate(dict.fromkeys("abc", SHAPE), epochs=6, seed=21)
QUERY = build_query(
    [stream(name, SHAPE) for name in "abc"],
    ["a.k = b.k", "b.k2 = c.k2"],
    default_window=Micros(8_000_000),
    select=["a.id", "b.id", "c.id"],
)
PATIENCE = 60.0

Done = tuple[Report, list[RoutedRows]]


class Call(NamedTuple):
    """The arguments of a task, the same for each of its attempts."""

    program: Program
    stage: int
    partition: int
    arrivals: Arrivals
    store: LocalStore
    table: OutputTable


def attempt(call: Call, until: str | None) -> Done:
    """Run a partition as a task does; with ``until``, wait after the first slice for that file."""

    def stay(point: str) -> None:
        give_up = time.monotonic() + PATIENCE
        while until and point == "after a slice is written" and not Path(until).exists():
            assert time.monotonic() < give_up, f"{until} was never written"
            time.sleep(0.01)

    writer = ParquetWriter(call.table, None, QUERY.output_schema, {})
    with crash_hook(stay):
        return run_partition(*call[:5], writer)


class Rivals:
    """Runs each partition twice at once. The driver gets the report of the attempt that ends first."""

    def __init__(self, pool: ProcessPoolExecutor, table: OutputTable, *, zombies: bool) -> None:
        self.pairs: list[tuple[Future[Done], Future[Done]]] = []
        self._pool = pool
        self._table = table
        self._zombies = zombies

    def __call__(self, program, stage, partition, arrivals, store, _writer, _clock=None) -> Done:
        call = Call(program, stage, partition, arrivals, store, self._table)
        # In turn one that has results to stage, and one that has rows for the next stage.
        zombie = self._zombies and (stage, partition) == (program.epoch % 2, 0)
        name = manifest_name(program.run.lease, program.epoch)
        until = f"{store.root}/{name}" if zombie else None
        pair = self._pool.submit(attempt, call, until), self._pool.submit(attempt, call, None)
        self.pairs.append(pair)
        first, _ = wait(pair, PATIENCE, return_when=FIRST_COMPLETED)
        done = first.pop().result()
        # What writes no slice would not have waited.
        assert not zombie or (done[0].slices and not pair[0].done())
        return done


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    # One more than two: a zombie keeps one busy.
    with ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as processes:
        yield processes


@pytest.mark.parametrize("zombies", [False, True], ids=["at once", "one ends after the commit"])
def test_of_two_attempts_of_a_task_one_counts_and_none_does_harm(pool, tmp_path, monkeypatch, zombies):
    store = LocalStore(str(tmp_path / "checkpoint"))
    table = OutputTable("results", str(tmp_path / "out"), "query")
    query = InlineJoin(QUERY, store=store, sink=table)
    # The first commit of a run sweeps: an attempt that is late then misses its temporary file and fails.
    query.run_epoch(EPOCHS[0])
    for epoch in EPOCHS[1:-1]:
        rivals = Rivals(pool, table, zombies=zombies)
        monkeypatch.setattr(execution, "run_partition", rivals)
        query.run_epoch(epoch)
        committed = {output.staged for output in query.manifest.outputs}
        for pair in rivals.pairs:
            (one, sent), (other, sent_too) = (future.result(PATIENCE) for future in pair)
            assert one.slices == other.slices
            assert (one.replaced, one.counts, one.results) == (other.replaced, other.counts, other.results)
            assert sent == sent_too
            staged = [{output.staged for output in report.outputs} for report in (one, other)]
            assert len(staged[0]) == len(staged[1]) == len(committed & (staged[0] | staged[1]))
            assert committed & staged[0] in (set(), staged[0])
    monkeypatch.undo()
    findings = fsck(store)
    assert (findings.problems, findings.orphans) == ((), ())
    assert list((tmp_path / "out" / STAGED).iterdir()), "the losers have staged results too"
    InlineJoin(QUERY, store=store, sink=table).run_epoch(EPOCHS[-1])
    assert list((tmp_path / "out" / STAGED).iterdir()) == []
    assert fsck(store).problems == ()
    got = pa.concat_tables(map(pq.read_table, sorted((tmp_path / "out").glob("*.parquet"))))
    want = batch_join(QUERY, accept(QUERY, EPOCHS).tables(QUERY))
    assert got.num_rows == want.num_rows > 0
    assert_same_rows(got, want)

"""The promise, clause by clause, in the words of the README.

Over the life of a query its results are the same multiset of rows that a batch join of its accepted input
would give: nothing lost, nothing twice, whatever the plan, the batches, and the crashes in between.

- State: exactly once. An epoch is committed whole or not at all, by one file that only one driver can write.
- ``parquet`` and ``memory`` sinks: exactly once. Readers see only whole files of committed epochs.
- ``foreachBatch`` and ``console``: at least once. After a crash a batch may come again, with the same rows
  and the same batch id; use the id to drop the repetition.
- Prefix consistency. After every commit n the output equals the batch join of the inputs up to n, less what
  [spilled state](docs/memory.md) owes and what a migration by [parallel
  track](docs/migration-parallel-track.md) holds back until it ends.

A crash here is an error at a named point of the driver, after which the query is started again. The tests
that kill do the same with processes.
"""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from midstream import CheckpointError
from midstream.protocol.coordinator import EPOCHS_KEPT
from midstream.runtime.crash_points import crash_hook
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.storage.manifest_log import commit_manifest, newest_manifest
from midstream.testing import Shape, accept, assert_same_rows, batch_join, generate
from tests.helpers import digests
from tests.spark.driver_death import AROUND_THE_COMMIT, die_once_at_each, run_through
from tests.spark.runner import check, join_streams

pytestmark = pytest.mark.spark

README = Path(__file__).parents[2] / "README.md"
SHAPE = Shape(rows=25, late=0.1, null_times=0.05, null_keys=0.05, duplicates=0.05)


def _join(spark, feed):
    frames = {name: feed.df(name) for name in "abc"}
    join = join_streams(spark, frames, lateness="5 seconds")
    return join.on("a.k = b.k", "b.k2 = c.k2").within("15 seconds").select("a.id", "b.id", "c.id")


@pytest.fixture
def join(spark, feed):
    feed.add(*generate(dict.fromkeys("abc", SHAPE), epochs=3, seed=51))
    return _join(spark, feed)


def _up_to(join, feed, epoch: int) -> pa.Table:
    """The batch join of the inputs up to an epoch, by DuckDB."""
    query = join.query()
    return batch_join(query, accept(query, feed.epochs[: epoch + 1]).tables(query))


def test_the_promise_is_in_the_readme_in_these_words():
    promise = " ".join(README.read_text(encoding="utf-8").partition("## The promise")[2].split()).replace(
        "*", ""
    )
    for clause in re.split(r"\n\n|\n- ", __doc__ or "")[1:6]:
        assert " ".join(clause.replace("``", "`").split()) in promise


@pytest.mark.parametrize("plan", ["a b c", "a (b c)"])
def test_the_results_are_those_of_a_batch_join_whatever_the_plan_the_batches_and_the_crashes(
    spark, feed, join, runner, plan
):
    with die_once_at_each("before the step", "after the step", "before the commit") as died:
        assert run_through(lambda: runner.run(join, plan=plan)) == len(died) == 3
    assert check(join.query(), feed.epochs, runner.results()).num_rows > 0
    assert fsck(LocalStore(str(runner.checkpoint))).problems == ()


def test_an_epoch_is_committed_whole_or_not_at_all_and_after_every_commit_the_output_is_the_join_up_to_it(
    feed, join, runner
):
    store = LocalStore(str(runner.checkpoint))
    seen: list[int] = []

    def look(point: str) -> None:
        manifest = newest_manifest(store)
        epoch = -1 if manifest is None else manifest.epoch
        if point in ("after the step", "before the commit"):
            # All its slices and results are written. Nothing of it counts, and no reader sees any of it.
            assert epoch == len(seen) - 1
            _must_be(epoch)
        elif point == "after the commit":
            # One file more, and all of it counts: its slices are there and sound.
            assert epoch == len(seen)
            assert len(list(runner.checkpoint.glob("manifests/*.json"))) == min(len(seen), EPOCHS_KEPT) + 1
            assert fsck(store).problems == ()
        elif point == "after noting that it was published":
            _must_be(epoch)
            seen.append(epoch)

    def _must_be(epoch: int) -> None:
        files = sorted(runner.out.glob("*.parquet"))
        schema = join.query().output_schema
        got = pa.concat_tables([schema.empty_table(), *map(pq.read_table, files)])
        want = _up_to(join, feed, epoch)
        assert got.num_rows == want.num_rows
        assert_same_rows(got, want)

    with crash_hook(look):
        runner.run(join)
    assert seen == [0, 1, 2]
    # Another driver, should it get as far as that, cannot write the same file.
    manifest = newest_manifest(store)
    assert manifest is not None
    before = digests(runner.checkpoint)
    with pytest.raises(CheckpointError, match="committed by one driver only"):
        commit_manifest(store, replace(manifest, results=0))
    assert digests(runner.checkpoint) == before


@pytest.mark.parametrize("sink", ["parquet", "memory"])
def test_parquet_and_memory_give_each_result_exactly_once_through_crashes(spark, feed, join, runner, sink):
    writer = join.writeStream.format(sink).option("checkpointLocation", runner.checkpoint)
    writer = writer.option("path", runner.out) if sink == "parquet" else writer.queryName("promised")
    writer = writer.trigger(availableNow=True)
    with die_once_at_each(*AROUND_THE_COMMIT) as died:
        assert run_through(lambda: writer.start().awaitTermination()) == len(died) == 3
    got = runner.results() if sink == "parquet" else spark.table("promised").toArrow()
    assert check(join.query(), feed.epochs, got).num_rows > 0


def test_foreach_batch_sees_a_batch_again_with_the_same_rows_and_the_same_id(feed, join, tmp_path):
    seen: list[tuple[int, pa.Table]] = []
    writer = join.writeStream.foreachBatch(lambda rows, batch: seen.append((batch, rows.toArrow())))
    writer = writer.option("checkpointLocation", tmp_path / "checkpoint").trigger(availableNow=True)
    with die_once_at_each(*AROUND_THE_COMMIT) as died:
        assert run_through(lambda: writer.start().awaitTermination()) == len(died) == 3
    # It died once after the function had seen a batch and before that batch was committed.
    assert [batch for batch, _ in seen] == [0, 0, 1, 2]
    assert_same_rows(seen[0][1], seen[1][1])
    once = dict(seen)
    assert check(join.query(), feed.epochs, pa.concat_tables(once.values())).num_rows > 0
    for batch in once:
        upto = pa.concat_tables([once[earlier] for earlier in range(batch + 1)])
        assert_same_rows(upto, _up_to(join, feed, batch))


def test_console_prints_a_batch_again_with_the_same_rows_and_the_same_id(join, tmp_path, capfd):
    writer = join.writeStream.format("console").option("numRows", 1000)
    writer = writer.option("checkpointLocation", tmp_path / "checkpoint").trigger(availableNow=True)
    with die_once_at_each("after the sink prepared") as died:
        assert run_through(lambda: writer.start().awaitTermination()) == len(died) == 1
    parts = re.split(r"-+\nBatch: (\d+)\n-+\n", capfd.readouterr().out)
    assert parts[1::2] == ["0", "0", "1", "2"]
    assert sorted(parts[2].splitlines()) == sorted(parts[4].splitlines())

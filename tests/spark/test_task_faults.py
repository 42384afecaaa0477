"""Tasks that are killed, fail or run out of memory: with retries the query goes on, without it stops."""

import sys

import pytest

from midstream.errors import StreamError
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from tests.spark.driver_course import Change, Life
from tests.spark.killable_main import start
from tests.spark.killable_query import KillableQuery, hungry_epoch
from tests.spark.process_faults import IN_JOIN, IN_TASKS, Fault, failing_tasks, struck_migrations

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does"),
]

KILLS = [Fault("kill", epoch, point) for epoch, point in enumerate(IN_TASKS, start=1)]
FAILURE = Fault("raise", 4, "after a slice is written")
HUNGER = Fault("starve", 5, IN_JOIN)


def _left_behind(killable_query: KillableQuery) -> set[str]:
    """Files that no manifest names."""
    orphans = fsck(LocalStore(str(killable_query.root / "checkpoint"))).orphans
    staged = (path.name for path in (killable_query.root / "out" / "_staged").iterdir())
    return {*orphans, *(name for name in staged if name != "folder-id")}


def _error_of_run(spark, killable_query: KillableQuery, fault: Fault) -> Exception:
    """Run the query, whose tasks are not repeated, into a fault; gives what its user sees."""
    with failing_tasks(killable_query.root / "struck", [fault]):
        query = start(spark, killable_query.root)
        with pytest.raises(Exception, match="task") as caught:
            query.awaitTermination()
    assert fault.mark in killable_query.struck()
    seen = query.exception()
    assert type(seen) is type(caught.value)
    return caught.value


@pytest.mark.slow
def test_tasks_that_are_killed_fail_or_run_out_of_memory_are_repeated(spark, tmp_path):
    killable_query = KillableQuery(tmp_path, epochs=5, seed=3)
    killable_query.add(hungry_epoch(5))
    faults = (*KILLS, FAILURE, HUNGER)
    killable_query.finish(killable_query.start(Life(faults=faults, master="local[2,4]")))
    assert killable_query.struck() == {fault.mark for fault in faults}
    killable_query.check()
    # The first attempt of one task was killed when it had staged its results.
    assert _left_behind(killable_query)
    killable_query.add()
    killable_query.run_here(spark)
    killable_query.check()
    assert not _left_behind(killable_query)


def test_a_query_whose_worker_is_killed_says_so_and_goes_on_when_started_again(spark, tmp_path):
    killable_query = KillableQuery(tmp_path, epochs=2, seed=7)
    error = _error_of_run(spark, killable_query, Fault("kill", 1, "after a slice is written"))
    assert isinstance(error, StreamError)
    assert "Python worker of a task must live" in error.must
    assert "want of memory" in str(error.hint)
    killable_query.run_here(spark)
    killable_query.check()


def test_a_query_whose_task_fails_stops_and_the_next_run_sweeps_what_it_left(spark, tmp_path):
    killable_query = KillableQuery(tmp_path, epochs=2, seed=8)
    error = _error_of_run(spark, killable_query, Fault("raise", 1, "after results are staged"))
    assert "RuntimeError: a task fails here" in str(error)
    left = _left_behind(killable_query)
    assert {name for name in left if name.startswith("slices/")}
    assert {name for name in left if not name.startswith("slices/")}
    killable_query.run_here(spark)
    killable_query.check()
    assert not _left_behind(killable_query)


def test_a_query_that_runs_out_of_memory_says_so_and_goes_on_when_started_again(spark, tmp_path):
    killable_query = KillableQuery(tmp_path, epochs=1, seed=9)
    killable_query.add(hungry_epoch(1))
    error = _error_of_run(spark, killable_query, Fault("starve", 1, IN_JOIN))
    assert isinstance(error, StreamError)
    assert "a task must get the memory that it asks for" in error.must
    assert "Unable to allocate" in str(error.got)
    assert "goes on after its last committed epoch" in str(error.hint)
    killable_query.run_here(spark)
    killable_query.check()


def test_a_query_that_runs_out_of_memory_in_the_middle_of_a_migration_goes_on_with_it(spark, tmp_path):
    killable_query = KillableQuery(tmp_path, epochs=2, seed=9)
    killable_query.run_here(spark, Change(0, "a (b c)", "parallel_track"))
    before = killable_query.manifest()
    assert before.migration is not None
    killable_query.add(hungry_epoch(2))
    fault = Fault("starve", 2, IN_JOIN)
    error = _error_of_run(spark, killable_query, fault)
    assert "a task must get the memory that it asks for" in str(error)
    assert struck_migrations(tmp_path / "struck") == {fault.mark: "parallel_track, goes on"}
    assert killable_query.manifest() == before
    for _ in range(3):
        killable_query.add()
    killable_query.run_here(spark)
    killable_query.check()
    after = killable_query.manifest()
    assert (after.plan, after.migration, after.migrations) == ("a (b c)", None, 1)

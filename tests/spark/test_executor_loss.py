"""Executors that are killed, before and in the middle of migrations, on a cluster of several processes."""

import pytest

from tests.spark.killable_main import Change
from tests.spark.killable_query import KillableQuery
from tests.spark.process_faults import Fault, struck_migrations

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(600)]

LEFT, RIGHT = "(a b) c", "a (b c)"
# One after the other in one query: each is over when the next is asked for.
CHANGES = (
    Change(1, RIGHT, "moving_state"),
    Change(3, LEFT, "parallel_track"),
    Change(8, RIGHT, "hybrid"),
    Change(12, LEFT, "hybrid", "off"),
)
# By then the executor has written slices, or staged results, and keeps rows for the stage after.
LOSSES = {
    Fault("executor", 0, "after a slice is written"): "",
    Fault("executor", 2, "after a slice is written"): "moving_state, begins, ends",
    Fault("executor", 5, "after results are staged"): "parallel_track, goes on",
    Fault("executor", 10, "after a slice is written"): "hybrid, goes on",
    Fault("executor", 13, "after results are staged"): "hybrid that waits, begins",
}


def test_an_executor_that_dies_is_replaced_and_costs_nothing_but_time(tmp_path):
    killable_query = KillableQuery(tmp_path, epochs=16, seed=8)
    killable_query.finish(
        killable_query.start(migrations=CHANGES, faults=tuple(LOSSES), master="local-cluster[2,1,1024]")
    )
    assert "DONE 2" in (tmp_path / "log").read_text()
    struck = struck_migrations(tmp_path / "struck")
    assert set(struck) == {fault.mark for fault in LOSSES}
    for fault, migration in LOSSES.items():
        assert struck[fault.mark].startswith(migration)
        assert bool(struck[fault.mark]) == bool(migration)
    killable_query.check()
    manifest = killable_query.manifest()
    assert (manifest.plan, manifest.migration, manifest.migrations) == (LEFT, None, len(CHANGES))

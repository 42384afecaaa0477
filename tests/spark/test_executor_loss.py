"""Executors that are killed, and then their driver, on a cluster, while plans and partitions change."""

import signal

import pytest

from tests.spark.driver_course import Change, Life
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
    Change(16, RIGHT, "hybrid"),
)
"""The driver dies when it is asked for the last one."""
# By then the executor has written slices, or staged results, and keeps rows for the stage after.
LOSSES = {
    Fault("executor", 0, "after a slice is written"): "",
    Fault("executor", 2, "after a slice is written"): "moving_state, begins, ends",
    Fault("executor", 5, "after results are staged"): "parallel_track, goes on",
    Fault("executor", 10, "after a slice is written"): "hybrid, goes on",
    Fault("executor", 13, "after results are staged"): "hybrid that waits, begins",
}
DIVIDED: dict[str, str | int] = {"partitions": 256, "groups": 256}
LIMITED: dict[str, str | int] = {
    **DIVIDED,
    "partitions": 7,
    "stateMemory": "4k",
    "spill": "global_output",
    "balance": "active_disk",
    "balancePause": "0 seconds",
    "balanceThreshold": 1,
}
BACK = Change(20, LEFT, "moving_state", "off", partitions=2)


def test_executors_that_die_and_then_their_driver_cost_nothing_but_time(tmp_path):
    """The driver that follows has one executor more, and limits."""
    killable_query = KillableQuery(tmp_path, epochs=24, seed=8)
    life = Life(
        point="before the step",
        phase="asked",
        changes=CHANGES,
        faults=tuple(LOSSES),
        options=DIVIDED,
        master="local-cluster[2,1,1024]",
    )
    assert killable_query.start(life).wait(300) == -signal.SIGKILL, (tmp_path / "log").read_text()[-3000:]
    struck = struck_migrations(tmp_path / "struck")
    assert len(struck) > 2, "more have died than there were at first: others have come in their place"
    assert set(struck) == {fault.mark for fault in LOSSES}
    for fault, migration in LOSSES.items():
        assert struck[fault.mark].startswith(migration)
        assert bool(struck[fault.mark]) == bool(migration)
    killed = killable_query.manifest()
    assert (killed.plan, killed.migration, killed.migrations) == (LEFT, None, 4)
    assert killed.routings[-1].partitions == DIVIDED["partitions"]

    life = Life(changes=(BACK,), options=LIMITED, master="local-cluster[3,1,1024]")
    killable_query.finish(killable_query.start(life))
    assert "DONE 3" in (tmp_path / "log").read_text()
    killable_query.check()
    manifest = killable_query.manifest()
    # The last plan that was asked for still waits: spilled groups owed results, until the query was drained.
    assert (manifest.plan, manifest.migration, manifest.migrations) == (RIGHT, None, 5)
    assert manifest.epochs_without_batch > 0
    assert manifest.routings[-1].partitions == 2
    assert manifest.balance.decided_at is not None, "state was relocated, or spilled for the sake of others"

"""SIGKILL for real: drivers at random moments and at every crash point, and executors; workers elsewhere."""

import os
import random
import signal
import subprocess
import time
from collections import Counter

import pytest

from tests.spark.killable_main import Change
from tests.spark.killable_query import KillableQuery
from tests.spark.process_faults import IN_DRIVERS, Fault

KILLS = int(os.environ.get("KILLS", "4"))

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900 + 60 * KILLS)]


def _kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_drivers_killed_at_random_moments_lose_and_repeat_nothing(tmp_path):
    killable_query = KillableQuery(tmp_path, epochs=1, seed=1)
    rng = random.Random(int(os.environ.get("KILL_SEED", "1")))
    landed: Counter[str] = Counter()
    for _ in range(KILLS):
        begun = killable_query.last_epoch()
        # More than a run can process before it is killed: killing one that is done would prove nothing.
        while len(killable_query.feed.epochs) < begun + 12:
            killable_query.add()
        process = killable_query.start()
        # Nor would killing a JVM that is only starting.
        while process.poll() is None and killable_query.last_epoch() <= begun:
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 1.5))
        assert process.poll() is None, (tmp_path / "log").read_text()[-2000:]
        _kill(process)
        landed[killable_query.epoch_phase()] += 1
    killable_query.finish(killable_query.start())
    print(f"{KILLS} kills in {KILLS + 1} lives landed: {dict(landed)}")
    killable_query.check()


def test_drivers_killed_at_every_crash_point_lose_and_repeat_nothing(tmp_path):
    killable_query = KillableQuery(tmp_path, epochs=26, seed=2)
    for point in IN_DRIVERS:
        process = killable_query.start(point=point)
        assert process.wait(timeout=300) == -signal.SIGKILL, (
            f"{point}: {(tmp_path / 'log').read_text()[-2000:]}"
        )
    killable_query.finish(killable_query.start())
    killable_query.check()


def test_drivers_killed_at_every_turn_of_migrations_lose_and_repeat_nothing(tmp_path):
    killable_query = KillableQuery(tmp_path, epochs=20, seed=3)
    left, right = "(a b) c", "a (b c)"

    def dies(point: str, phase: str, *migrations: Change) -> None:
        process = killable_query.start(point=point, phase=phase, migrations=migrations)
        assert process.wait(timeout=300) == -signal.SIGKILL, (
            f"{point}, {phase}: {(tmp_path / 'log').read_text()[-2000:]}"
        )

    dies("before the step", "asked", Change(2, right, "moving_state"))
    assert (killable_query.manifest().plan, killable_query.manifest().migrations) == (left, 0)
    # Moving state begins, recomputes and ends in one epoch.
    dies("after the step", "ends")
    assert (killable_query.manifest().plan, killable_query.manifest().migrations) == (left, 0)
    dies("after the step", "begins", Change(4, left, "parallel_track"))
    assert (killable_query.manifest().plan, killable_query.manifest().migrations) == (right, 1)
    dies("after the step", "goes on")
    assert killable_query.manifest().migration is not None
    dies("before the commit", "ends")
    assert (killable_query.manifest().plan, killable_query.manifest().migrations) == (right, 2)
    dies("after the commit", "half computed", Change(10, right, "hybrid"))
    half = killable_query.manifest().migration
    assert half is not None
    assert half.rebuilding
    dies("after the step", "ends")
    killable_query.finish(killable_query.start(migrations=[Change(15, left, "hybrid")]))
    killable_query.check()
    last = killable_query.manifest()
    assert (last.plan, last.migration, last.migrations) == (left, None, 4)


@pytest.mark.cluster
def test_a_query_runs_the_same_on_several_executors(tmp_path):
    killable_query = KillableQuery(tmp_path, epochs=3, seed=5)
    killable_query.finish(killable_query.start(master="local-cluster[2,1,1024]"))
    assert "DONE 2" in (tmp_path / "log").read_text()
    killable_query.check()


@pytest.mark.cluster
def test_an_executor_that_dies_is_replaced_and_its_tasks_repeated(tmp_path):
    killable_query = KillableQuery(tmp_path, epochs=5, seed=4)
    fault = Fault("executor", 2, "after a slice is written")
    killable_query.finish(killable_query.start(faults=[fault], master="local-cluster[2,1,1024]"))
    assert killable_query.struck() == {fault.mark}
    killable_query.check()

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
    arena = KillableQuery(tmp_path, epochs=1, seed=1)
    rng = random.Random(int(os.environ.get("KILL_SEED", "1")))
    landed: Counter[str] = Counter()
    for _ in range(KILLS):
        begun = arena.last_epoch()
        # More than a life can do before it is killed: killing what is done would prove nothing.
        while len(arena.feed.epochs) < begun + 12:
            arena.add()
        process = arena.start()
        # Nor would killing a JVM that only starts.
        while process.poll() is None and arena.last_epoch() <= begun:
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 1.5))
        assert process.poll() is None, (tmp_path / "log").read_text()[-2000:]
        _kill(process)
        landed[arena.stage()] += 1
    arena.finish(arena.start())
    print(f"{KILLS} kills in {KILLS + 1} lives landed: {dict(landed)}")
    arena.check()


def test_drivers_killed_at_every_crash_point_lose_and_repeat_nothing(tmp_path):
    arena = KillableQuery(tmp_path, epochs=26, seed=2)
    for point in IN_DRIVERS:
        process = arena.start(point=point)
        assert process.wait(timeout=300) == -signal.SIGKILL, (
            f"{point}: {(tmp_path / 'log').read_text()[-2000:]}"
        )
    arena.finish(arena.start())
    arena.check()


def test_drivers_killed_at_every_turn_of_migrations_lose_and_repeat_nothing(tmp_path):
    arena = KillableQuery(tmp_path, epochs=20, seed=3)
    left, right = "(a b) c", "a (b c)"

    def dies(point: str, phase: str, *migrations: Change) -> None:
        process = arena.start(point=point, phase=phase, migrations=migrations)
        assert process.wait(timeout=300) == -signal.SIGKILL, (
            f"{point}, {phase}: {(tmp_path / 'log').read_text()[-2000:]}"
        )

    dies("before the step", "asked", Change(2, right, "moving_state"))
    assert (arena.manifest().plan, arena.manifest().migrations) == (left, 0)
    # Moving state begins, recomputes and ends in one epoch.
    dies("after the step", "ends")
    assert (arena.manifest().plan, arena.manifest().migrations) == (left, 0)
    dies("after the step", "begins", Change(4, left, "parallel_track"))
    assert (arena.manifest().plan, arena.manifest().migrations) == (right, 1)
    dies("after the step", "goes on")
    assert arena.manifest().migration is not None
    dies("before the commit", "ends")
    assert (arena.manifest().plan, arena.manifest().migrations) == (right, 2)
    dies("after the commit", "half computed", Change(10, right, "hybrid"))
    half = arena.manifest().migration
    assert half is not None
    assert half.rebuilding
    dies("after the step", "ends")
    arena.finish(arena.start(migrations=[Change(15, left, "hybrid")]))
    arena.check()
    last = arena.manifest()
    assert (last.plan, last.migration, last.migrations) == (left, None, 4)


@pytest.mark.cluster
def test_a_query_runs_the_same_on_several_executors(tmp_path):
    arena = KillableQuery(tmp_path, epochs=3, seed=5)
    arena.finish(arena.start(master="local-cluster[2,1,1024]"))
    assert "DONE 2" in (tmp_path / "log").read_text()
    arena.check()


@pytest.mark.cluster
def test_an_executor_that_dies_is_replaced_and_its_tasks_repeated(tmp_path):
    arena = KillableQuery(tmp_path, epochs=5, seed=4)
    fault = Fault("executor", 2, "after a slice is written")
    arena.finish(arena.start(faults=[fault], master="local-cluster[2,1,1024]"))
    assert arena.struck() == {fault.mark}
    arena.check()

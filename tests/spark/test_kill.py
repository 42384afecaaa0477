"""SIGKILL for real: drivers at random moments and at every crash point; executors and workers elsewhere."""

import os
import random
import signal
import subprocess
import time
from collections import Counter

import pytest

from midstream.state.manifest import Manifest
from tests.spark.killable_main import Change
from tests.spark.killable_query import KillableQuery
from tests.spark.process_faults import IN_DRIVERS

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


def test_drivers_killed_at_every_crash_point_and_every_turn_of_migrations_lose_and_repeat_nothing(tmp_path):
    killable_query = KillableQuery(tmp_path, epochs=26, seed=3)
    left, right = "(a b) c", "a (b c)"
    died_at = []

    def dies(point: str, phase: str = "", *migrations: Change) -> Manifest:
        """Start a driver that dies at a point; gives what is committed then."""
        process = killable_query.start(point=point, phase=phase, migrations=migrations)
        assert process.wait(timeout=300) == -signal.SIGKILL, (
            f"{point}, {phase}: {(tmp_path / 'log').read_text()[-2000:]}"
        )
        died_at.append(point)
        return killable_query.manifest()

    found = dies("before the step", "asked", Change(2, right, "moving_state"))
    assert (found.plan, found.migrations) == (left, 0)
    # Moving state begins, recomputes and ends in one epoch.
    found = dies("after the step", "ends")
    assert (found.plan, found.migrations) == (left, 0)
    found = dies("after the sink prepared", "begins", Change(4, left, "parallel_track"))
    assert (found.plan, found.migration, found.migrations) == (right, None, 1)
    found = dies("after publishing", "goes on")
    assert found.migration is not None
    found = dies("before the commit", "ends")
    assert found.migration is not None
    assert (found.plan, found.migrations) == (right, 2)
    found = dies("after the commit", "half computed", Change(10, right, "hybrid"))
    assert found.migration is not None
    assert found.migration.rebuilding
    found = dies("after the intent is written", "ends")
    assert found.migration is not None
    assert (found.plan, found.migrations) == (left, 3)
    for point in IN_DRIVERS:
        if point not in died_at:
            dies(point)
    assert sorted(died_at) == sorted(IN_DRIVERS)
    last_change = Change(killable_query.last_epoch() + 2, left, "hybrid")
    killable_query.finish(killable_query.start(migrations=[last_change]))
    killable_query.check()
    last = killable_query.manifest()
    assert (last.plan, last.migration, last.migrations) == (left, None, 4)

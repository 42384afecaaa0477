"""SIGKILL for real: drivers at random moments, and at every crash point while their query is changed.

Executors and workers are killed elsewhere.
"""

import os
import random
import signal
import subprocess
import time
from collections import Counter
from typing import Any

import pytest

from midstream.state.manifest import Manifest
from tests.spark.driver_course import Change, Life
from tests.spark.killable_query import KillableQuery
from tests.spark.process_faults import IN_DRIVERS

KILLS = int(os.environ.get("KILLS", "4"))

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900 + 60 * KILLS)]


def _kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_drivers_killed_at_random_moments_lose_and_repeat_nothing(spark, tmp_path):
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
    killable_query.run_here(spark)
    print(f"{KILLS} kills in {KILLS + 1} lives landed: {dict(landed)}")
    killable_query.check()


def test_drivers_killed_at_every_crash_point_and_every_turn_of_a_change_lose_and_repeat_nothing(
    spark, tmp_path
):
    """Each of them dies in another turn of a migration or of a replacement, and at another point."""
    killable_query = KillableQuery(tmp_path, epochs=30, seed=3)
    left, right = "(a b) c", "a (b c)"
    died_at = []

    def dies(point: str, phase: str, *changes: Change, **more: Any) -> Manifest:
        """Start a driver that dies at a point; gives what is committed then."""
        process = killable_query.start(Life(point=point, phase=phase, changes=changes, **more))
        assert process.wait(timeout=300) == -signal.SIGKILL, (
            f"{point}, {phase}: {(tmp_path / 'log').read_text()[-2000:]}"
        )
        died_at.append(point)
        return killable_query.manifest()

    found = dies("before the step", "asked", Change(2, right, "moving_state"))
    assert (found.plan, found.migrations) == (left, 0)
    # Moving state begins, recomputes and ends in one epoch.
    found = dies("after the sink prepared", "ends")
    assert (found.plan, found.migrations) == (left, 0)
    found = dies("after noting that it was published", "begins", Change(4, left, "parallel_track"))
    assert (found.plan, found.migration, found.migrations) == (right, None, 1)
    found = dies("after publishing", "goes on")
    assert found.migration is not None
    found = dies("after forgetting a manifest", "ends")
    assert found.migration is not None
    assert (found.plan, found.migrations) == (right, 2)
    found = dies("after the commit", "half computed", Change(10, right, "hybrid"))
    assert found.migration is not None
    assert found.migration.rebuilding
    found = dies("after the intent is written", "ends")
    assert found.migration is not None
    assert (found.plan, found.migrations) == (left, 3)

    # The drivers that follow are started with either definition.
    asked_in = found.epoch + 3
    found = dies("after the step", "catches up", replaced_in=asked_in)
    # It was asked for, and its first epoch is run again.
    assert (found.replacement, found.replacements, found.epoch) == (None, 0, asked_in)
    found = dies("before the commit", "goes live", definition="new")
    assert found.replacement is not None
    assert found.replacement.live_since is None
    found = dies("after deleting a slice", "is live")
    assert found.replacement is not None
    until = found.replacement.until
    assert until is not None
    found = dies("after noting what is published", "was replaced", definition="new")
    assert found.ended_replacement is not None
    assert sorted(died_at) == sorted(IN_DRIVERS)
    # What the one before has not published, the next one does as it starts.
    assert dies("after publishing", "", definition="new") == found

    killable_query.run_here(spark, Change(found.epoch + 2, left, "hybrid"), definition="new")
    killable_query.check(until)
    last = killable_query.manifest()
    assert (last.plan, last.migration, last.migrations) == (left, None, 4)
    assert (last.replacement, last.replacements) == (None, 1)

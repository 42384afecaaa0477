"""SIGKILL for real: drivers at random moments and at every crash point, workers, executors."""

import os
import random
import signal
import subprocess
import time

import pytest

from midstream.storage.crash import POINTS
from tests.spark.arena import Arena

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

KILLS = int(os.environ.get("KILLS", "4"))
IN_TASKS = ("before a slice is written", "after a slice is written", "after results are staged")


def _kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_drivers_killed_at_random_moments_lose_and_repeat_nothing(tmp_path):
    arena = Arena(tmp_path, epochs=KILLS + 10, seed=1)
    rng = random.Random(int(os.environ.get("KILL_SEED", "1")))
    for _ in range(KILLS):
        begun = arena.last_epoch()
        process = arena.start()
        # Wait until it is at work: killing a JVM that only starts would prove nothing.
        while process.poll() is None and arena.last_epoch() <= begun:
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 1.5))
        _kill(process)
    arena.finish(arena.start())
    arena.check()


def test_drivers_killed_at_every_crash_point_lose_and_repeat_nothing(tmp_path):
    arena = Arena(tmp_path, epochs=26, seed=2)
    for point in (point for point in POINTS if point not in IN_TASKS):
        process = arena.start(victim="driver", point=point)
        assert process.wait(timeout=300) == -signal.SIGKILL, (
            f"{point}: {(tmp_path / 'log').read_text()[-2000:]}"
        )
    arena.finish(arena.start())
    arena.check()


def test_a_worker_that_dies_is_replaced_and_its_task_repeated(tmp_path):
    arena = Arena(tmp_path, epochs=5, seed=3)
    arena.finish(arena.start(victim="worker", master="local[2,4]"))
    assert (tmp_path / "killed").exists()
    arena.check()


@pytest.mark.cluster
def test_a_query_runs_the_same_on_several_executors(tmp_path):
    arena = Arena(tmp_path, epochs=3, seed=5)
    arena.finish(arena.start(master="local-cluster[2,1,1024]"))
    assert "DONE 2" in (tmp_path / "log").read_text()
    arena.check()


@pytest.mark.cluster
def test_an_executor_that_dies_is_replaced_and_its_tasks_repeated(tmp_path):
    arena = Arena(tmp_path, epochs=5, seed=4)
    arena.finish(arena.start(victim="executor", master="local-cluster[2,1,1024]"))
    assert (tmp_path / "killed").exists()
    arena.check()

"""Drivers that are paused by SIGSTOP with their JVM, and given up; another takes over, then they wake.

``PAUSES=30 pytest -s tests/spark/test_pause.py`` pauses at that many points, random ones after the first
three, and prints where, and how each driver ended.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from midstream.protocol.coordinator import EPOCHS_KEPT
from midstream.protocol.lease import LEASE_TIMEOUT_SECONDS
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from tests.spark.killable_main import start
from tests.spark.killable_query import KillableQuery
from tests.spark.pausable_main import FENCED, ONCE, PLACES, Pause
from tests.spark.process_faults import IN_TASKS

PAUSES = int(os.environ.get("PAUSES", "3"))
SHORT_WAIT_SECONDS = 2.0
"""Most successors do not wait as long as in production."""

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300 + 90 * PAUSES)]


@dataclass(frozen=True)
class Takeover:
    """A driver is paused; another takes over and has some epochs to run; then the first wakes."""

    pause: Pause
    epochs: int
    wakes: Literal["meanwhile", "afterwards", "to new input"] = "afterwards"
    give_up_seconds: float = LEASE_TIMEOUT_SECONDS


FIXED = (
    # Nothing is committed yet, not even the id of the query.
    Takeover(Pause("before Spark starts"), epochs=2, wakes="to new input"),
    Takeover(Pause("after the commit"), epochs=3, give_up_seconds=SHORT_WAIT_SECONDS),
    # The manifest that the driver went on from is deleted by the time it wakes.
    Takeover(Pause("before the commit", 2), epochs=2 + EPOCHS_KEPT + 1, give_up_seconds=SHORT_WAIT_SECONDS),
)


def _takeovers(rng: random.Random) -> Iterator[Takeover]:
    """The fixed ones, then random ones, with every place before one is repeated."""
    yield from FIXED
    while True:
        for point in rng.sample(PLACES, len(PLACES)):
            yield _drawn(rng, point)


def _drawn(rng: random.Random, point: str) -> Takeover:
    pause = Pause(point, 1 if point in ONCE else rng.randint(1, 3))
    epochs = pause.time + rng.choice((1, 2, 4, EPOCHS_KEPT + 2))
    give_up_seconds = rng.choice((LEASE_TIMEOUT_SECONDS, *5 * (SHORT_WAIT_SECONDS,)))
    return Takeover(pause, epochs, rng.choice(("meanwhile", "afterwards", "to new input")), give_up_seconds)


def _is_paused(process: subprocess.Popen[bytes]) -> bool:
    """Wait until a process is stopped by a signal or ends; whether it was stopped."""
    ended = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    return ended is not None and ended.si_code == os.CLD_STOPPED


def _log(root: Path) -> str:
    return (root / "log").read_text()[-3000:]


def _take_over(spark: SparkSession, killable_query: KillableQuery, case: Takeover) -> str:
    """How a driver that was paused has ended after it has woken; its successor runs in this process."""
    begun = killable_query.last_epoch()
    for _ in range(case.epochs):
        killable_query.add()
    pause = case.pause
    if pause.point in IN_TASKS:
        pause = Pause(pause.point, begun + pause.time)
    paused = killable_query.start_pausable(pause)
    successor = None
    try:
        if not _is_paused(paused):
            assert paused.wait() == 0, _log(killable_query.root)
            return "not paused"
        held = killable_query.last_epoch()
        with patch("midstream.storage.lease.LEASE_TIMEOUT_SECONDS", case.give_up_seconds):
            successor = start(spark, killable_query.root)
        if case.wakes == "meanwhile":
            while successor.isActive and killable_query.last_epoch() <= held:
                time.sleep(0.05)
        else:
            successor.awaitTermination()
            killable_query.check()
        assert killable_query.last_epoch() > held
        if case.wakes == "to new input":
            killable_query.add()
        os.killpg(paused.pid, signal.SIGCONT)
        assert paused.wait(timeout=120) in (0, FENCED), _log(killable_query.root)
        successor.awaitTermination()
    finally:
        if successor is not None:
            successor.stop()
        if paused.poll() is None:
            os.killpg(paused.pid, signal.SIGKILL)
            paused.wait()
    assert fsck(LocalStore(str(killable_query.root / "checkpoint"))).problems == ()
    if case.wakes != "to new input":
        killable_query.check()
    return "fenced" if paused.returncode == FENCED else "quiet"


def test_a_driver_that_was_given_up_does_nothing_when_it_wakes(spark, tmp_path):
    killable_query = KillableQuery(tmp_path, epochs=1, seed=11)
    rng = random.Random(int(os.environ.get("PAUSE_SEED", "1")))
    for number, case in enumerate(islice(_takeovers(rng), PAUSES)):
        begin = time.monotonic()
        ended = _take_over(spark, killable_query, case)
        print(f"{number}: {case}: {ended}, {time.monotonic() - begin:.0f} s", flush=True)
        assert number >= len(FIXED) or ended == "fenced"
    # The next driver finds a sound checkpoint, and goes on.
    killable_query.add()
    killable_query.run_here(spark)
    killable_query.check()

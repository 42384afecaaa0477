"""SIGSTOP for real: drivers are paused, JVM and all, given up and succeeded; then they wake and go on.

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

import pytest

from midstream.protocol.coordinator import EPOCHS_KEPT
from midstream.protocol.lease import GIVE_UP_SECONDS
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from tests.spark.killable_query import KillableQuery
from tests.spark.pausable_main import FENCED, ONCE, PLACES, Pause
from tests.spark.process_faults import IN_TASKS

PAUSES = int(os.environ.get("PAUSES", "3"))
IMPATIENT = 2.0
"""Seconds; most successors do not wait as long as those of users."""

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300 + 90 * PAUSES)]


@dataclass(frozen=True)
class Takeover:
    """A driver is paused; another takes over and has some epochs to run; then the first wakes."""

    pause: Pause
    epochs: int
    wakes: Literal["meanwhile", "afterwards", "to new input"] = "afterwards"
    patience: float = GIVE_UP_SECONDS


FIXED = (
    # Nothing is committed yet, not even who the query is.
    Takeover(Pause("before Spark starts"), epochs=2, wakes="to new input"),
    Takeover(Pause("after the commit"), epochs=3, patience=IMPATIENT),
    # What the driver went on from is deleted by the time it wakes.
    Takeover(Pause("before the commit", 2), epochs=2 + EPOCHS_KEPT + 1, patience=IMPATIENT),
)


def _takeovers(rng: random.Random) -> Iterator[Takeover]:
    """The fixed ones, then random ones, which come to every place before they come to one again."""
    yield from FIXED
    while True:
        for point in rng.sample(PLACES, len(PLACES)):
            yield _drawn(rng, point)


def _drawn(rng: random.Random, point: str) -> Takeover:
    pause = Pause(point, 1 if point in ONCE else rng.randint(1, 3))
    epochs = pause.time + rng.choice((1, 2, 4, EPOCHS_KEPT + 2))
    patience = rng.choice((GIVE_UP_SECONDS, *5 * (IMPATIENT,)))
    return Takeover(pause, epochs, rng.choice(("meanwhile", "afterwards", "to new input")), patience)


def _stops(process: subprocess.Popen[bytes]) -> bool:
    """Wait until a process stops or ends; whether it has stopped."""
    ended = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    return ended is not None and ended.si_code == os.CLD_STOPPED


def _log(root: Path) -> str:
    return (root / "log").read_text()[-3000:]


def _take_over(arena: KillableQuery, case: Takeover) -> str:
    """What became of a driver that was paused, once it has woken and ended."""
    begun = arena.last_epoch()
    for _ in range(case.epochs):
        arena.add()
    pause = case.pause
    if pause.point in IN_TASKS:
        pause = Pause(pause.point, begun + pause.time)
    paused = arena.start_sleeper(pause)
    started = [paused]
    try:
        if not _stops(paused):
            assert paused.wait() == 0, _log(arena.root)
            return "not paused"
        held = arena.last_epoch()
        successor = arena.start_sleeper(patience=case.patience)
        started.append(successor)
        if case.wakes == "meanwhile":
            while successor.poll() is None and arena.last_epoch() <= held:
                time.sleep(0.05)
        else:
            arena.finish(successor)
            arena.check()
        assert arena.last_epoch() > held
        if case.wakes == "to new input":
            arena.add()
        os.killpg(paused.pid, signal.SIGCONT)
        assert paused.wait(timeout=120) in (0, FENCED), _log(arena.root)
        arena.finish(successor)
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    assert fsck(LocalStore(str(arena.root / "checkpoint"))).problems == ()
    if case.wakes != "to new input":
        arena.check()
    return "fenced" if paused.returncode == FENCED else "quiet"


def test_a_driver_that_was_given_up_does_nothing_when_it_wakes(tmp_path):
    arena = KillableQuery(tmp_path, epochs=1, seed=11)
    rng = random.Random(int(os.environ.get("PAUSE_SEED", "1")))
    for number, case in enumerate(islice(_takeovers(rng), PAUSES)):
        begin = time.monotonic()
        ended = _take_over(arena, case)
        print(f"{number}: {case}: {ended}, {time.monotonic() - begin:.0f} s", flush=True)
        assert number >= len(FIXED) or ended == "fenced"
    # Whoever starts next finds all in order, and goes on.
    arena.add()
    arena.finish(arena.start())
    arena.check()

"""SIGKILL for real: drivers at random moments and at every crash point, workers, executors."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from midstream.query.query import build_query
from midstream.storage.crash import POINTS
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.testing import Shape, generate, stream
from midstream.values import Micros
from tests.spark.conftest import Feed, check

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

SHAPE = Shape(rows=15, late=0.1, null_keys=0.05)
KILLS = int(os.environ.get("KILLS", "4"))
IN_TASKS = ("before a slice is written", "after a slice is written", "after results are staged")


class Arena:
    """A folder with input in which a query is run and killed."""

    def __init__(self, root: Path, epochs: int, seed: int) -> None:
        self.root = root
        self.epochs = generate(dict.fromkeys("abc", SHAPE), epochs=epochs, seed=seed)
        Feed(None, root / "in").add(*self.epochs)

    def start(
        self, *, victim: str = "nobody", point: str = "", master: str = "local[2]"
    ) -> subprocess.Popen[bytes]:
        program = Path(__file__).with_name("victim.py")
        environment = {
            **{name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ},
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "HOME": str(self.root),
        }
        with (self.root / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, program, self.root, master, victim, point],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def last_epoch(self) -> int:
        manifests = (self.root / "checkpoint" / "manifests").glob("*.json")
        return max((int(path.stem) for path in manifests), default=-1)

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        assert process.wait(timeout=300) == 0, (self.root / "log").read_text()[-3000:]

    def check(self) -> None:
        findings = fsck(LocalStore(str(self.root / "checkpoint")))
        assert findings.problems == ()
        assert findings.epoch == len(self.epochs) - 1
        query = build_query(
            [stream(name, SHAPE) for name in "abc"],
            ["a.k = b.k", "b.k2 = c.k2"],
            everywhere=Micros(8_000_000),
            select=["a.id", "b.id", "c.id"],
        )
        files = sorted((self.root / "out").glob("*.parquet"))
        assert check(query, self.epochs, pa.concat_tables(map(pq.read_table, files))).num_rows > 0


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
def test_an_executor_that_dies_is_replaced_and_its_tasks_repeated(tmp_path):
    arena = Arena(tmp_path, epochs=5, seed=4)
    arena.finish(arena.start(victim="executor", master="local-cluster[2,1,1024]"))
    assert (tmp_path / "killed").exists()
    arena.check()

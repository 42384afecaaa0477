"""Queries in processes of their own, so that they can be killed: see ``victim.py``."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from midstream.query.query import build_query
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.testing import Shape, generate, stream
from midstream.values import Micros
from tests.spark.conftest import Feed, check

SHAPE = Shape(rows=15, late=0.1, null_keys=0.05)


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

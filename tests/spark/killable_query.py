"""Queries in separate processes, to be killed or paused: ``killable_main.py`` and others."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.protocol.lease import LEASE_TIMEOUT_SECONDS
from midstream.query.build import build_query
from midstream.state.manifest import Manifest
from midstream.storage import publish_log
from midstream.storage.fsck import Findings
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.storage.manifest_log import manifests_newest_first, newest_manifest
from midstream.testing import Shape, generate, stream
from midstream.testing.random_streams import SCHEMA
from midstream.values import Micros
from tests.jvm_archive import ensure_jvm_archive
from tests.spark.feed import Feed, noted_epochs
from tests.spark.killable_main import Change
from tests.spark.pausable_main import Pause
from tests.spark.process_faults import Fault, struck
from tests.spark.runner import check

SHAPE = Shape(rows=15, late=0.1, null_keys=0.05)


def hungry_epoch(number: int) -> dict[str, pa.Table]:
    """An epoch that takes megabytes to join in every partition; rows of ``c`` match none of it."""
    shapes = {"a": Shape(rows=2000), "b": Shape(rows=2000), "c": Shape(rows=0)}
    epoch = generate(shapes, epochs=number + 1, seed=6)[number]
    at = SCHEMA.get_field_index("k2")
    for name in "ab":
        epoch[name] = epoch[name].set_column(at, "k2", pa.array(["nobody's"] * epoch[name].num_rows))
    return epoch


class KillableQuery:
    """A folder with input in which a query is run and killed."""

    def __init__(self, root: Path, epochs: int, seed: int) -> None:
        self.root = root
        self.seed = seed
        self.feed = Feed(None, root / "in")
        self.feed.add(*generate(dict.fromkeys("abc", SHAPE), epochs=epochs, seed=seed))

    def add(self, epoch: Mapping[str, pa.Table] | None = None) -> None:
        """Add an epoch of input; without an argument, one like the others."""
        number = len(self.feed.epochs)
        self.feed.add(epoch or generate(dict.fromkeys("abc", SHAPE), epochs=number + 1, seed=self.seed)[-1])

    def start(
        self,
        *,
        point: str = "",
        phase: str = "",
        faults: Sequence[Fault] = (),
        migrations: Sequence[Change] = (),
        options: Mapping[str, str | int] = MappingProxyType({}),
        master: str = "local[2]",
    ) -> subprocess.Popen[bytes]:
        given = json.dumps(faults), json.dumps(migrations), json.dumps(dict(options))
        return self._run("killable_main", master, point, phase, *given)

    def start_pausable(
        self, pause: Pause | None = None, give_up_seconds: float = LEASE_TIMEOUT_SECONDS
    ) -> subprocess.Popen[bytes]:
        """Start a driver that pauses itself, and that gives up others after ``give_up_seconds`` seconds."""
        return self._run("pausable_main", json.dumps(pause), str(give_up_seconds))

    def start_replaceable(self, definition: str, point: str = "", phase: str = "") -> subprocess.Popen[bytes]:
        """Start a driver with the old definition or the new one; it may die while one replaces the other."""
        return self._run("replaceable_main", definition, point, phase)

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        ensure_jvm_archive()
        environment = {
            **{name: os.environ[name] for name in ("PATH", "JAVA_HOME", "PYTHONPATH") if name in os.environ},
            "SPARK_LOCAL_IP": "127.0.0.1",
            "HOME": str(self.root),
        }
        with (self.root / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"tests.spark.{program}", self.root, *arguments],
                cwd=Path(__file__).parents[2],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def manifest(self) -> Manifest:
        """What is committed."""
        manifest = newest_manifest(LocalStore(str(self.root / "checkpoint")))
        assert manifest is not None
        return manifest

    def last_epoch(self) -> int:
        newest = next(manifests_newest_first(LocalStore(str(self.root / "checkpoint"))), None)
        return -1 if newest is None else newest.epoch

    def epoch_phase(self) -> str:
        """Which part of an epoch the query has reached, by what it and Spark have written."""
        committed, spark = self.last_epoch(), self.root / "checkpoint" / "spark"
        noted = publish_log.noted_epochs(LocalStore(str(self.root / "checkpoint")))
        if not publish_log.is_published(noted, committed):
            return "committed, not published"
        if not (spark / "commits" / str(committed)).exists():
            return "published, not noted by Spark"
        begun = (spark / "offsets" / str(committed + 1)).exists()
        return "begun, not committed" if begun else "between epochs"

    def struck(self) -> set[str]:
        return struck(self.root / "struck")

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        assert process.wait(timeout=300) == 0, (self.root / "log").read_text()[-3000:]

    def check(self) -> Findings:
        findings = fsck(LocalStore(str(self.root / "checkpoint")))
        assert findings.problems == ()
        epochs = noted_epochs(self.feed, self.root / "checkpoint")
        assert findings.epoch == len(epochs) - 1 + self.manifest().epochs_without_batch
        assert _rows(epochs) == _rows(self.feed.epochs)
        query = build_query(
            [stream(name, SHAPE) for name in "abc"],
            ["a.k = b.k", "b.k2 = c.k2"],
            default_window=Micros(8_000_000),
            select=["a.id", "b.id", "c.id"],
        )
        files = sorted((self.root / "out").glob("*.parquet"))
        got = pa.concat_tables(map(pq.read_table, files))
        assert check(query, epochs, got).num_rows > 0
        return findings


def _rows(epochs: Sequence[Mapping[str, pa.Table]]) -> int:
    return sum(table.num_rows for epoch in epochs for table in epoch.values())

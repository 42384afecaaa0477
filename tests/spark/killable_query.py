"""Queries in separate processes, to be killed or paused: ``killable_main.py`` and others."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.storage import publish_log
from midstream.storage.fsck import Findings
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.storage.manifest_log import manifests_newest_first, newest_manifest
from midstream.testing import Shape, accept, assert_same_rows, generate, stream
from midstream.testing.random_streams import SCHEMA
from midstream.values import Micros
from tests.jvm_archive import ensure_jvm_archive
from tests.replace.replacement_run import results_between
from tests.spark.driver_course import Change, DriverCourse, Life
from tests.spark.feed import Feed, input_of_batches
from tests.spark.killable_main import DEFINITIONS, SELECTED, start
from tests.spark.pausable_main import Pause
from tests.spark.process_faults import struck
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

    def start(self, life: Life | None = None) -> subprocess.Popen[bytes]:
        """Start a driver in a process of its own."""
        return self._start("killable_main", (life or Life()).to_json())

    def start_pausable(self, pause: Pause) -> subprocess.Popen[bytes]:
        """Start a driver that pauses itself."""
        return self._start("pausable_main", json.dumps(pause))

    def run_here(self, spark: SparkSession, *changes: Change, definition: str = "old") -> None:
        """Run the query to its end in this process; a driver that was killed had another one."""
        course = DriverCourse(Life(changes=changes))
        course.run(lambda: start(spark, self.root, definition=definition))
        assert course.changes == []

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        ensure_jvm_archive()
        environment = {
            **{
                name: os.environ[name]
                for name in ("PATH", "JAVA_HOME", "PYTHONPATH", "TMPDIR")
                if name in os.environ
            },
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

    def check(self, until: int | None = None) -> Findings:
        """The checkpoint is sound, and results are right: from ``until`` on, those of the new definition."""
        findings = fsck(LocalStore(str(self.root / "checkpoint")))
        assert findings.problems == ()
        epochs = input_of_batches(self.feed, self.root / "checkpoint")
        assert findings.epoch == len(epochs) - 1 + self.manifest().epochs_without_batch
        assert _rows(epochs) == _rows(self.feed.epochs)
        files = sorted((self.root / "out").glob("*.parquet"))
        got = pa.concat_tables(map(pq.read_table, files))
        if until is None:
            assert check(_query("old"), epochs, got).num_rows > 0
            return findings
        of_old = _results("old", epochs, None, until)
        of_new = _results("new", epochs, until, None)
        assert min(of_old.num_rows, of_new.num_rows) > 50
        assert_same_rows(got, pa.concat_tables([of_old, of_new]))
        return findings


def _query(definition: str) -> Query:
    on, seconds = DEFINITIONS[definition]
    streams = [stream(name, SHAPE) for name in "abc"]
    window = Micros(seconds * 1_000_000)
    return build_query(streams, on, default_window=window, select=SELECTED)


def _results(
    definition: str, epochs: Sequence[Mapping[str, pa.Table]], since: int | None, until: int | None
) -> pa.Table:
    query = _query(definition)
    return results_between(query, accept(query, epochs).tables(query), since, until)


def _rows(epochs: Sequence[Mapping[str, pa.Table]]) -> int:
    return sum(table.num_rows for epoch in epochs for table in epoch.values())

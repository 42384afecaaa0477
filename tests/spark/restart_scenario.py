"""A query that has run and stopped, in a folder of its own, to be started again with changes."""

import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from midstream import Join
from midstream.storage.local import LocalStore
from midstream.storage.manifest_log import newest_manifest
from tests.helpers import digests
from tests.spark.feed import Feed
from tests.spark.runner import Runner, check

LATENESS = "5 seconds"
WINDOW = "15 seconds"
EQUAL = ("a.k = b.k", "b.k = c.k")
CONDITION = "a.v <> b.v"
SELECT = ("a.id", "b.id", "c.v")
PLAN, PARTITIONS, GROUPS = "(a b) c", 2, 16


@dataclass
class RestartScenario:
    """A query that has run and stopped, with more input waiting; a test starts it again with one change."""

    feed: Feed
    runner: Runner
    late: Path

    def join(self, *, order="abc", times=None, lateness=LATENESS, on=(*EQUAL, CONDITION), select=SELECT):
        join = Join(self.feed.spark)
        for name in order:
            frame = self.feed.df(name)
            time = (times or {}).get(name, "t")
            frame = frame if time == "t" else frame.withColumn(time, frame.t)
            join = join.stream(name, frame, time=time, lateness=lateness if name == "a" else LATENESS)
        return join.on(*on).within(WINDOW).select(*select)

    def writer(self, join, **options):
        writer = join.writeStream.option("checkpointLocation", self.runner.checkpoint)
        return writer.options(**options).trigger(availableNow=True)

    def start(self, join, **options):
        options = {"path": self.runner.out, "lateRows": self.late, "adapt": "off", **options}
        return self.writer(join, **options).format("parquet").start()

    def check(self, *folders: Path) -> None:
        """The results in all folders together are those of a query without a change."""
        files = [path for folder in folders for path in sorted(folder.glob("*.parquet"))]
        want = check(self.join().query(), self.feed.epochs, pa.concat_tables(map(pq.read_table, files)))
        assert want.num_rows > 0

    def files(self) -> dict[str, str]:
        # A last beat of the lease may still be on its way to its name; what stays has been left behind.
        temporary = self.runner.checkpoint / "temporary"
        give_up = time.monotonic() + 5
        while temporary.is_dir() and any(temporary.iterdir()) and time.monotonic() < give_up:
            time.sleep(0.05)
        return digests(self.runner.checkpoint) | digests(self.runner.out) | digests(self.late)

    def unpublish(self) -> None:
        """Put the files of the last epoch back to where they were staged."""
        manifest = newest_manifest(LocalStore(str(self.runner.checkpoint)))
        assert manifest is not None
        for output in manifest.outputs:
            folder = self.runner.out if output.table == "results" else self.late
            (folder / output.published).rename(folder / "_staged" / output.staged)
        for marker in (self.runner.checkpoint / "published").iterdir():
            marker.unlink()

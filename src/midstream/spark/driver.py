"""The driver of a running query: what happens in each micro-batch, in the order that makes it exactly once.

1. the lease is still ours, and the program of the epoch follows from the last manifest;
2. one Spark job runs the stages; tasks write new slices and stage results, and report;
3. the sink prepares (``foreachBatch``: the user's function);
4. the lease is still ours, and the manifest is committed: before this nothing has happened, after it
   everything has;
5. the sink publishes; old files are deleted; Spark commits its offsets when we return.

A crash before 4 leaves files that nobody names; the epoch runs again with the same rows. A crash after 4
leaves at most publishing to do, which the next start or the same batch, run again, finishes.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from midstream.engine.program import Program
from midstream.errors import CheckpointError, MidstreamError, error_from
from midstream.protocol.coordinator import Coordinator, expendable
from midstream.protocol.events import events_of
from midstream.protocol.report import Report, add_reports
from midstream.spark.progress import describe_epoch
from midstream.spark.sinks import Sink
from midstream.spark.tasks import ERROR, MESSAGE, REPORT, stage_task
from midstream.state.manifest import Manifest
from midstream.storage.lease import Lease
from midstream.storage.manifests import commit_manifest, forget_manifests
from midstream.storage.output import ParquetWriter
from midstream.storage.slices import FOLDER as SLICES
from midstream.storage.store import Store

PROGRESS_KEPT = 100
PUBLISHED = "published"
_log = logging.getLogger("midstream")


class Driver:
    """Runs the epochs of one query; Spark calls it with each micro-batch."""

    def __init__(
        self,
        coordinator: Coordinator,
        manifest: Manifest,
        store: Store,
        sink: Sink,
        writer: ParquetWriter,
        lease: Lease,
    ) -> None:
        self.coordinator = coordinator
        self.manifest = manifest
        self.progress: deque[dict[str, Any]] = deque(maxlen=PROGRESS_KEPT)
        self.error: MidstreamError | None = None
        self.identity: dict[str, str | None] = {}
        self.lease = lease
        self._store = store
        self._sink = sink
        self._writer = writer

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """One micro-batch; what goes wrong is kept, because Spark passes on only its text."""
        try:
            self._epoch(batch, batch_id)
        except MidstreamError as error:
            self.error = error
            raise

    @property
    def keeps_late_rows(self) -> bool:
        """Whether late rows are written, which then need all their columns."""
        return self._writer.late_table is not None

    def recover(self) -> None:
        """On start: finish publishing the last epoch, and clear away what was never committed."""
        self._publish(self.manifest)
        for table in self._tables():
            table.sweep(())
        used = {s.name for s in self.manifest.slices} | {r.name for r in self.manifest.retired}
        for name in self._store.list(SLICES):
            if name.removeprefix(f"{SLICES}/") not in used:
                self._store.delete(name)

    def _epoch(self, batch: DataFrame, batch_id: int) -> None:
        before = self.manifest
        if batch_id <= before.epoch:
            # Spark had not noted that this batch was done. It was: its manifest is there.
            self._publish(before)
            return
        if batch_id != before.epoch + 1:
            raise CheckpointError(
                f"the next batch must be {before.epoch + 1}, the one after the last manifest",
                got=batch_id,
                hint="the folder 'spark' of the checkpoint does not belong to its manifests; restore both",
            )
        self.lease.check()
        clock = _Clock()
        program = self.coordinator.program(before)
        report = clock.time("step", partial(self._run, program, batch))
        results = [output for output in report.outputs if output.table == "results"]
        prepare = partial(self._sink.prepare, batch.sparkSession, batch_id, results)
        clock.time("sink", prepare)
        after = self.coordinator.commit(before, program, report)
        self.lease.check()
        clock.time("commit", partial(commit_manifest, self._store, after))
        self.manifest = after
        clock.time("publish", partial(self._publish, after))
        clock.time("clean", partial(self._clean, before, after))
        events = events_of(self.coordinator.query, before, after)
        for event in events:
            _log.warning("batch %d: %s", batch_id, event["message"])
        now = datetime.now(UTC)
        self.progress.append(describe_epoch(self.identity, after, report, events, clock.millis(), now))

    def _run(self, program: Program, batch: DataFrame) -> Report:
        """One Spark job: a shuffle and a stage for each level of the layout."""
        partitions = self.coordinator.settings.partitions
        rows = batch
        for stage in range(program.layout.stages):
            task = stage_task(program, stage, self._store, self._writer)
            rows = rows.repartitionById(partitions, F.col("partition")).mapInArrow(task, MESSAGE)
        with _one_job(batch.sparkSession):
            messages = rows.filter(F.col("input").isin(REPORT, ERROR)).select("input", "blob").collect()
        for message in messages:
            if message.input == ERROR:
                raise error_from(msgspec.json.decode(message.blob))
        return add_reports(bytes(message.blob) for message in messages)

    def _publish(self, manifest: Manifest) -> None:
        """Publish what an epoch staged, once: readers may have moved files away since."""
        marker = f"{PUBLISHED}/{manifest.epoch:012d}"
        markers = self._store.list(PUBLISHED)
        if marker in markers or manifest.epoch < 0:
            return
        results = [output for output in manifest.outputs if output.table == "results"]
        self._sink.publish(manifest.epoch, results)
        if self._writer.late_table is not None:
            self._writer.late_table.publish(o for o in manifest.outputs if o.table == "late")
        self._store.put(marker, b"")
        for name in markers:
            self._store.delete(name)

    def _clean(self, before: Manifest, after: Manifest) -> None:
        for name in expendable(before, after):
            self._store.delete(f"{SLICES}/{name}")
        forget_manifests(self._store, after.epoch)

    def _tables(self) -> list[Any]:
        late = self._writer.late_table
        return [self._sink.table, *([late] if late is not None else [])]


@contextmanager
def _one_job(session: SparkSession) -> Iterator[None]:
    """Without adaptive execution, which would run each stage as a job and has nothing to adapt here.

    The session is the one that a user's ``foreachBatch`` function gets, so the setting is put back.
    """
    name = "spark.sql.adaptive.enabled"
    before = str(session.conf.get(name))
    session.conf.set(name, "false")
    try:
        yield
    finally:
        session.conf.set(name, before)


class _Clock:
    """Times the parts of an epoch."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._parts: dict[str, float] = {}

    def time(self, name: str, part: partial[Any]) -> Any:
        begin = time.perf_counter()
        result = part()
        self._parts[name] = 1000 * (time.perf_counter() - begin)
        return result

    def millis(self) -> Mapping[str, float]:
        return {"total": 1000 * (time.perf_counter() - self._begin), **self._parts}

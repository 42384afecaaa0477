"""Running epochs: the order in which each becomes part of the committed truth, the same in every shell.

1. the intent is written, or read back if the epoch was begun before; the program follows from it and the last
   manifest;
2. the shell runs the stages; tasks write new slices and stage results, and report;
3. the sink prepares (``foreachBatch``: the user's function);
4. the manifest is committed: before this nothing has happened, after it everything has;
5. the publish log notes which files are published, and they are; files that are no longer needed are deleted.

A crash before 4 leaves files that no manifest names; the epoch runs again with the same rows. A crash after 4
leaves at most publishing to do, which the next start finishes, or the same epoch when it runs again.

A driver may have been fenced at any point without knowing it. :mod:`midstream.protocol.lease` says why it
can then do no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace as replace_field
from itertools import takewhile
from typing import TypeVar

from msgspec.structs import replace

from midstream.engine.migration_step import MigrationStep
from midstream.engine.program import Program, ReplacementStep, RunIdentity
from midstream.errors import CheckpointError, MigrationError, StreamError
from midstream.migration.request import MigrationRequest
from midstream.protocol.coordinator import EPOCHS_KEPT, deletable_slices
from midstream.protocol.intent import Intent
from midstream.protocol.lease import LeaseHandle
from midstream.protocol.measurements import measurements_of
from midstream.protocol.report import Report
from midstream.query.query import Query
from midstream.replace.query_coordinator import QueryCoordinator
from midstream.replace.request import QuerySnapshot
from midstream.runtime.check_intent import check_of_this_query
from midstream.runtime.crash_points import crash_point
from midstream.runtime.next_changes import with_changes
from midstream.runtime.plan_decider import Decide, PlanDecider, TimedDecision
from midstream.runtime.shell import EpochExecution, Publisher
from midstream.state.adaptation import Verdict
from midstream.state.costs import Measurement
from midstream.state.manifest import Manifest
from midstream.state.replacement import ReplacementRequest
from midstream.storage.intents import (
    delete_intent,
    find_intent,
    replace_intent,
    stale_intents,
    write_or_read_intent,
)
from midstream.storage.manifest_log import (
    Committed,
    commit_manifest,
    delete_manifests,
    files_by_epoch,
    manifest_name,
    manifests_newest_first,
    sweep_manifests,
)
from midstream.storage.numbered_requests import NumberedRequests
from midstream.storage.publish_log import begin_publishing
from midstream.storage.request_queue import RequestQueue
from midstream.storage.slice_files import FOLDER as SLICES
from midstream.storage.slice_files import lease_of
from midstream.storage.store import TEMPORARY, Store

R = TypeVar("R")


class EpochRunner:
    """Runs the epochs of one query and commits each to its store."""

    def __init__(
        self,
        *,
        store: Store,
        coordinator: QueryCoordinator,
        committed: Committed,
        publisher: Publisher,
        lease: LeaseHandle,
        run: str,
        decider: Callable[[Decide], PlanDecider],
    ) -> None:
        """``run`` names this run of the query, ``decider`` says when it decides about its plan."""
        self.store = store
        self.coordinator = coordinator
        self.manifest = committed.manifest
        self.millis: dict[str, float] = {}
        self.migration_step: MigrationStep | None = None
        """What the last epoch did about a migration."""
        self.replacement_step: ReplacementStep | None = None
        self._digest = committed.digest
        self._publisher = publisher
        self._lease = lease
        self.requests = RequestQueue(store, coordinator.query, coordinator.settings)
        self._run_identity = RunIdentity(self.manifest.id, lease.number, run)
        self._decider = decider(self._decide)
        self._measurements: tuple[Measurement, ...] | None = None
        """What the last epoch took; None before the first of this run, which takes longer than others."""
        self._deciding_ms = 0.0
        """How long the last decision took."""
        self._left_behind: list[str] | None = []
        """Temporary files of earlier runs; None once they are deleted."""
        self._manifest_files: dict[int, list[str]] = {}
        """The manifests that are kept, by epoch."""
        self._is_published = False
        """Whether the results of the last epoch are published."""

    def _decide(self, manifest: Manifest) -> Verdict | None:
        """What is decided by the current coordinator: a replacement has another one."""
        return self.coordinator.decide(manifest)

    def bind(self, source: str) -> None:
        """Refuse another source than before: the numbers of epochs are its own."""
        if self.manifest.epoch < 0:
            self.manifest = replace(self.manifest, spark_query=source)
        elif self.manifest.spark_query != source:
            raise CheckpointError(
                "the folder 'spark' of a checkpoint must be the one that its manifests were made with",
                got=f"query {source} instead of {self.manifest.spark_query}",
                hint="restore the whole checkpoint, or start a new query with another checkpointLocation",
            )

    def recover(self) -> None:
        """On start: finish publishing the last epoch, and find what the last run has left behind."""
        self.publish()
        self.requests.load(self.manifest, find_intent(self.store, self.manifest.epoch + 1))
        self._rescale_to_settings()
        # No driver before us can commit any more. If our first commit succeeds, no driver after us had taken
        # over yet, so what is listed now is not theirs and may be deleted then.
        self._left_behind = self.store.list(TEMPORARY)
        oldest_kept = self.manifest.epoch - EPOCHS_KEPT + 1
        kept = list(takewhile(lambda n: n.epoch >= oldest_kept, manifests_newest_first(self.store)))
        self._manifest_files = files_by_epoch(reversed(kept))
        self._decider.begin(self.manifest)

    def close(self) -> None:
        """The query ends."""
        self._decider.close()

    @property
    def running(self) -> QuerySnapshot:
        """The query as a request finds it; while the lock of the requests is held, it stays so."""
        with self.requests.lock:
            manifest = self.manifest
            partitions = self.requests.most_partitions(manifest)
            asked = self.requests.asked_replacement(manifest)
            return QuerySnapshot(self.coordinator, manifest, partitions, asked)

    def request_migration(self, request: MigrationRequest) -> None:
        """Keep a request for another plan until no migration is under way; the newest one counts.

        If this fails, the request may have been kept nevertheless.
        """
        with self.requests.lock:
            self.requests.check_no_replacement(self.manifest)
            self.requests.check_plan(self.manifest, request.plan)
            self._keep(self.requests.plans, request)

    def request_replacement(self, request: ReplacementRequest, query: Query | None = None) -> None:
        """Keep a request for another definition, that of ``query``, or for another plan alone.

        It was made of what is ``running``, and the lock of the requests is held since then.
        """
        with self.requests.lock:
            if query is not None:
                self.coordinator = self.coordinator.with_candidate(query)
            self._keep(self.requests.replacements, request)

    def request_rescale(self, partitions: int) -> None:
        """Keep a request for another number of engine partitions; the newest one counts."""
        with self.requests.lock:
            self.requests.check_partitions(self.manifest, partitions)
            self._keep(self.requests.partitions, partitions)

    def _keep(self, requests: NumberedRequests[R], request: R) -> None:
        self._lease.check()
        with self._fenced_or_damaged():
            requests.add(request)
        # A driver that had taken over before may not have seen it, or have applied one with its number.
        self._lease.check()

    def _rescale_to_settings(self) -> None:
        """Request the number of partitions that the query is started with, if it would get another one."""
        # At sites, these say how many there are.
        asked = None if self.coordinator.query.topology else self.coordinator.settings.partitions
        if asked is not None and asked != self.requests.next_partitions(self.manifest):
            self.request_rescale(asked)

    def new_intent(
        self,
        now: int,
        background_epochs: int | None,
        decided: TimedDecision | None = None,
        *,
        drains: bool = False,
        without_batch: bool = False,
    ) -> Intent:
        """What the next epoch depends on, if it was not begun before."""
        intent = Intent(
            query=self.manifest.id,
            epoch=self.manifest.epoch + 1,
            now=now,
            settings=self.coordinator.settings,
            background_epochs=background_epochs,
            measurements=self._measurements or (),
            drains=drains,
            without_batch=without_batch,
            first=self.manifest if self.manifest.epoch < 0 else None,
        )
        return with_changes(intent, self.coordinator, self.manifest, self.requests, decided)

    def run_epoch(
        self, shell: EpochExecution, now: int, background_epochs: int | None = None, *, drains: bool = False
    ) -> Report | None:
        """Run the next epoch with a batch, and commit it; None if it was begun as one without a batch.

        ``now`` is the wall-clock time in microseconds since 1970, ``background_epochs`` limits what is
        computed in the background, and an epoch that ``drains`` makes what spilled groups owe; all of them
        are ignored if the epoch was begun before.
        """
        with self._fenced_or_damaged():
            return self._run_epoch(shell, now, background_epochs, drains=drains)

    def run_drain_epoch(self, shell: EpochExecution, now: int) -> Report | None:
        """Run an epoch without a batch, only what spilled groups owe; None if it was begun with one."""
        with self._fenced_or_damaged():
            # What a migration computes in the background is for the time that batches leave.
            return self._run_epoch(shell, now, 0, drains=True, without_batch=True)

    def _run_epoch(
        self,
        shell: EpochExecution,
        now: int,
        background_epochs: int | None,
        *,
        drains: bool = False,
        without_batch: bool = False,
    ) -> Report | None:
        begin = time.perf_counter()
        self.millis = {}
        before = self.manifest
        self._lease.check()
        if not self._is_published:
            # A drain has failed after its commit, and the query goes on.
            self.publish()
        decided = self._decider.take()
        self._deciding_ms = self._deciding_ms if decided is None else decided.millis
        new = self.new_intent(now, background_epochs, decided, drains=drains, without_batch=without_batch)
        intent = write_or_read_intent(self.store, new)
        check_of_this_query(intent, self.manifest)
        self.requests.skip_numbers_through(intent)
        crash_point("after the intent is written")
        if intent.without_batch != without_batch:
            # A drain that failed, or another driver, has begun it: its number is taken, for other rows.
            return None
        program = self._program(intent)
        crash_point("before the step")
        with self._timed("step"):
            program, report = self._run_stages(shell, intent, program)
        self.migration_step, self.replacement_step = program.migration_step, program.replacement
        crash_point("after the step")
        # A driver that has taken over runs the epoch as well: the sink need not get it twice.
        self._lease.check()
        with self._timed("sink"):
            shell.prepare(program, report)
        crash_point("after the sink prepared")
        after = self.coordinator.commit(before, intent, program, report)
        after = replace(after, previous=self._digest, lease=self._lease.number)
        crash_point("before the commit")
        with self._timed("commit"):
            self._commit(after)
        crash_point("after the commit")
        self._decider.begin(after)
        learns = self._measurements is not None and program.replacement is None
        self._measurements = measurements_of(program, report) if learns else ()
        self._run_identity = self._add_written(report)
        with self._timed("publish"):
            self.publish()
        with self._timed("clean"):
            self.requests.delete_applied(after)
            self._clean(before)
        self.millis |= {"total": 1000 * (time.perf_counter() - begin), "decide": self._deciding_ms}
        return report

    def _program(self, intent: Intent, *, decides: bool = True) -> Program:
        program = self.coordinator.program(self.manifest, intent, decides=decides)
        return program.run_by(self._run_identity)

    def _run_stages(self, shell: EpochExecution, intent: Intent, program: Program) -> tuple[Program, Report]:
        try:
            return program, shell.run(program)
        except MigrationError:
            if intent.request is not None or not (
                program.migration_step is not None and program.migration_step.begins
            ):
                # It would fail again after every restart, and a request cannot be withdrawn: the epoch runs
                # again without it, and counts it as applied.
                replace_intent(self.store, replace(intent, request=None))
                raise
        # The query itself had decided to migrate: the epoch runs without the migration.
        without_decision = self._program(intent, decides=False)
        return without_decision, shell.run(without_decision)

    def _commit(self, manifest: Manifest) -> None:
        with self._lease.holding():
            # The manifest is as large as the state is divided: it is encoded once.
            self._digest = commit_manifest(self.store, manifest)
        self._manifest_files[manifest.epoch] = [manifest_name(manifest.lease, manifest.epoch)]
        self._is_published = False
        # A request of another thread is checked against both, and may bring another definition.
        with self.requests.lock:
            self.manifest = manifest
            self.coordinator = self.coordinator.after(manifest)
            self.requests.set_query(self.coordinator.query)

    def _add_written(self, report: Report) -> RunIdentity:
        """The writer with the slices that tasks of this run have written and that are in use."""
        slices = report.slices + (report.successor.slices if report.successor is not None else ())
        written = self._run_identity.written | {slice_.name for slice_ in slices}
        return replace_field(self._run_identity, written=written & {s.name for s in self.manifest.all_slices})

    def publish(self) -> None:
        """Publish the results of the last epoch, unless they are published."""
        publication = begin_publishing(self.store, self.manifest)
        if publication is not None:
            crash_point("after noting what is published")
            self._publisher.publish(self.manifest.epoch, publication.outputs)
            crash_point("after publishing")
            for name in publication.earlier_notes:
                self.store.delete(name)
            crash_point("after noting that it was published")
        self._is_published = True

    def _clean(self, before: Manifest) -> None:
        if self._left_behind is not None:
            self._sweep(self._left_behind)
        for name in deletable_slices(before, self.manifest):
            self.store.delete(f"{SLICES}/{name}")
            crash_point("after deleting a slice")
        delete_intent(self.store, before.epoch)
        delete_manifests(self.store, self._manifest_files.pop(self.manifest.epoch - EPOCHS_KEPT, ()))
        crash_point("after forgetting a manifest")

    def _sweep(self, left_behind: list[str]) -> None:
        """Delete what abandoned attempts have left behind, after our first commit."""
        self._publisher.sweep()
        used = {s.name for s in self.manifest.all_slices} | {r.name for r in self.manifest.all_retired}
        for name in self.store.list(SLICES):
            if name.rpartition("/")[2] not in used and lease_of(name) <= self._lease.number:
                self.store.delete(name)
        for name in (*left_behind, *stale_intents(self.store, self.manifest.epoch)):
            self.store.delete(name)
        sweep_manifests(self.store, self.manifest.epoch)
        self._left_behind = None

    @contextmanager
    def _fenced_or_damaged(self) -> Iterator[None]:
        """If a file is missing and this driver was fenced, say so: the one that took over deleted it."""
        try:
            yield
        except (CheckpointError, StreamError):
            self._lease.check()
            raise

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.millis[part] = 1000 * (time.perf_counter() - begin)

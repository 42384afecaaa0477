"""The ledger: the order in which an epoch becomes part of the committed truth, the same in every shell.

1. the lease is still ours, and the program of the epoch follows from the last manifest;
2. the shell runs the stages; tasks write new slices and stage results, and report;
3. the sink prepares (``foreachBatch``: the user's function);
4. the lease is still ours, and the manifest is committed: before this nothing has happened, after it
   everything has;
5. results are published, which is noted; files that nobody needs any more are deleted.

A crash before 4 leaves files that nobody names; the epoch runs again with the same rows. A crash after 4
leaves at most publishing to do, which the next start, or the same epoch, run again, finishes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace as replace_field
from typing import Protocol

from msgspec.structs import replace

from midstream.engine.program import Course, Program
from midstream.errors import CheckpointError, MigrationError
from midstream.migration.request import Request
from midstream.protocol.coordinator import Coordinator, expendable
from midstream.protocol.report import Report
from midstream.state.manifest import Manifest
from midstream.storage.crash import reach
from midstream.storage.manifests import commit_manifest, forget_manifests, sweep_manifests
from midstream.storage.requests import Requests
from midstream.storage.slices import FOLDER as SLICES
from midstream.storage.store import TEMPORARY, Store

PUBLISHED = "published"


class Shell(Protocol):
    """What differs between shells: how an epoch is run, and where its results go."""

    def run(self, program: Program) -> Report:
        """Run the stages of an epoch and add up what their partitions report."""

    def prepare(self, epoch: int, report: Report) -> None:
        """Before the commit: hand results to whoever takes them themselves. May be repeated."""

    def publish(self, manifest: Manifest) -> None:
        """After the commit: make results visible. May be repeated."""

    def sweep(self) -> None:
        """Remove what attempts that were given up have staged; all that was committed is published."""


class Ledger:
    """The committed truth of one query in a store."""

    def __init__(
        self,
        store: Store,
        coordinator: Coordinator,
        manifest: Manifest,
        *,
        run: str = "",
        fence: Callable[[], None] = lambda: None,
    ) -> None:
        """``run`` names this run of the query; ``fence`` raises once another driver has taken over."""
        self.store = store
        self.coordinator = coordinator
        self.manifest = manifest
        self.millis: dict[str, float] = {}
        self.course: Course | None = None
        """What the last epoch did about plans."""
        self._requests = Requests(store, coordinator.query)
        self._run = run
        self._began = manifest.epoch + 1
        self._fence = fence
        self._swept = False

    def bind(self, source: str) -> None:
        """Hold the source of the epochs to what it was: its numbers mean something only with it."""
        if self.manifest.epoch < 0:
            self.manifest = replace(self.manifest, source=source)
        elif self.manifest.source != source:
            raise CheckpointError(
                "the folder 'spark' of a checkpoint must be the one that its manifests were made with",
                got=f"query {source} instead of {self.manifest.source}",
                hint="restore the whole checkpoint, or start a new query with another checkpointLocation",
            )

    def recover(self, shell: Shell) -> None:
        """On start: finish publishing the last epoch, and find a request that was not heeded yet."""
        self.publish(shell)
        self._requests.find(self.manifest)

    def ask(self, request: Request) -> None:
        """Keep a request for another plan until no migration is under way; the newest one counts."""
        self._fence()
        self._requests.ask(request)

    def epoch(self, shell: Shell, pace: int | None = None) -> Report:
        """Run the next epoch and commit it; ``pace`` limits what is computed in the background."""
        begin = time.perf_counter()
        self.millis = {}
        before = self.manifest
        self._fence()
        number, request = self._requests.begin(before)
        program = self.coordinator.program(before, request, pace)
        program = replace_field(program, heeded=number, run=self._run, began=self._began)
        reach("before the step")
        with self._timed("step"):
            program, report = self._run_step(shell, before, program, pace)
        self.course = program.course
        reach("after the step")
        with self._timed("sink"):
            shell.prepare(program.epoch, report)
        reach("after the sink prepared")
        after = self.coordinator.commit(before, program, report)
        self._fence()
        reach("before the commit")
        with self._timed("commit"):
            commit_manifest(self.store, after)
        self.manifest = after
        reach("after the commit")
        with self._timed("publish"):
            self.publish(shell)
        with self._timed("clean"):
            # The manifest before this one may yet be gone back to, and what it had not heeded with it.
            self._requests.forget(before.heeded)
            self._clean(shell, before, after)
        self.millis = {"total": 1000 * (time.perf_counter() - begin), **self.millis}
        return report

    def _run_step(
        self, shell: Shell, before: Manifest, program: Program, pace: int | None
    ) -> tuple[Program, Report]:
        try:
            return program, shell.run(program)
        except MigrationError:
            if program.asked or not program.course.begins:
                # It would fail again after every restart, and nobody could take it back.
                self._requests.forget(program.heeded)
                raise
        # It was only the query's own idea: the epoch goes on without.
        stays = self.coordinator.program(before, None, pace, decides=False)
        stays = replace_field(stays, heeded=program.heeded, run=self._run, began=self._began)
        return stays, shell.run(stays)

    def publish(self, shell: Shell) -> None:
        """Publish what the last epoch staged, once: readers may have moved files away since."""
        marker = f"{PUBLISHED}/{self.manifest.epoch:012d}"
        markers = self.store.list(PUBLISHED)
        if marker in markers or self.manifest.epoch < 0:
            return
        shell.publish(self.manifest)
        reach("after publishing")
        self.store.put(marker, b"")
        reach("after noting that it was published")
        for name in markers:
            self.store.delete(name)

    def _clean(self, shell: Shell, before: Manifest, after: Manifest) -> None:
        if not self._swept:
            # Not before our first commit: until then a driver that was given up might still commit.
            self._sweep(shell)
        for name in expendable(before, after):
            self.store.delete(f"{SLICES}/{name}")
            reach("after deleting a slice")
        forget_manifests(self.store, after.epoch)
        reach("after forgetting a manifest")

    def _sweep(self, shell: Shell) -> None:
        """Clear away what attempts that were given up have left behind."""
        shell.sweep()
        with self._requests.lock:
            self._sweep_files()
        sweep_manifests(self.store, self.manifest.epoch)
        self._swept = True

    def _sweep_files(self) -> None:
        used = {s.name for s in self.manifest.slices} | {r.name for r in self.manifest.retired}
        for name in (*self.store.list(SLICES), *self.store.list(TEMPORARY)):
            if name.rpartition("/")[2] not in used:
                self.store.delete(name)

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.millis[part] = 1000 * (time.perf_counter() - begin)

"""What the simulator holds a run to: each promise, how it is checked, and the error that names it.

| promise        | what must hold                                                                         |
| -------------- | -------------------------------------------------------------------------------------- |
| *prefix*       | after every commit, what is published are the results of the batch join of the epochs  |
|                | so far, and the late rows of these epochs: nothing lost, nothing twice, nothing else;  |
|                | while a migration by parallel track keeps some back, those that wait complete them     |
| *conservation* | every row is late, without a time, without a key, in the state, or expired; what has   |
|                | expired could be in no later result                                                    |
| *replay*       | an epoch that is run again goes by the same intent, and writes the same slices and     |
|                | results, byte by byte, whatever was asked and set in between, and by whichever driver  |
| *batches*      | a function that is called with the results of an epoch gets the same rows every time   |
| *lasting*      | an epoch whose commit was confirmed stays committed                                    |
| *fsck*         | the checkpoint that a life leaves behind has nothing wrong with it                     |
| *litter*       | a life without faults leaves no file that nobody needs                                 |
| *metamorphic*  | another plan, other partitions and other epochs give the same results in the end       |
| *requests*,    | see :mod:`midstream.testing.migration_promises`                                        |
| *ending*       |                                                                                        |
| *liveness*     | a life ends early only by a fault, so that the run ends when they stop                 |
| *errors*       | no other error comes out than those that were put in, or that refuse damage            |
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from midstream.engine.index_rows import IndexRows
from midstream.migration.lifecycle import layout_of
from midstream.plan.state_id import StateId
from midstream.protocol.coordinator import EPOCHS_KEPT
from midstream.protocol.intent import Intent
from midstream.state.manifest import Manifest
from midstream.state.slices import Slice
from midstream.storage.fsck import check
from midstream.storage.manifest_log import FOLDER as MANIFESTS
from midstream.storage.manifest_log import manifests_newest_first
from midstream.storage.memory import MemoryStore
from midstream.storage.request_queue import REQUESTS
from midstream.storage.slice_files import FOLDER as SLICES
from midstream.storage.slice_files import SliceFiles, digest_in
from midstream.testing.compare import assert_same_rows, difference
from midstream.testing.expected import Expected, late_rows_of
from midstream.testing.faults import STAGED, FaultStore
from midstream.testing.migration_promises import MigrationPromises
from midstream.testing.reference import Fate, Terms
from midstream.testing.store_sink import Reader, read_rows
from midstream.testing.workload import Workload

Written = list[tuple[str, pa.Buffer]]
"""Files in the order in which they were written."""


class BrokenPromiseError(AssertionError):
    """A promise that did not hold."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(promise, what)
        self.promise = promise
        self.what = what

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


def hold(promise: str, kept: bool, what: str) -> None:
    """Raise if a promise was not kept."""
    if not kept:
        raise BrokenPromiseError(promise, what)


class Promises:
    """The promises of one run, and what is known of it so far."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.expected = Expected(workload.query)
        self.migrations_seen = MigrationPromises(workload.query, workload.plan, self.expected)
        self.replays = 0
        self._confirmed = -1
        self._highest = -1
        self._written: dict[int, tuple[Written, bool]] = {}
        self._intents: dict[int, Intent] = {}
        self._run: set[int] = set()
        self._batches: dict[int, pa.Table] = {}
        self._found_right: dict[tuple[str, int], dict[str, pa.Buffer]] = {}

    def begin(self, intent: Intent) -> None:
        """An epoch is about to run by an intent; *replay*: once it has, by no other."""
        epoch, known = intent.epoch, self._intents.get(intent.epoch)
        if known == intent:
            return
        hold("replay", epoch not in self._run, f"epoch {epoch} is run by another intent than before")
        if known is not None:
            self.migrations_seen.undo(known)
        self._intents[epoch] = intent
        settings = intent.settings
        by_stream = settings.event_time_clock == "stream"
        terms = Terms(settings.idle_timeout, settings.max_event_time_ahead, by_stream, intent.now)
        epochs = self.workload.epochs
        # The simulator ends every run with epochs without rows.
        self.expected.begin(epoch, epochs[epoch] if epoch < len(epochs) else {}, terms)
        wrong = self.migrations_seen.begin(intent)
        hold("requests", wrong is None, str(wrong))

    def run(self, epoch: int) -> None:
        """An epoch runs: from now on its intent stands."""
        self._run.add(epoch)

    def check_batch(self, epoch: int, rows: pa.Table) -> None:
        """*batches*: the function that takes the results of an epoch has seen these before, or none."""
        known = self._batches.setdefault(epoch, rows)
        try:
            assert_same_rows(rows, known, f"batch {epoch} when it came again")
        except AssertionError as error:
            raise BrokenPromiseError("batches", str(error)) from error

    def check_published(self, sink: Reader, last: int, waiting: pa.Table | None = None) -> None:
        """*prefix*: up to ``last`` all is there. Publishing may be cut off: of a later commit, some is.

        Results that are kept back after ``last`` are in ``waiting``, where that is known.
        """
        files = sink.files()
        epochs = sorted({*files, *range(last + 1)})
        for epoch in epochs:
            early = epoch > max(last, self._highest)
            hold("prefix", not early, f"{sink.table} of epoch {epoch} are there before its commit")
        results = sink.table == "results"
        for group, open_ in (
            self.migrations_seen.together(epochs) if results else (([e], False) for e in epochs)
        ):
            found = {name: file for epoch in group for name, file in files.get(epoch, {}).items()}
            whole = group[-1] <= last and not open_
            if whole and self._found_right.get((sink.table, group[-1])) == found:
                continue
            more = waiting if open_ and group[-1] == last else None
            self._check_epochs(sink.table, group, found, whole=whole or more is not None, more=more)
            if whole:
                self._found_right[sink.table, group[-1]] = found

    def _check_epochs(
        self, name: str, epochs: list[int], files: dict[str, pa.Buffer], *, whole: bool, more: pa.Table | None
    ) -> None:
        want = pa.concat_tables([self.expected.tables[name][epoch] for epoch in epochs])
        what = f"{name} of epoch {' and '.join(map(str, epochs))}"
        try:
            parts = [read_rows(file) for file in files.values()]
            if name == "late":
                parts = [late_rows_of(part) for part in parts]
            got = pa.concat_tables([want.slice(0, 0), *parts, *([] if more is None else [more])])
            if whole:
                assert_same_rows(got, want, what)
                return
            surplus, _ = difference(got, want)
        except (AssertionError, pa.ArrowInvalid) as error:
            raise BrokenPromiseError("prefix", str(error)) from error
        hold("prefix", not surplus, f"{what} have {surplus.total()} rows that they must not have")

    def check_manifest(self, manifest: Manifest) -> None:
        """*conservation*, of the rows that came and of the results: what the manifest counts."""
        last = manifest.epoch
        for name, fate in self.expected.fates(last).items():
            mark = manifest.streams[name]
            given = sum(e[name].num_rows for e in self.workload.epochs[: last + 1] if name in e)
            dropped = (mark.late, mark.null_time, mark.null_key, mark.future)
            fate_found = Fate(
                mark.rows - sum(dropped), *dropped, mark.latest, mark.watermark, mark.last_active, mark.idle
            )
            hold("conservation", mark.rows == given, f"{given} rows of {name}, but {mark.rows} are counted")
            hold(
                "conservation",
                fate_found == fate,
                f"{name} in epoch {last}: {fate_found}, but should be {fate}",
            )
        results = sum(table.num_rows for table in self.expected.tables["results"][: last + 1])
        waiting = sum(slice_.rows for slice_ in _waiting(manifest))
        found = f"{manifest.results} results, and {waiting} that wait, not {results}"
        hold("conservation", manifest.results + waiting == results, found)
        for promise, wrong in {
            "requests": self.migrations_seen.unheeded(manifest),
            "ending": self.migrations_seen.overdue(manifest),
        }.items():
            hold(promise, wrong is None, str(wrong))

    def check_state(self, store: MemoryStore, manifest: Manifest) -> None:
        """*conservation*, of the state: it has the accepted rows but for those that have expired."""
        files = SliceFiles(store)
        held: dict[str, dict[tuple[StateId, tuple[int, ...]], Counter[int]]] = {
            name: {} for name in self.workload.query.names
        }
        for slice_ in manifest.slices:
            state, key = slice_.owner.state, slice_.owner.key
            if slice_.owner.kind == "index" and state.is_base:
                (name,) = state.streams
                rows = IndexRows.from_table(files.open(slice_), key)
                held[name].setdefault((state, key), Counter()).update(rows.times[name].tolist())
        for name, arrangements in held.items():
            nothing = {(StateId.of([name]), ()): Counter[int]()}
            for (state, _), live in (arrangements or nothing).items():
                accepted = self.expected.times(name, manifest.epoch, _begins(manifest, state))
                hold("conservation", live <= accepted, f"the state of {name} has rows that never came")
                if self._is_left_behind(manifest, state):
                    continue
                for time in accepted - live:
                    expired = self.expected.has_expired(name, time, manifest.epoch)
                    hold("conservation", expired, f"a row of {name} at {time} is gone before its time")

    def _is_left_behind(self, manifest: Manifest, state: StateId) -> bool:
        """Whether only the old plan of a migration has a state: it keeps no more than it can still use."""
        migration = manifest.migration
        if migration is None:
            return False
        return state not in layout_of(self.workload.query, migration.new_plan, migration.state_ids).states

    def waiting(self, store: MemoryStore, manifest: Manifest) -> pa.Table:
        """The results that a migration keeps back."""
        tables = [SliceFiles(store).open(slice_) for slice_ in _waiting(manifest)]
        return pa.concat_tables([self.workload.query.output_schema.empty_table(), *tables])

    def check_replay(self, epoch: int, written: Written, *, whole: bool) -> None:
        """*replay*: an attempt writes what the others wrote, as far as it came; ``whole`` if to its end."""
        known, known_whole = self._written.get(epoch, ([], False))
        self.replays += epoch in self._written
        same = all(a == b for a, b in zip(known, written, strict=False))
        fits = not (whole and len(written) < len(known)) and not (known_whole and len(written) > len(known))
        hold("replay", same and fits, f"epoch {epoch} wrote something else when it was run again")
        self._written[epoch] = (max(known, written, key=len), whole or known_whole)

    def confirm(self, epoch: int) -> None:
        """The query says that an epoch is committed; from then on no source gives its rows again."""
        self._confirmed = max(self._confirmed, epoch)

    def forgive(self, damaged: str) -> None:
        """A file was damaged: if it was the newest manifest, its epoch may have to run again."""
        if damaged.startswith(MANIFESTS) and damaged.endswith(f"-{self._confirmed:012d}.json"):
            self._confirmed -= 1

    def check_store(self, store: FaultStore) -> int:
        """*fsck* and *lasting*; gives the last committed epoch."""
        findings = check(store.inner)
        hold("fsck", not findings.problems, "; ".join(f"{p.file} {p.what}" for p in findings.problems))
        last = -1 if findings.epoch is None else findings.epoch
        hold("lasting", last >= self._confirmed, f"epoch {self._confirmed} was committed, {last} is the last")
        newest = next(manifests_newest_first(store.inner), None)
        # Its driver may have died before the disk confirmed the commit. Until a successor has made it last,
        # and goes on from it, nobody has been told of it.
        if newest is None or store.lasts(newest.file):
            self._confirmed = last
            self._highest = max(self._highest, last)
        return last

    def check_litter(self, store: MemoryStore, manifest: Manifest, staged: list[str]) -> None:
        """*litter*, after a life without faults that has committed something."""
        stale = self.migrations_seen.stale(store.list(REQUESTS), manifest)
        left = [*check(store).orphans, *staged, *stale]
        hold("litter", not left, f"nobody needs {', '.join(left)}")
        kept = len(list(manifests_newest_first(store)))
        hold("litter", kept <= EPOCHS_KEPT, f"{kept} manifests are kept, not {EPOCHS_KEPT}")


def _waiting(manifest: Manifest) -> list[Slice]:
    return [slice_ for slice_ in manifest.slices if slice_.owner.kind == "deferred"]


def _begins(manifest: Manifest, state: StateId) -> int:
    """The first epoch of which a state has rows: a new plan that is kept apart begins without any."""
    migration = manifest.migration
    if migration is None or not migration.isolated or state.migration != migration.number:
        return 0
    return migration.start_epoch


def step_files(written: Written) -> Written:
    """What a step wrote: slices and staged files, without what is never the same of their names."""
    return [
        (digest_in(name) or _without_lease(name), data)
        for name, data in written
        if name.startswith((f"{SLICES}/", f"{STAGED}/"))
    ]


def _without_lease(staged: str) -> str:
    table, _lease, *place, _chance = staged.split("-")
    return "-".join((table, *place))

"""The promises that the simulator checks, and the error that names a broken one.

| promise        | what must hold                                                                         |
| -------------- | -------------------------------------------------------------------------------------- |
| *prefix*       | after every commit, the results of the batch join of all epochs so far are published,  |
|                | and the late rows of these epochs: none missing, none twice, no others; deferred ones  |
|                | count as published; while state is spilled, some may be missing until it has come      |
|                | back; of aggregates see :mod:`midstream.testing.aggregate_promises`                    |
| *conservation* | every row is late, without a time, without a key, in the state, or expired; expired    |
|                | rows can be in no later result                                                         |
| *replay*       | an epoch that is run again has the same intent, and writes the same slices and         |
|                | results, byte by byte, whatever options, requests and drivers have changed             |
| *batches*      | a function that is called with the results of an epoch gets the same rows every time   |
| *lasting*      | an epoch whose commit was confirmed stays committed                                    |
| *fsck*         | after each life the checkpoint is sound                                                |
| *litter*       | a life without faults leaves no unused file                                            |
| *metamorphic*  | another plan, other partitions and other epochs give the same results in the end       |
| *terms*        | an epoch is begun on the terms of a driver that runs, not on earlier ones              |
| *partitions*   | see :mod:`midstream.testing.rescales`                                                  |
| *hand-over*,   | see :mod:`midstream.testing.definitions`                                               |
| *replacements* |                                                                                        |
| *requests*,    | see :mod:`midstream.testing.migration_promises`                                        |
| *decisions*,   |                                                                                        |
| *ending*       |                                                                                        |
| *liveness*     | a life ends early only by a fault, so that the run ends when faults stop               |
| *errors*       | no errors are raised but injected ones, and those that refuse damage                   |

A *life* is one process of the simulator, from its start until it ends or dies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa

from midstream.engine.index_rows import IndexRows
from midstream.engine.references import epoch_of
from midstream.migration.lifecycle import layout_of
from midstream.plan.state_id import StateId
from midstream.protocol.coordinator import EPOCHS_KEPT
from midstream.protocol.intent import Intent
from midstream.protocol.query_terms import query_on, terms_of
from midstream.protocol.rescaling import places_of
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.slices import Slice
from midstream.storage.fsck import check
from midstream.storage.manifest_log import FOLDER as MANIFESTS
from midstream.storage.manifest_log import manifests_newest_first
from midstream.storage.memory_store import MemoryStore
from midstream.storage.numbered_requests import REQUESTS
from midstream.storage.slice_files import FOLDER as SLICES
from midstream.storage.slice_files import SliceFiles, digest_in
from midstream.testing.broken_promise import BrokenPromiseError, check_promise
from midstream.testing.definitions import Definitions
from midstream.testing.expected import Expected
from midstream.testing.faults import STAGED, FaultStore
from midstream.testing.migration_promises import MigrationPromises
from midstream.testing.published import PublishedPromises
from midstream.testing.reference import AcceptRules, ExpectedProgress
from midstream.testing.rescales import Rescales
from midstream.testing.seen_rows import rows_once, unplaced_states
from midstream.testing.workload import Workload

Written = list[tuple[str, pa.Buffer]]
"""Files in the order in which they were written."""


class Promises:
    """The promises of one run, and what it has done so far."""

    def __init__(self, workload: Workload, rescales: Rescales) -> None:
        self.workload = workload
        self.definitions = Definitions(workload)
        self.migration_promises = MigrationPromises(workload.query, workload.plan, self.definitions)
        self.rescales = rescales
        self.replays = 0
        self._confirmed = -1
        self._written: dict[int, tuple[Written, bool]] = {}
        self._intents: dict[int, Intent] = {}
        self._run: set[int] = set()
        self.published = PublishedPromises(self.definitions, self.migration_promises)

    @property
    def expected(self) -> Expected:
        """What is expected of the definition that the run has now."""
        return self.definitions.now.expected

    def begin(self, intent: Intent, asked: Sequence[Query]) -> None:
        """An epoch is about to run with an intent; *replay*: once it has run, with no other.

        *terms*: they are those of a query that was ``asked`` by a driver that has not ended.
        """
        epoch, earlier = intent.epoch, self._intents.get(intent.epoch)
        if earlier == intent:
            return
        check_promise("replay", epoch not in self._run, f"epoch {epoch} is run by another intent than before")
        if earlier is not None:
            self._undo(earlier)
        self._intents[epoch] = intent
        settings = intent.settings
        rules = AcceptRules(
            idle_timeout=settings.idle_timeout,
            max_ahead=settings.max_event_time_ahead,
            clock_is_stream=settings.event_time_clock == "stream",
            now=intent.now,
        )
        query = next((query for query in asked if terms_of(query) == intent.terms), None)
        if self.migration_promises.is_replacing(epoch - 1):
            # Terms stay until it has ended.
            committed = self.migration_promises.committed_terms(epoch - 1)
            check_promise("terms", intent.terms == committed, f"epoch {epoch} changes the terms of two boxes")
            query = query_on(committed, self.definitions.at(epoch - 1).asked.query)
        if query is None:
            raise BrokenPromiseError("terms", f"epoch {epoch} is begun on terms that no driver has asked for")
        self.definitions.begin(epoch, rules, query, without_batch=intent.without_batch)
        before = self.migration_promises.manifest(epoch - 1)
        for promise, problem in {
            "replacements": self.definitions.check_request(intent, before, query),
            "requests": self.migration_promises.begin(intent),
            "partitions": self.rescales.begin(intent),
            "decisions": self.migration_promises.check_verdict(intent),
        }.items():
            check_promise(promise, problem is None, str(problem))

    def set_back(self, epoch: int, stream: str, watermark: int) -> None:
        """After an epoch, the watermark of a stream was set back; the next one is begun anew."""
        self.definitions.at(epoch).expected.set_back(epoch, stream, watermark)
        begun = self._intents.pop(epoch + 1, None)
        if begun is not None:
            self._undo(begun)

    def _undo(self, intent: Intent) -> None:
        """An intent was replaced before its epoch ran."""
        for part in (self.migration_promises, self.rescales, self.definitions):
            part.undo(intent)

    def run(self, epoch: int) -> None:
        """An epoch runs: from now on its intent must not change."""
        self._run.add(epoch)

    def features(self) -> set[str]:
        """What has happened in the run; a test checks that the seeds together have all of it."""
        history = [stream for epoch in self.expected.accepted.history for stream in epoch.values()]
        features = self.migration_promises.features() | self._changes_of_terms() | self.definitions.features()
        features |= {"an idle stream"} if any(stream.idle for stream in history) else set()
        return features | ({"a row from the future"} if any(s.future for s in history) else set())

    def _changes_of_terms(self) -> set[str]:
        """How the terms have changed."""
        changes: set[str] = set()
        for epoch, (before, after) in enumerate(pairwise(self.expected.queries), 1):
            widths = list(zip(before.windows.widths, after.windows.widths, strict=True))
            changes |= {"a wider window"} if any(a < b for a, b in widths) else set()
            changes |= {"a narrower window"} if any(a > b for a, b in widths) else set()
            changes |= {"other outputs"} if before.outputs != after.outputs else set()
            changes |= {"another lateness"} if before.streams != after.streams else set()
            migrates = self.migration_promises.is_under_way(epoch - 1)
            changes |= {"terms that change in a migration"} if migrates and before != after else set()
        return changes

    def check_manifest(self, manifest: Manifest) -> None:
        """*conservation*, of the counts in the manifest; *requests* and *ending*."""
        one = self.definitions.at(manifest.epoch)
        self._check_progress(manifest, one.expected)
        step, new = manifest.replacement, self.definitions.all[-1]
        if step is not None and step.number == new.number:
            self._check_progress(step.successor, new.expected)
        if all(one.aggregates is None for one in self.definitions.all):
            self._check_counts(manifest)
        for promise, problem in {
            "requests": self.migration_promises.check_requests(manifest),
            "ending": self.migration_promises.check_ending(manifest),
        }.items():
            check_promise(promise, problem is None, str(problem))

    @staticmethod
    def _check_progress(manifest: Manifest, of_run: Expected) -> None:
        last = manifest.epoch
        for name, expected in of_run.progress(last).items():
            mark = manifest.streams[name]
            given = of_run.rows_given(name, last)
            dropped = (mark.late, mark.null_time, mark.null_key, mark.future)
            got = ExpectedProgress(
                mark.rows - sum(dropped), *dropped, mark.latest, mark.watermark, mark.last_active, mark.idle
            )
            check_promise(
                "conservation", mark.rows == given, f"{given} rows of {name}, but {mark.rows} are counted"
            )
            check_promise(
                "conservation", got == expected, f"{name} in epoch {last}: {got}, but should be {expected}"
            )

    def _check_counts(self, manifest: Manifest) -> None:
        results = sum(
            one.results(epoch).num_rows
            for one in self.definitions.all
            for epoch in range(manifest.epoch + 1)
            if one.takes_part(epoch)
        )
        deferred = sum(slice_.rows for slice_ in _deferred_slices(manifest))
        counts = f"{manifest.results} results, and {deferred} deferred, not {results}"
        made = manifest.results + deferred
        owes = self.migration_promises.may_owe(manifest.epoch)
        check_promise("conservation", made == results or (owes and made < results), counts)

    def check_state(self, store: MemoryStore, manifest: Manifest) -> None:
        """*conservation*, of the state: it has the accepted rows except for those that have expired."""
        if manifest.replacements:
            return  # what was replayed has arrived once more, in another epoch
        files, places = SliceFiles(store), places_of(manifest)
        unplaced = unplaced_states(self.workload.query, manifest)
        held: dict[str, dict[tuple[StateId, tuple[int, ...]], Counter[tuple[int, int]]]] = {
            name: {} for name in self.workload.query.names
        }
        for slice_ in manifest.slices:
            state, key = slice_.owner.state, slice_.owner.key
            if slice_.owner.kind == "index" and state.is_base:
                (name,) = state.streams
                rows = IndexRows.from_table(files.open(slice_), key)
                rows = rows if state in unplaced else rows_once(places, slice_, rows)
                (references,) = rows.references.values()
                arrivals = zip(epoch_of(references).tolist(), rows.times[name].tolist(), strict=True)
                held[name].setdefault((state, key), Counter()).update(arrivals)
        for name, arrangements in held.items():
            empty = {(StateId.of([name]), ()): Counter[tuple[int, int]]()}
            for (state, _), live in (arrangements or empty).items():
                accepted = self.expected.arrivals(name, manifest.epoch, _first_epoch(manifest, state))
                check_promise(
                    "conservation", live <= accepted, f"the state of {name} has rows that never came"
                )
                if self._is_of_old_plan_only(manifest, state):
                    continue
                for arrival, time in accepted - live:
                    expired = self.expected.has_expired(name, arrival, time, manifest.epoch)
                    expired = expired or self.expected.was_lost(name, arrival, time)
                    check_promise(
                        "conservation", expired, f"a row of {name} at {time} is gone before its time"
                    )

    def _is_of_old_plan_only(self, manifest: Manifest, state: StateId) -> bool:
        """Whether only the old plan of a migration has a state: it may drop rows before they expire."""
        migration = manifest.migration
        if migration is None:
            return False
        return state not in layout_of(self.workload.query, migration.new_plan, migration.state_ids).states

    def deferred(self, store: MemoryStore, manifest: Manifest) -> pa.Table:
        """The results that a migration defers, with all columns that the states keep."""
        opened = [SliceFiles(store).open(slice_) for slice_ in _deferred_slices(manifest)]
        schema = self.definitions.at(manifest.epoch).asked.query.joined_schema
        return pa.concat_tables([schema.empty_table(), *(table.select(schema.names) for table in opened)])

    def check_replay(self, epoch: int, written: Written, *, whole: bool) -> None:
        """*replay*: every attempt writes the same files; ``whole`` if it came to the end of its step."""
        earlier, earlier_whole = self._written.get(epoch, ([], False))
        self.replays += epoch in self._written
        same = all(a == b for a, b in zip(earlier, written, strict=False))
        too_short = whole and len(written) < len(earlier)
        too_long = earlier_whole and len(written) > len(earlier)
        fits = not too_short and not too_long
        check_promise("replay", same and fits, f"epoch {epoch} wrote something else when it was run again")
        self._written[epoch] = (max(earlier, written, key=len), whole or earlier_whole)

    def confirm(self, epoch: int) -> None:
        """The query has confirmed a commit; from then on a source does not repeat the rows."""
        self._confirmed = max(self._confirmed, epoch)

    def forgive(self, damaged: str) -> None:
        """A file was damaged: if it was the newest manifest, its epoch may have to run again."""
        if damaged.startswith(MANIFESTS) and damaged.endswith(f"-{self._confirmed:012d}.json"):
            self._confirmed -= 1

    def check_store(self, store: FaultStore) -> int:
        """*fsck* and *lasting*; returns the last committed epoch."""
        findings = check(store.inner)
        check_promise(
            "fsck", not findings.problems, "; ".join(f"{p.file} {p.what}" for p in findings.problems)
        )
        last = -1 if findings.epoch is None else findings.epoch
        check_promise(
            "lasting", last >= self._confirmed, f"epoch {self._confirmed} was committed, {last} is the last"
        )
        newest = next(manifests_newest_first(store.inner), None)
        # Its driver may have died before the manifest was durable. The commit is not confirmed until a
        # successor makes it durable and goes on from it.
        if newest is None or store.is_durable(newest.file):
            self._confirmed = last
            self.published.highest = max(self.published.highest, last)
        return last

    def check_litter(self, store: MemoryStore, manifest: Manifest, staged: list[str]) -> None:
        """*litter*, after a life without faults that has committed something."""
        stale = self.migration_promises.stale(store.list(REQUESTS), manifest)
        unused = [*check(store).orphans, *staged, *stale]
        check_promise("litter", not unused, f"nothing uses {', '.join(unused)}")
        epochs = len({name.epoch for name in manifests_newest_first(store)})
        check_promise(
            "litter", epochs <= EPOCHS_KEPT, f"manifests of {epochs} epochs are kept, not {EPOCHS_KEPT}"
        )


def _deferred_slices(manifest: Manifest) -> list[Slice]:
    return [slice_ for slice_ in manifest.slices if slice_.owner.kind == "deferred"]


def _first_epoch(manifest: Manifest, state: StateId) -> int:
    """The first epoch of which a state has rows that are searched.

    States of an isolated new plan start empty; rows that are moved in portions are pending until the end.
    """
    migration = manifest.migration
    if migration is None or state.migration != migration.number:
        return 0
    return migration.start_epoch if migration.isolated or state in migration.moving else 0


def step_files(written: Written) -> Written:
    """What a step wrote: slices and staged files, by the parts of their names that attempts share."""
    return [
        (digest_in(name) or _without_lease(name), data)
        for name, data in written
        if name.startswith((f"{SLICES}/", f"{STAGED}/"))
    ]


def _without_lease(staged: str) -> str:
    table, _lease, *task, _random = staged.split("-")
    return "-".join((table, *task))

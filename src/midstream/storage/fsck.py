"""Checking a checkpoint: every manifest, slice, digest, reference and routing, and unused files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.aggregate.partials import HASH
from midstream.engine.arrays import as_array
from midstream.engine.hashing import group_of
from midstream.engine.index_rows import IndexRows, in_ranges, in_time_order
from midstream.engine.memory_step import StateCuts
from midstream.engine.payload import segments_of
from midstream.engine.places import Places
from midstream.engine.references import Integers, split_references
from midstream.engine.spill_retention import SpillRetention
from midstream.errors import CheckpointError
from midstream.memory.check_memory import check_memory
from midstream.plan.fragment_name import joins_state
from midstream.plan.state_id import StateId
from midstream.protocol.lease import LeaseHandle
from midstream.protocol.query_terms import check_window_changes, expiry_after
from midstream.protocol.rescaling import check_routings, places_of
from midstream.protocol.settings import read_persisted_options
from midstream.state.manifest import Manifest
from midstream.state.slices import Slice
from midstream.storage.intents import find_intent, intent_name, stale_intents
from midstream.storage.manifest_log import Committed, manifests_newest_first, read_manifest
from midstream.storage.publish_log import is_published, noted_epochs, noted_outputs
from midstream.storage.slice_files import FOLDER as SLICES
from midstream.storage.slice_files import SliceFiles
from midstream.storage.store import TEMPORARY, Store

Readers = npt.NDArray[np.bool_]
"""For each engine partition, whether it reads a slice."""


@dataclass(frozen=True)
class Problem:
    """Something wrong: where, what, and what to do about it."""

    file: str
    what: str
    remedy: str


@dataclass(frozen=True)
class Findings:
    """What a check found."""

    epoch: int | None
    """The last epoch that a valid manifest holds; None if there is none."""
    manifests: int
    slices: int
    bytes: int
    problems: tuple[Problem, ...]
    orphans: tuple[str, ...]
    """Files that no manifest names: left behind by abandoned attempts, and harmless."""


def check(store: Store) -> Findings:
    """Check all files of a checkpoint; nothing is changed."""
    problems: list[Problem] = []
    manifests = _manifests(store, problems)
    newest = manifests[-1] if manifests else None
    problems += _check_intent(store, newest)
    problems += _check_note(store, newest)
    files = SliceFiles(store, newest.id if newest else "")
    named: dict[str, Slice] = {s.name: s for m in manifests for s in m.all_slices}
    retired = {r.name for m in manifests for r in m.all_retired}
    present = {name.removeprefix(f"{SLICES}/") for name in store.list(SLICES)}
    if newest is not None:
        checked = [_check_slices(files, box) for box in _boxes(newest)]
        problems += [problem for damaged, _ in checked for problem in damaged]
        problems += [] if problems else [problem for _, dangling in checked for problem in dangling]
    orphans = [f"{SLICES}/{name}" for name in sorted(present - set(named) - retired)]
    return Findings(
        newest.epoch if newest else None,
        len(manifests),
        len(newest.all_slices) if newest else 0,
        sum(s.bytes for s in newest.all_slices) if newest else 0,
        tuple(problems),
        (*orphans, *stale_intents(store, newest.epoch if newest else -1), *store.list(TEMPORARY)),
    )


def collect_garbage(store: Store, lease: LeaseHandle, *, delete: bool) -> list[str]:
    """The files that no manifest names; with ``delete`` they are deleted. Needs the lease."""
    # Keeping the lease makes temporary files, too: only those that exist already are garbage.
    unfinished = store.list(TEMPORARY)
    findings = check(store)
    if findings.problems and delete:
        raise CheckpointError(
            "a checkpoint must be sound before anything in it is deleted",
            got=f"{findings.problems[0].file}: {findings.problems[0].what}",
            hint="what is damaged may name files that nothing else names: run midstream fsck, and restore it",
        )
    names = findings.orphans
    orphans = [name for name in names if name in unfinished or not name.startswith(f"{TEMPORARY}/")]
    for name in orphans if delete else ():
        # The lease is kept meanwhile, unless this process was paused.
        lease.check()
        store.delete(name)
    return orphans


def _manifests(store: Store, problems: list[Problem]) -> list[Manifest]:
    """The valid manifests, oldest first; they must be of one query, and follow from each other."""
    valid: list[Committed] = []
    for name in reversed(list(manifests_newest_first(store))):
        try:
            committed = read_manifest(store, name)
            for box in _boxes(committed.manifest):
                options = read_persisted_options(box.definition)
                check_window_changes(box)
                check_routings(box, options.groups)
                check_memory(box, options.groups)
        except CheckpointError as error:
            remedy = "restore it from a copy; a start goes on from the manifest before it, if that is valid"
            problems.append(Problem(name.file, str(error), remedy))
            continue
        manifest, before = committed.manifest, valid[-1] if valid else None
        mixed = "files of two checkpoints were mixed: restore one of them"
        if before is not None and before.manifest.id != manifest.id:
            problems.append(Problem(name.file, "is of another query than the manifest before it", mixed))
        elif before is not None and not _follows(before, manifest):
            what = f"does not follow from the manifest of epoch {before.manifest.epoch}"
            problems.append(Problem(name.file, what, mixed))
        valid.append(committed)
    return [committed.manifest for committed in valid]


def _follows(before: Committed, manifest: Manifest) -> bool:
    """Whether the digests agree, as far as can be known: one between the two manifests may be missing."""
    adjacent = manifest.epoch - before.manifest.epoch in (0, 1)
    return not adjacent or manifest.previous == before.digest


def _check_intent(store: Store, newest: Manifest | None) -> list[Problem]:
    """An epoch that was begun must be able to run again."""
    epoch = newest.epoch + 1 if newest else 0
    try:
        find_intent(store, epoch)
    except CheckpointError as error:
        remedy = "restore it from a copy; if nobody has seen results of that epoch, it may be deleted"
        return [Problem(intent_name(epoch), str(error), remedy)]
    return []


def _check_note(store: Store, newest: Manifest | None) -> list[Problem]:
    """Publishing that was cut off must be able to go on."""
    noted = noted_epochs(store)
    last = max(noted, default=-1)
    if newest is None or last < newest.epoch or is_published(noted, last):
        return []
    try:
        noted_outputs(store, newest.id, last)
    except CheckpointError as error:
        remedy = "restore it from a copy; if nobody has moved results of that epoch away, it may be deleted"
        return [Problem(noted[last], str(error), remedy)]
    return []


def _boxes(manifest: Manifest) -> list[Manifest]:
    """What a manifest says of the query, and while it is replaced, of the new box."""
    return [manifest] if manifest.replacement is None else [manifest, manifest.replacement.successor]


def _check_slices(files: SliceFiles, manifest: Manifest) -> tuple[list[Problem], list[Problem]]:
    """Slices that are not what their manifest says, and those that refer to rows that are in none."""
    checks = _SliceChecks(manifest)
    damaged: list[Problem] = []
    # Each is opened once: what index slices may refer to is known when all payload slices were.
    for slice_ in sorted(manifest.slices, key=lambda each: each.owner.has_index_rows):
        try:
            what = checks.problem_of(slice_, files.open(slice_))
        except CheckpointError as error:
            what = str(error)
        if what is not None:
            remedy = "restore the file from a copy of the checkpoint"
            damaged.append(Problem(f"{SLICES}/{slice_.name}", what, remedy))
    return damaged, checks.dangling


class _SliceChecks:
    """Checks of the slices of a manifest, payload slices first."""

    def __init__(self, manifest: Manifest) -> None:
        self.dangling: list[Problem] = []
        """References to rows that are in no slice."""
        self._places = places_of(manifest)
        # A state that is only in the first partition, of all or of its site, may belong to a node without a
        # key, which runs there.
        owners = [slice_.owner for slice_ in manifest.slices]
        self._spread = {o.state for o in owners if o.partition != self._places.home(o.state.site)}
        self._retention = _retention_after(manifest, self._places)
        self._stored: dict[StateId, list[tuple[Integers, Readers]]] = {}
        """By state: the segments of each payload slice, and which partitions read it."""
        self._indexes: dict[StateId, _SegmentIndex] = {}

    def problem_of(self, slice_: Slice, table: pa.Table) -> str | None:
        """What is wrong with a slice, or None."""
        owner = slice_.owner
        if owner.kind == "payload":
            readers = np.zeros(self._places.partitions, np.bool_)
            readers[list(self._places.readers(slice_))] = True
            self._stored.setdefault(owner.state, []).append((segments_of(table)[:, 0], readers))
        if owner.kind == "partial":
            groups = group_of(as_array(table.column(HASH)), self._places.groups)
            is_here = np.all(self._places.held(slice_)[groups])
            return None if is_here else f"has groups of other partitions than {owner.partition}"
        if not owner.has_index_rows or not slice_.rows:
            return None
        rows = IndexRows.from_table(table, owner.key)
        if np.any(rows.hashes[1:] < rows.hashes[:-1]):
            return "is not sorted by hash"
        if slice_.by_time and in_time_order(rows) is not rows:
            return "has many rows with one hash that are not in order of time"
        is_spread = owner.state in self._spread
        if is_spread and not np.all(self._places.held(slice_)[group_of(rows.hashes, self._places.groups)]):
            return f"has rows of other partitions than {owner.partition}"
        # Expired rows may lose their payload before compaction drops them, unless they may owe something.
        # Which rows these are takes longer to say than whether any row has lost its payload.
        if any(self._without_payload(slice_, rows)):
            for name in self._without_payload(slice_, self._retention.useful(rows, slice_)):
                what = f"refers to rows of {name} that are in no slice"
                remedy = "restore the checkpoint from a copy"
                self.dangling.append(Problem(f"{SLICES}/{slice_.name}", what, remedy))
        return None

    def _without_payload(self, slice_: Slice, rows: IndexRows) -> Iterator[StateId]:
        """The streams that have payload, but not all that rows of a slice refer to.

        Each partition that reads the slice must read that payload, too.
        """
        if slice_.owner.state not in self._spread:
            yield from self._without_payload_in(None, rows)
            return
        for reader in self._places.readers(slice_):
            ranges = self._places.own_ranges(slice_, reader)
            own = rows if ranges is None else in_ranges(rows, *ranges)
            yield from self._without_payload_in(reader, own)

    def _without_payload_in(self, partition: int | None, rows: IndexRows) -> Iterator[StateId]:
        """The same for the rows of one partition; if it is None, any partition may read the payload."""
        for name, references in rows.references.items():
            if name in self._stored and not self._index(name).has(split_references(references)[0], partition):
                yield name

    def _index(self, state: StateId) -> _SegmentIndex:
        """Where the segments of a state are; it is asked for when all payload slices were opened."""
        if state not in self._indexes:
            self._indexes[state] = _SegmentIndex.of(self._stored[state])
        return self._indexes[state]


def _retention_after(manifest: Manifest, places: Places) -> SpillRetention:
    """Which rows are of use after the epoch of a manifest, those that may owe something among them."""
    owners = {slice_.owner for slice_ in manifest.slices if slice_.owner.has_index_rows}
    inputs = {
        owner.state: StateCuts(places.groups, True, cuts, {})
        for owner in owners
        for fragment, cuts in manifest.memory.cuts.items()
        if joins_state(fragment, owner.state, owner.key)
    }
    return SpillRetention(expiry_after(manifest), inputs, manifest.memory.marks, places)


@dataclass(frozen=True, eq=False)
class _SegmentIndex:
    """In which payload slices the segments of a state are, and who reads those."""

    segments: Integers
    """In ascending order."""
    slices: Integers
    """The number of the slice that each is in; while two plans run, it may be in one of each."""
    readers: Readers
    """For each slice, which partitions read it."""

    @staticmethod
    def of(stored: Sequence[tuple[Integers, Readers]]) -> _SegmentIndex:
        segments = np.concatenate([each for each, _ in stored])
        slices = np.repeat(np.arange(len(stored)), [len(each) for each, _ in stored])
        order = np.argsort(segments, kind="stable")
        return _SegmentIndex(segments[order], slices[order], np.stack([readers for _, readers in stored]))

    def has(self, referenced: Integers, partition: int | None) -> bool:
        """Whether each segment is in a slice that a partition reads; in any slice, without a partition."""
        first = self.segments.searchsorted(referenced)
        count = self.segments.searchsorted(referenced, side="right") - first
        found = np.zeros(len(referenced), np.bool_)
        for number in range(int(count.max(initial=0))):
            is_there = count > number
            slices = self.slices[first[is_there] + number]
            found[is_there] |= True if partition is None else self.readers[slices, partition]
        return bool(found.all())

"""Reading and writing manifests, a file per commit, named after the lease that it was committed under.

    manifests/<lease>-<epoch>.json

The newest manifest is that of the highest lease, and of its epochs the last. So what a driver that was given
up still commits would count for nothing; and it cannot even commit: whoever gives a driver up first *closes*
its log, by taking the name of the manifest that it would commit next. Of two that want a name one gets it.
Either the driver's commit was first, and its successor goes on from there; or it finds the name taken.

    lease 7    7-41   7-42   7-43 (closed by 8)
    lease 8                  8-43   8-44

A closed name stays closed for good. The manifests of earlier formats have no lease in their names; they count
as those of a lease before the first.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec

from midstream.errors import CheckpointError, FencedError, FormatError
from midstream.protocol.coordinator import EPOCHS_KEPT
from midstream.state.manifest import Manifest, decode_manifest, encode_manifest
from midstream.state.sealed import RESTORE, UNREADABLE
from midstream.storage.slice_files import FOLDER as SLICES
from midstream.storage.store import Store

FOLDER = "manifests"
_NOTED = ".closed"
"""The end of an empty file's name that notes, for whoever lists the folder, that a name closes a log."""
_log = logging.getLogger("midstream")
_NAME = re.compile(rf"{FOLDER}/(?:(\d{{12}})-)?(\d{{12}})\.json\Z")


class _Closed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands where a driver that was given up would have committed."""

    closed_by: int


@dataclass(frozen=True, order=True)
class ManifestName:
    """The name of a manifest; in the order in which they came about."""

    lease: int
    epoch: int
    file: str
    closed: bool = False
    """Whether it is noted that the file only closes a log; then it need not be read to know."""


@dataclass(frozen=True)
class Committed:
    """A manifest as it is stored, with the digest by which the next one refers to it."""

    manifest: Manifest
    digest: str


def manifest_files(store: Store) -> list[ManifestName]:
    """The files of manifests, oldest first; where a log was closed, there is a file as well."""
    names = set(store.list(FOLDER))
    found = (_NAME.match(name) for name in names)
    return sorted(
        ManifestName(int(m[1] or 0), int(m[2]), m[0], f"{m[0]}{_NOTED}" in names) for m in found if m
    )


def manifests_newest_first(store: Store) -> Iterator[ManifestName]:
    """The files that hold manifests, valid or not, without those that close a log."""
    return (name for name in reversed(manifest_files(store)) if not _is_closed(store, name))


def newest_manifest(store: Store) -> Manifest | None:
    """The manifest of the last committed epoch, or None if nothing was ever committed."""
    name = next(manifests_newest_first(store), None)
    return None if name is None else read_manifest(store, name).manifest


def restore_manifest(store: Store, lease: int) -> Committed | None:
    """The newest valid manifest, for the driver that holds a lease.

    If the newest one is damaged, the one before it is as good: its epoch is run again, with the same rows
    and the same results. The damaged file is set aside, so that the epoch can be committed again. More
    than one is not a damaged file but a damaged checkpoint, and refused.
    """
    # A commit may have failed when its manifest was there but would not outlast the machine. Whoever goes
    # on from it, and says so to others, must be sure that it will.
    store.sync(FOLDER)
    names = list(islice(manifests_newest_first(store), 2))
    if not names:
        return None
    try:
        newest = read_manifest(store, names[0])
    except FormatError:
        raise  # it is not damaged: another version of this program has written it
    except CheckpointError as damage:
        # Where a watermark was set back, the one before is of the same epoch, and not as good.
        if len(names) < 2 or names[1].epoch != names[0].epoch - 1:
            raise
        before = read_manifest(store, names[1])
        store.put(f"{names[0].file}.damaged", store.read(names[0].file))
        # Not deleted: its name must not become free for a driver that was given up.
        store.put(names[0].file, msgspec.json.encode(_Closed(lease)))
        store.put(f"{names[0].file}{_NOTED}", b"")
        # If a power cut brought it back after the epoch was committed again, and somebody mended it, there
        # would be two manifests of the epoch.
        store.sync(FOLDER)
        _log.warning("%s; going on from the manifest of epoch %d before it", damage, before.manifest.epoch)
        return before
    if len(names) == 2:
        _must_follow(store, names[1], newest.manifest)
    return newest


def _must_follow(store: Store, name: ManifestName, newest: Manifest) -> None:
    """Refuse manifests that were put together from several checkpoints."""
    try:
        before = read_manifest(store, name)
    except CheckpointError:
        return  # it is damaged, and was only to be compared with
    adjacent = newest.epoch - before.manifest.epoch in (0, 1)
    of_another = newest.id != before.manifest.id
    if of_another or (adjacent and newest.previous != before.digest):
        raise CheckpointError(
            f"manifest {name.file} must be the one that the manifest of epoch {newest.epoch} follows",
            got="that of another query" if of_another else "another",
            hint="files of several checkpoints were mixed: restore all manifests from one copy",
        )


def read_manifest(store: Store, name: ManifestName) -> Committed:
    """One manifest, which must be that of the lease and the epoch that its name says."""
    manifest, digest = decode_manifest(store.read(name.file).to_pybytes(), name.file)
    if (name.lease, name.epoch) != (manifest.lease, manifest.epoch):
        raise CheckpointError(
            f"manifest {name.file} must be that of its epoch",
            got=f"epoch {manifest.epoch} of lease {manifest.lease}",
            hint=RESTORE,
        )
    return Committed(manifest, digest)


def commit_manifest(store: Store, manifest: Manifest) -> str:
    """Make a manifest the truth. This is the commit: before it nothing happened, after it everything did."""
    name = manifest_name(manifest.lease, manifest.epoch)
    # One call for the slices of all tasks: each of them doing so would cost most of a small epoch.
    store.sync(SLICES)
    data = encode_manifest(manifest)
    # If only the answer was lost, what is there is ours, to the byte.
    if not store.put_if_absent(name, data) and store.read(name).to_pybytes() != data:
        raise FencedError(
            "an epoch must be committed by one driver only",
            got=f"{name} exists already",
            hint="another driver has taken over this checkpointLocation and goes on; this one is no longer "
            "needed",
        )
    return name


def close_log(store: Store, lease: int, by: int) -> None:
    """Take the names under which the holder of a lease would commit next: it commits nothing any more.

    A query commits the next epoch; whoever sets a watermark back, the newest one once more.
    """
    closed = msgspec.json.encode(_Closed(by))
    while True:
        newest = next(manifests_newest_first(store), None)
        if newest is not None:
            again = manifest_name(lease, newest.epoch)
            if store.put_if_absent(again, closed):
                store.put(f"{again}{_NOTED}", b"")
        name = manifest_name(lease, newest.epoch + 1 if newest else 0)
        if store.put_if_absent(name, closed) or _is_closed_name(store, name):
            store.put(f"{name}{_NOTED}", b"")
            return
        if newest is not None and newest.lease > lease:
            return  # a later driver has committed: whatever has the name, it counts for nothing
        # It has committed in the meantime, and may be about to commit once more.


def sweep_manifests(store: Store, epoch: int) -> None:
    """Delete old manifests that drivers which died did not come to delete."""
    oldest = epoch - EPOCHS_KEPT
    for name in manifest_files(store):
        # Every run does this once: what is much older closes a log, and need not be read each time.
        if oldest - EPOCHS_KEPT < name.epoch <= oldest and not _is_closed(store, name):
            store.delete(name.file)


def manifest_name(lease: int, epoch: int) -> str:
    """The file of a manifest."""
    return f"{FOLDER}/{lease:012d}-{epoch:012d}.json"


def _is_closed_name(store: Store, name: str) -> bool:
    """Whether a name that is taken closes a log; noted is enough, the file itself may be damaged."""
    return any(_is_closed(store, found) for found in manifest_files(store) if found.file == name)


def _is_closed(store: Store, name: ManifestName) -> bool:
    """Whether a file closes a log; one that has gone since it was listed is no manifest either."""
    if name.closed:
        return True
    try:
        data = store.read(name.file).to_pybytes()
    except CheckpointError:
        return True
    try:
        msgspec.json.decode(data, type=_Closed)
    except UNREADABLE:
        return False
    return True

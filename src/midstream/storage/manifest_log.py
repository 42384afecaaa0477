"""The log of manifests: one file per commit, named after the lease under which it was committed.

    manifests/<lease>-<epoch>.json

The newest manifest is the last one of the highest lease. So a late commit of a driver that was fenced would
not count; and it cannot even happen: a successor first *closes* the driver's log, by taking the name of the
manifest that it would commit next. Only one of the two gets the name. Either the driver has committed, and
its successor goes on from there; or the driver finds the name taken.

    lease 7    7-41   7-42   7-43 (closed by 8)
    lease 8                  8-43   8-44

A closed name is never freed. The manifests of earlier formats have no lease in their names; they count as
those of a lease 0.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import msgspec

from midstream.errors import CheckpointError, FencedError, FormatError
from midstream.protocol.coordinator import EPOCHS_KEPT
from midstream.state.json_with_digest import RESTORE, UNREADABLE, digest_in
from midstream.state.manifest import Manifest, decode_manifest, encode_manifest
from midstream.storage.slice_files import FOLDER as SLICES
from midstream.storage.store import Store

FOLDER = "manifests"
_CLOSED_SUFFIX = ".closed"
"""An empty file with this suffix marks a file that closes a log, so that it need not be read to know."""
_log = logging.getLogger("midstream")
_NAME = re.compile(rf"{FOLDER}/(?:(\d{{12}})-)?(\d{{12}})\.json\Z")


class _Closed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file that closes a log, in place of a manifest."""

    closed_by: int


class ManifestName(NamedTuple):
    """The name of a manifest's file; names are ordered from old to new."""

    lease: int
    epoch: int
    file: str
    closed: bool = False
    """Whether the file is marked as one that closes a log."""


@dataclass(frozen=True)
class Committed:
    """A manifest as it is stored, with the digest by which the next one refers to it."""

    manifest: Manifest
    digest: str


def manifest_files(store: Store) -> list[ManifestName]:
    """The files of manifests and those that close a log, oldest first."""
    names = set(store.list(FOLDER))
    matches = (_NAME.match(name) for name in names)
    return sorted(
        ManifestName(int(m[1] or 0), int(m[2]), m[0], f"{m[0]}{_CLOSED_SUFFIX}" in names)
        for m in matches
        if m
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

    If the newest one is damaged, the query goes on from the one before it, and runs the epoch again with the
    same rows and the same results. The damaged file is set aside, so that the epoch can be committed again.
    If more than one is damaged, this is refused.
    """
    # The commit may have failed before the manifest was durable. It must be before we go on from it.
    store.sync(FOLDER)
    names = list(islice(manifests_newest_first(store), 2))
    if not names:
        return None
    try:
        newest = read_manifest(store, names[0])
    except FormatError:
        raise  # it is not damaged: another version of Midstream has written it
    except CheckpointError as damage:
        # If a watermark was set back, the one before it is of the same epoch, without that change.
        if len(names) < 2 or names[1].epoch != names[0].epoch - 1:
            raise
        before = read_manifest(store, names[1])
        store.put(f"{names[0].file}.damaged", store.read(names[0].file))
        # Not deleted: its name must not become free for a driver that was fenced.
        store.put(names[0].file, msgspec.json.encode(_Closed(lease)))
        store.put(f"{names[0].file}{_CLOSED_SUFFIX}", b"")
        # If a power cut undid this after the epoch was committed again, and the damaged file were repaired,
        # there would be two manifests of the epoch.
        store.sync(FOLDER)
        _log.warning("%s; going on from the manifest of epoch %d before it", damage, before.manifest.epoch)
        return before
    if len(names) == 2:
        _check_follows(store, names[1], newest.manifest)
    return newest


def _check_follows(store: Store, name: ManifestName, newest: Manifest) -> None:
    """Refuse manifests that were put together from several checkpoints."""
    try:
        before = read_manifest(store, name)
    except CheckpointError:
        return  # it is damaged, and needed only for this comparison
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
    """Write a manifest and give its digest. This is the commit: before it nothing happened, then all did."""
    name = manifest_name(manifest.lease, manifest.epoch)
    # One call for the slices of all tasks: a call in each task would take most of a small epoch's time.
    store.sync(SLICES)
    data = encode_manifest(manifest)
    # If only the response was lost, the file is ours, to the byte.
    if not store.put_if_absent(name, data) and store.read(name).to_pybytes() != data:
        raise FencedError(
            "an epoch must be committed by one driver only",
            got=f"{name} exists already",
            hint="another driver has taken over this checkpointLocation and goes on; this one is no longer "
            "needed",
        )
    return digest_in(data)


def close_log(store: Store, lease: int, by: int) -> None:
    """Take the names under which the holder of a lease would commit next, so that it no longer can.

    A query commits the next epoch; a reset of a watermark commits the newest epoch again.
    """
    closed = msgspec.json.encode(_Closed(by))
    while True:
        newest = next(manifests_newest_first(store), None)
        if newest is not None:
            same_epoch = manifest_name(lease, newest.epoch)
            if store.put_if_absent(same_epoch, closed):
                store.put(f"{same_epoch}{_CLOSED_SUFFIX}", b"")
        name = manifest_name(lease, newest.epoch + 1 if newest else 0)
        if store.put_if_absent(name, closed) or _is_closed_name(store, name):
            store.put(f"{name}{_CLOSED_SUFFIX}", b"")
            return
        if newest is not None and newest.lease > lease:
            return  # a later driver has committed: the file with this name does not count
        # The holder has committed meanwhile, and may be about to commit again.


def files_by_epoch(names: Iterable[ManifestName]) -> dict[int, list[str]]:
    """The files of manifests by epoch, in their order; an epoch has several if a watermark was set back."""
    files: dict[int, list[str]] = {}
    for name in names:
        files.setdefault(name.epoch, []).append(name.file)
    return files


def delete_manifests(store: Store, files: Sequence[str]) -> None:
    """Delete the manifests of one epoch, oldest first; those of earlier epochs have been deleted before.

    Each refers to the one before it. So if there are several, none may come back by a power cut that leaves a
    gap after it.
    """
    for file in files:
        if len(files) > 1:
            store.sync(FOLDER)
        store.delete(file)


def sweep_manifests(store: Store, epoch: int) -> None:
    """Delete old manifests that earlier drivers died before deleting."""
    newest_unneeded = epoch - EPOCHS_KEPT
    old = [
        name
        for name in manifest_files(store)
        # Every run does this once: any file that is much older closes a log, and is not read each time.
        if newest_unneeded - EPOCHS_KEPT < name.epoch <= newest_unneeded and not _is_closed(store, name)
    ]
    for files in files_by_epoch(old).values():
        delete_manifests(store, files)


def manifest_name(lease: int, epoch: int) -> str:
    """The file of a manifest."""
    return f"{FOLDER}/{lease:012d}-{epoch:012d}.json"


def _is_closed_name(store: Store, name: str) -> bool:
    """Whether a name that is taken closes a log; its mark is enough, the file itself may be damaged."""
    return any(_is_closed(store, file) for file in manifest_files(store) if file.file == name)


def _is_closed(store: Store, name: ManifestName) -> bool:
    """Whether a file closes a log, or has been deleted since it was listed."""
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

"""Reading and writing manifests, one file per epoch."""

from __future__ import annotations

import logging
import re

from midstream.errors import CheckpointError
from midstream.protocol.coordinator import EPOCHS_KEPT
from midstream.state.manifest import Manifest, decode_manifest, encode_manifest
from midstream.storage.slices import FOLDER as SLICES
from midstream.storage.store import Store

FOLDER = "manifests"
_log = logging.getLogger("midstream")
_NAME = re.compile(rf"{FOLDER}/\d{{12}}\.json\Z")


def manifest_names(store: Store) -> list[str]:
    """The files of manifests, oldest first."""
    return [name for name in store.list(FOLDER) if _NAME.match(name)]


def newest_manifest(store: Store) -> Manifest | None:
    """The manifest of the last committed epoch, or None if nothing was ever committed."""
    names = manifest_names(store)
    return read_manifest(store, names[-1]) if names else None


def restore_manifest(store: Store) -> Manifest | None:
    """The newest valid manifest, for a driver that holds the lease.

    If the newest one is damaged, the one before it is as good: its epoch is run again, with the same rows
    and the same results. The damaged file is set aside, so that the epoch can be committed again. More
    than one is not a damaged file but a damaged checkpoint, and refused.
    """
    # A commit may have failed when its manifest was there but would not outlast the machine. Whoever goes
    # on from it, and says so to others, must be sure that it will.
    store.sync(FOLDER)
    names = manifest_names(store)
    try:
        return newest_manifest(store)
    except CheckpointError as damage:
        if len(names) < 2:
            raise
        before = read_manifest(store, names[-2])
        store.put(f"{names[-1]}.damaged", store.read(names[-1]))
        store.delete(names[-1])
        _log.warning("%s; going on from the manifest of epoch %d before it", damage, before.epoch)
        return before


def read_manifest(store: Store, name: str) -> Manifest:
    """One manifest, which must be that of the epoch that its name says."""
    manifest = decode_manifest(store.read(name).to_pybytes(), name)
    if name != _name(manifest.epoch):
        raise CheckpointError(
            f"manifest {name} must be that of its epoch",
            got=f"epoch {manifest.epoch}",
            hint="restore the file, or start a new query with another checkpointLocation",
        )
    return manifest


def commit_manifest(store: Store, manifest: Manifest) -> None:
    """Make a manifest the truth. This is the commit: before it nothing happened, after it everything did."""
    name = _name(manifest.epoch)
    # One call for the slices of all tasks: each of them doing so would cost most of a small epoch.
    store.sync(SLICES)
    if not store.put_if_absent(name, encode_manifest(manifest)):
        raise CheckpointError(
            "an epoch must be committed by one driver only",
            got=f"{name} exists already",
            hint="another query is running on this checkpointLocation: stop one of them",
        )


def forget_manifests(store: Store, epoch: int) -> None:
    """Delete the manifest that is old enough after ``epoch`` was committed."""
    if epoch >= EPOCHS_KEPT:
        store.delete(_name(epoch - EPOCHS_KEPT))


def sweep_manifests(store: Store, epoch: int) -> None:
    """Delete older manifests, too, that drivers which died did not come to delete."""
    for name in manifest_names(store):
        if name <= _name(epoch - EPOCHS_KEPT):
            store.delete(name)


def _name(epoch: int) -> str:
    return f"{FOLDER}/{epoch:012d}.json"

"""Opening a checkpoint under a lease: the manifest that a query resumes from, or begins with."""

from __future__ import annotations

from midstream.errors import CheckpointError
from midstream.state.manifest import Manifest, digest_of
from midstream.storage.intents import find_intent, intent_name
from midstream.storage.manifest_log import Committed, restore_manifest
from midstream.storage.publish_log import check_newest, last_noted
from midstream.storage.store import Store


def open_manifest(store: Store, lease: int) -> Committed | None:
    """The manifest that the query resumes from: its newest one; None if it was never begun.

    If the first epoch was begun but never committed, its intent has the manifest that the query began with.
    It must begin with the same again: a sink may have had results of that epoch.
    """
    # Read before the manifests: otherwise what a successor publishes meanwhile would look like damage.
    published = last_noted(store)
    stored = restore_manifest(store, lease)
    check_newest(stored.manifest if stored is not None else None, published)
    if stored is not None:
        return stored
    begun = find_intent(store, 0)
    if begun is None:
        return None
    if begun.first is None:
        raise CheckpointError(
            "the intent of a first epoch must say what the query began with",
            got=f"nothing in {intent_name(0)}",
            hint="start a new query with another checkpointLocation",
        )
    return as_committed(begun.first)


def as_committed(first: Manifest) -> Committed:
    """The manifest before the first epoch, as if it had been committed."""
    return Committed(first, digest_of(first))

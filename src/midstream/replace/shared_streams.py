"""The streams that two definitions share, and whether the old one has stored what the new one needs."""

from __future__ import annotations

from midstream.query.query import Query
from midstream.state.manifest import Manifest


def shared_streams(old: Query, new: Query) -> tuple[str, ...]:
    """The streams that both definitions have."""
    return tuple(name for name in new.names if name in old.by_name)


def keeps_all_keys(old: Query, new: Query, stream: str) -> bool:
    """Whether rows that the old definition drops for a key, because it is null, are dropped by the new one.

    Then the old box has stored all that the new one needs.
    """
    new_keys = [frozenset(key_class.of(stream)) for key_class in new.classes]
    old_keys = [frozenset(key_class.of(stream)) for key_class in old.classes]
    return all(any(old_key <= new_key for new_key in new_keys) for old_key in old_keys)


def has_dropped_rows(old: Query, manifest: Manifest, new: Query, stream: str) -> bool:
    """Whether the old box has dropped rows of a stream for their keys that the new one would have taken."""
    return manifest.streams[stream].null_key > 0 and not keeps_all_keys(old, new, stream)

"""The terms that a simulated user may ask for: while state is spilled, windows stay as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from midstream.errors import CheckpointError
from midstream.protocol.query_terms import committed_terms, read_windows
from midstream.query.query import Query
from midstream.query.window import Windows
from midstream.state.manifest import Manifest
from midstream.storage.manifest_log import manifests_newest_first, read_manifest
from midstream.storage.memory_store import MemoryStore


def possible_terms(store: MemoryStore, asked: Sequence[Query]) -> list[Query]:
    """The queries, with the windows of the last epoch if state is spilled."""
    manifest = next(sound_manifests(store), None)
    if manifest is None or not manifest.memory.cuts:
        return list(asked)
    windows = read_windows(committed_terms(manifest).within)
    return [replace(query, windows=windows) for query in asked]


def widest(queries: Sequence[Query]) -> Query:
    """The first query, with windows as wide as any of them has."""
    widths = zip(*(query.windows.widths for query in queries), strict=True)
    return replace(queries[0], windows=Windows(tuple(max(of_pair) for of_pair in widths)))


def refuses_windows(error: CheckpointError) -> bool:
    """Whether a driver ends because an epoch that was begun before has spilled state since it was started."""
    return str(error).startswith("windows must stay as they are while state is spilled")


def sound_manifests(store: MemoryStore) -> Iterator[Manifest]:
    """The manifests that a start may go on from, newest first: it passes over one that is damaged."""
    for name in manifests_newest_first(store):
        with suppress(CheckpointError):
            yield read_manifest(store, name).manifest

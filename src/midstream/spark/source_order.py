"""The order of Spark's sources, which its checkpoint knows only by their position.

A definition may add streams when it replaces another one. Their sources come last, and in the offsets of
batches from before there is none of them yet: a line with a dash, as Spark itself writes for a source
that has had no rows. A source cannot be taken out: those after it would get another position, and with it
the progress of another source.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from midstream.errors import CheckpointError
from midstream.state.manifest import Manifest
from midstream.storage.store import Store

_OFFSETS = "spark/offsets"
_HEADER = 2
"""The lines of a file of offsets before those of the sources."""


def in_order(manifest: Manifest, frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """The streams in the order in which Spark's checkpoint has their sources, new ones last."""
    before = manifest.sources or tuple(manifest.definition["order"])
    missing = [name for name in before if name not in frames]
    if missing:
        raise CheckpointError(
            f"a query must have all sources that Spark's checkpoint has: {', '.join(before)}",
            got=f"no stream {missing[0]}",
            hint="add the stream, or start a new query with another checkpointLocation",
        )
    return {name: frames[name] for name in (*before, *(n for n in frames if n not in before))}


def add_sources(store: Store, count: int) -> None:
    """Let Spark go on with so many sources, of which the last may be new. May be repeated."""
    names = [name for name in store.list(_OFFSETS) if name.rpartition("/")[2].isdecimal()]
    for name in names:
        lines = store.read(name).to_pybytes().decode().splitlines()
        lacks = _HEADER + count - len(lines)
        if lacks > 0:
            store.delete(f"{_OFFSETS}/.{name.rpartition('/')[2]}.crc")  # that of the other content
            store.put(name, "\n".join([*lines, *["-"] * lacks]).encode())
    if names:
        store.sync(_OFFSETS)

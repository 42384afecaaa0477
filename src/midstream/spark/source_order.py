"""The order of Spark's sources, which its checkpoint knows only by their position.

A definition that replaces another one may add streams, whose sources come last. It may also leave some out.
The places of those are kept by sources that have no rows, so that the sources after them keep their
positions, and with these their progress. A stream that comes back is a new one, and comes last.

In the offsets of a batch, a source that has had no rows is a line with a dash. So Spark writes it, and so it
is written here: for a new source in batches from before it was added, and in all
batches for one that has left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame

from midstream.errors import CheckpointError, QueryError
from midstream.spark.logical_plan import is_source, nodes_of
from midstream.state.manifest import Manifest
from midstream.storage.store import Store

_OFFSETS = "spark/offsets"
_SOURCES = "spark/sources"
_VERSION = "v1"
"""Of the offsets that have a line for each source, in the order of their positions."""
_HEADER = 2
"""The lines of a file of offsets before those of the sources."""
_NO_ROWS = "-"

_NO_FILES = "file:///midstream/reads/nothing/*"
"""What a source of files may be given that is to find none: that a pattern matches nothing is no error."""


def in_order(manifest: Manifest, frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """The streams in the order in which Spark's checkpoint has their sources, new ones last.

    In the places of streams that have left there are others, under names that no stream has.
    """
    before = _before(manifest)
    missing = [name for name in before if name and name not in frames]
    if missing:
        raise CheckpointError(
            f"a query must have all sources that Spark's checkpoint has: {', '.join(filter(None, before))}",
            got=f"no stream {missing[0]}",
            hint="add the stream, or start a new query with another checkpointLocation",
        )
    session = next(iter(frames.values())).sparkSession
    ordered = {
        name or f"left out, {place}": frames[name] if name else _without_rows(session)
        for place, name in enumerate(before)
    }
    return ordered | {name: frame for name, frame in frames.items() if name not in ordered}


def fit_checkpoint(store: Store, ordered: Mapping[str, DataFrame], frames: Mapping[str, DataFrame]) -> None:
    """Let Spark go on with these sources, of which those that are not in ``frames`` keep a place.

    May be repeated, and must be before each start: the last run may have read a stream that has left.
    """
    places = [(name, source) for name, frame in ordered.items() for source in _sources_of(frame)]
    kept = {place for place, (name, _) in enumerate(places) if name not in frames}
    for folder in _folders(places, kept):
        for name in store.list(f"{_SOURCES}/{folder}"):
            store.delete(name)
    names = [name for name in store.list(_OFFSETS) if name.rpartition("/")[2].isdecimal()]
    for name in names:
        before = store.read(name).to_pybytes().decode().splitlines()
        offsets = before[_HEADER:] + [_NO_ROWS] * (len(places) - len(before) + _HEADER)
        after = [_NO_ROWS if place in kept else offset for place, offset in enumerate(offsets)]
        if after == before[_HEADER:]:
            continue
        if before[0] != _VERSION:
            raise CheckpointError(
                "streams must be added or left out where Spark's checkpoint knows sources by their position",
                got=f"offsets of version {before[0]}",
                hint="start a new query with another checkpointLocation",
            )
        store.delete(f"{_OFFSETS}/.{name.rpartition('/')[2]}.crc")  # that of the other content
        store.put(name, "\n".join([*before[:_HEADER], *after]).encode())
    if names:
        store.sync(_OFFSETS)


def check_can_add(manifest: Manifest, frames: Mapping[str, DataFrame]) -> None:
    """Refuse a stream that is added with a source of another one: Spark would go on where that one is."""
    before = _before(manifest)
    read = [(name, source) for name in frames if name in before for source in _sources_of(frames[name])]
    for added in (name for name in frames if name not in before):
        for source in _sources_of(frames[added]):
            for name in (name for name, other in read if source.equals(other)):
                raise QueryError(
                    "a stream that is added must have a DataFrame of its own, to be read from its beginning",
                    got=f"stream {added!r}, which has that of stream {name!r}",
                    hint="make it anew, with spark.readStream",
                )


def _before(manifest: Manifest) -> tuple[str, ...]:
    """The streams whose sources Spark's checkpoint has, in order; an empty name for one that has left."""
    return manifest.sources or tuple(manifest.definition["order"])


def check_can_remove(stream: str, frames: Mapping[str, DataFrame]) -> None:
    """Refuse to leave out a stream whose place no other source can keep."""
    own = list(_sources_of(frames[stream]))
    others = [source for name, frame in frames.items() if name != stream for source in _sources_of(frame)]
    shared = any(source.equals(other) for source in own for other in others)
    if len(own) != 1 or shared:
        raise QueryError(
            "a stream that is left out must have read one source, which no other stream reads",
            got=f"stream {stream!r}, whose DataFrame another stream has, too"
            if shared
            else f"stream {stream!r}, which reads {len(own)} sources",
            hint="start a new query with another checkpointLocation",
        )


def _without_rows(session: Any) -> DataFrame:
    frame: DataFrame = session.readStream.schema("nothing int").parquet(_NO_FILES)
    return frame


def _sources_of(frame: DataFrame) -> Iterator[Any]:
    """The places where a stream is read in the plan of a DataFrame; each has a line in a file of offsets."""
    return (node for node in nodes_of(frame) if is_source(node))


def _folders(places: list[tuple[str, Any]], wanted: set[int]) -> Iterator[int]:
    """The numbers of the folders of some sources: one that is read in several places has one."""
    distinct: list[Any] = []
    for place, (_, source) in enumerate(places):
        if place in wanted:
            yield len(distinct)
        if not any(source.equals(other) for other in distinct):
            distinct.append(source)

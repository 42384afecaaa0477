"""Terms: what a query may ask differently when it is started again: lateness, windows and outputs.

The definition in a manifest has the terms of its epoch, the intent of an epoch those that it runs with. So a
change holds from the next epoch that is begun, and one that was begun before runs again as it was.

- A watermark never goes back: a longer lateness accepts more rows once the stream has advanced by the
  difference, a shorter one moves the watermark with the next epoch.
- :mod:`midstream.state.window_change` says which rows meet after a change of the windows.
- Outputs may be any of the columns that the states keep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from midstream.errors import CheckpointError, QueryError
from midstream.memory.holds import holds_of
from midstream.query.clauses import Output
from midstream.query.query import Query
from midstream.query.sql import split_name
from midstream.query.stream import ColumnRef
from midstream.query.types import show_type
from midstream.query.window import Windows
from midstream.state.expiry import Expiry
from midstream.state.json_with_digest import RESTORE
from midstream.state.manifest import Manifest
from midstream.state.window_change import WindowChange
from midstream.values import Micros, duration, show_duration

_AS = " AS "


class QueryTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The terms of a query, as plain values that a person can read."""

    lateness: dict[str, str]
    within: dict[str, str]
    select: list[str]


def terms_of(query: Query) -> QueryTerms:
    """The terms that a query has."""
    return QueryTerms(
        lateness={stream.name: show_duration(stream.lateness) for stream in query.streams},
        within={f"{a}, {b}": show_duration(width) for a, b, width in query.windows.widths},
        select=describe_outputs(query.outputs),
    )


def committed_terms(manifest: Manifest) -> QueryTerms:
    """The terms of the last epoch; before the first, those that the query began with."""
    return described_terms(manifest.definition)


def described_terms(definition: Mapping[str, Any]) -> QueryTerms:
    """The terms in a definition."""
    lateness = {name: source["lateness"] for name, source in definition["streams"].items()}
    return QueryTerms(lateness, definition["within"], definition["select"])


def with_terms(definition: Mapping[str, Any], terms: QueryTerms) -> dict[str, Any]:
    """A definition with other terms."""
    streams = {n: {**source, "lateness": terms.lateness[n]} for n, source in definition["streams"].items()}
    return {**definition, "streams": streams, "within": terms.within, "select": terms.select}


def query_on(terms: QueryTerms, query: Query) -> Query:
    """The query on other terms, which must be such that it can have them."""
    if terms == terms_of(query):
        return query
    try:
        kept = {str(output.ref): output for output in query.kept}
        outputs = [(kept[ref], name) for ref, name in map(split_output, terms.select)]
        return replace(
            query,
            streams=tuple(
                replace(s, lateness=duration(terms.lateness[s.name], "lateness")) for s in query.streams
            ),
            windows=read_windows(terms.within),
            outputs=tuple(replace(output, name=name) for output, name in outputs),
        )
    except (KeyError, ValueError, QueryError) as error:
        raise CheckpointError(
            "an epoch must run on terms that its query can have", got=error, hint=RESTORE
        ) from None


def check_terms(manifest: Manifest, query: Query) -> None:
    """Refuse terms that the state of a query, or its earlier results, do not allow."""
    before = committed_terms(manifest)
    bounded = {pair for pair in before.within if query.windows.width(*pair.split(", ")) is None}
    if bounded:
        pair = min(bounded)
        raise CheckpointError(
            f"streams that are joined within a window must keep one: {pair} had {before.within[pair]!r}",
            got="none",
            hint="say a long one; a change of plan may be waiting for rows to expire",
        )
    kept = {output.ref: output for output in query.kept}
    # Also under names that no output has now: results of all epochs are in one table.
    described = (*manifest.earlier_outputs, *before.select)
    types = {name.lower(): kept_type for name, kept_type in _types_of(described, kept)}
    for output in query.outputs:
        if output.ref not in kept:
            raise CheckpointError(
                f"a query must select columns that its state has: {', '.join(map(str, kept))}",
                got=str(output.ref),
                hint="these are the columns that were selected when it began; to have others, start a new "
                "query with another checkpointLocation",
            )
        was = types.get(output.name.lower(), output.type)
        if was != output.type:
            raise CheckpointError(
                f"an output must keep its type as long as it keeps its name: {output.name} was "
                f"{show_type(was)}",
                got=f"{output.ref} of type {show_type(output.type)}",
                hint="give it another name in select",
            )


def _types_of(select: Sequence[str], kept: Mapping[ColumnRef, Output]) -> list[tuple[str, Any]]:
    by_text = {str(ref): output.type for ref, output in kept.items()}
    named = map(split_output, select)
    return [(name, by_text[ref]) for ref, name in named if ref in by_text]


def outputs_before(manifest: Manifest, terms: QueryTerms) -> tuple[str, ...]:
    """The outputs of epochs up to ``manifest`` under names that one on these terms has not; one of each."""
    before = (*manifest.earlier_outputs, *committed_terms(manifest).select)
    by_name = {split_output(described)[1].lower(): described for described in before}
    now = {split_output(described)[1].lower() for described in terms.select}
    return tuple(described for name, described in by_name.items() if name not in now)


def describe_outputs(outputs: Sequence[Output]) -> list[str]:
    """Outputs as text, as they could be written in ``select``, but for the quotes of their names."""
    return [f"{output.ref}{_AS}{output.name}" for output in outputs]


def read_columns(described: Sequence[str]) -> list[tuple[ColumnRef, str]]:
    """The columns and names of described outputs."""
    columns = []
    for ref, name in map(split_output, described):
        stream, *path = split_name(ref)
        columns.append((ColumnRef(stream, tuple(path)), name))
    return columns


def split_output(described: str) -> tuple[str, str]:
    """What it is and its name; either may contain the word between them, the first only in quotes."""
    position = -1
    while (position := described.find(_AS, position + 1)) >= 0:
        if described.count("`", 0, position) % 2 == 0:
            return described[:position], described[position + len(_AS) :]
    raise ValueError(f"{described!r} is no output")


def read_windows(described: Mapping[str, str]) -> Windows:
    """The windows of a description."""
    pairs = ((pair.split(", "), width) for pair, width in described.items())
    return Windows(tuple((a, b, duration(width, "a window")) for (a, b), width in pairs))


def lateness_of_definition(manifest: Manifest, stream: str) -> Micros:
    """The lateness of a stream in the last epoch."""
    return duration(manifest.definition["streams"][stream]["lateness"], "lateness")


def window_changes_for(manifest: Manifest, terms: QueryTerms) -> tuple[WindowChange, ...]:
    """The changes of the windows up to the epoch after ``manifest``, which runs on these terms."""
    before = committed_terms(manifest).within
    if before == terms.within:
        return manifest.window_changes
    change = WindowChange(
        epoch=manifest.epoch + 1,
        within=read_windows(before).widths,
        watermarks={name: stream.watermark for name, stream in manifest.streams.items()},
        latest={name: stream.latest for name, stream in manifest.streams.items()},
    )
    return (*manifest.window_changes, change)


def expiry_after(manifest: Manifest) -> Expiry:
    """What has expired after the epoch of a manifest."""
    watermarks = {name: stream.watermark for name, stream in manifest.streams.items()}
    windows = read_windows(manifest.definition["within"])
    holds = holds_of(manifest.memory, frozenset(manifest.streams))
    return Expiry(windows, watermarks, manifest.window_changes, holds)


def active_window_changes(manifest: Manifest) -> tuple[WindowChange, ...]:
    """The changes from before which rows may still be in a result after the epoch of a manifest."""
    if not manifest.window_changes:
        return ()
    expiry = expiry_after(manifest)
    return tuple(
        change
        for change in manifest.window_changes
        if any(
            latest is not None and not expiry.has_expired((name,), (latest,), change.epoch - 1)
            for name, latest in change.latest.items()
        )
    )


def check_window_changes(manifest: Manifest) -> None:
    """Refuse a manifest with changes of windows that cannot be those of its streams."""
    names = set(manifest.streams)
    epochs = [change.epoch for change in manifest.window_changes]
    ordered = epochs == sorted(set(epochs)) and all(0 <= epoch <= manifest.epoch for epoch in epochs)
    complete = all(
        set(change.watermarks) == set(change.latest) == names
        and all({a, b} <= names and a < b and width >= 0 for a, b, width in change.within)
        for change in manifest.window_changes
    )
    if not (ordered and complete):
        raise CheckpointError(
            "a manifest must have changes of the windows of its streams", got=epochs, hint=RESTORE
        )

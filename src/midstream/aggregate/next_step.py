"""From a manifest to what the next epoch does about aggregates: the output watermark, and where groups merge.

The **output watermark** says that no result to come is before it. A result to come contains a row to come, or
it is owed by spilled groups, or it waits for the end of a migration:

- A row to come of stream j is not before the watermark of j. So the latest component of the result is not
  before the smallest watermark, and its component of stream i is neither before the watermark of i nor, for
  any j, further behind the watermark of j than the window of i and j.
- What a fragment owes straddles its oldest cut: one of its rows arrived after that, and was not before the
  watermark of its stream then, or it came from a fragment below that owed it then (``memory/holds.py``).
- While results wait for the end of a migration, the output watermark stands still: none of them is before it.

It never goes back. If the windows between streams become wider, rows that are too far apart by the narrower
ones meet only if they were still in reach at the change (``state/window_change.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from midstream.engine.aggregate_step import AggregateStep
from midstream.memory.holds import earliest_behind, owed_since
from midstream.migration.strategies import STRATEGIES
from midstream.plan.fragment_name import fragment_streams
from midstream.plan.layout import Fragment, FragmentInput, Layout
from midstream.plan.state_id import StateId
from midstream.query.aggregation import Aggregation, AggregationWindows
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.slices import Slice


def next_aggregate_step(query: Query, manifest: Manifest, layout: Layout) -> AggregateStep | None:
    """What the epoch after ``manifest`` does about aggregates; None for a query without any."""
    if query.aggregation is None:
        return None
    # At sites groups merge where the sink is: only partial aggregates go there, not results.
    site = "" if query.topology is None else query.topology.sink
    state = StateId.of(query.names, site=site)
    columns = tuple(column.name for column in query.aggregation.columns)
    fragment = Fragment(
        id=1 + max(each.id for each in layout.fragments),
        key=(),
        stage=layout.stages,
        inputs=(FragmentInput(state, columns),),
        nodes=(),
        site=site,
    )
    return AggregateStep(fragment, manifest.emitted, output_watermark(query, query.aggregation, manifest))


def output_watermark(query: Query, aggregation: Aggregation, manifest: Manifest) -> int | None:
    """No result after ``manifest`` is before it; None as long as any time is possible."""
    return earliest_result(query, manifest, aggregation.windows.stream)


def earliest_result(query: Query, manifest: Manifest, stream: str | None = None) -> int | None:
    """The same, for results that have the time of a stream, or that of their latest component."""
    strategy = None if manifest.migration is None else STRATEGIES.get(manifest.migration.strategy)
    if strategy is not None and strategy.defers_results:
        return manifest.emitted
    marks = {name: progress.watermark for name, progress in manifest.streams.items()}
    bounds = list(_bounds(query, stream, marks))
    for fragment, groups in manifest.memory.cuts.items():
        mark = manifest.memory.marks[min(cuts[0] for cuts in groups.values())]
        bounds += _bounds(query, stream, owed_since(mark, frozenset(fragment_streams(fragment))))
    now = None if None in bounds else min(bound for bound in bounds if bound is not None)
    known = [time for time in (manifest.emitted, now) if time is not None]
    return max(known, default=None)


def windows_are_due(query: Query, manifest: Manifest) -> bool:
    """Whether windows can leave now, without waiting for another row; those that change leave as they do."""
    aggregation = query.aggregation
    if aggregation is None or aggregation.is_update_mode:
        return False
    until = output_watermark(query, aggregation, manifest)
    if until is None:
        return False
    return any(
        is_due(aggregation.windows, s, manifest.emitted, until) for s in partial_slices(manifest.slices)
    )


def partial_slices(slices: Iterable[Slice]) -> Iterator[Slice]:
    """The slices of partial aggregates."""
    return (slice_ for slice_ in slices if slice_.owner.kind == "partial")


def is_due(windows: AggregationWindows, slice_: Slice, emitted: int | None, until: int) -> bool:
    """Whether a slice has rows of windows that end after ``emitted`` and until ``until``."""
    earliest = slice_.earliest if emitted is None else max(slice_.earliest, emitted)
    return windows.first_end_after(earliest) <= until


def is_near(windows: AggregationWindows, slice_: Slice, first: int, last: int) -> bool:
    """Whether a slice may have panes that are in a window with one from the first to the last."""
    return slice_.earliest < last + windows.length and max(slice_.latest) > first - windows.length


def is_out(windows: AggregationWindows, slice_: Slice, until: int | None) -> bool:
    """Whether all windows of a slice end until then."""
    return until is not None and max(slice_.latest) < windows.oldest_pane(until)


def _bounds(query: Query, stream: str | None, marks: Mapping[str, int | None]) -> Iterator[int | None]:
    """For each stream: the earliest time of a result with a row of it that is not before its mark."""
    for name, mark in marks.items():
        yield mark if stream is None else earliest_behind(stream, name, mark, query.windows)

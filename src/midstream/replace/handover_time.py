"""The hand-over time: up to it results are the old box's, after it the new one's.

It is fixed when the new box goes live, from what is known at that boundary, such that

- no result that has left before is after it: it is at or after the latest row of any stream;
- of a result after it, the new box has every row. Say its latest row is at ``t`` and it has a row of
  stream i. That is not before ``t`` less the longest window of i in the new definition. So if the new box
  has all rows of i that are not before some time, it is enough that the hand-over is at or after that
  time, less one, plus that window.

From which time on the new box has all rows of a stream depends on what it got of the old one's states. Of
a stream that is replayed, the old box has every row that a row to come can meet by its own windows
(``state/expiry.py``). Of one that is not, the new box has the rows that arrive from now on, so all that
are after the latest until now. Of one that the old box did not have, it gets all rows there are. Rows
that the old box has dropped for a null in a column that is no key of the new one count as rows that are not
replayed.

The old box is done when none of its results to come is at or before the hand-over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from midstream.aggregate.next_step import earliest_result
from midstream.query.query import Query
from midstream.query.window import Windows
from midstream.replace.shared_streams import has_dropped_rows, shared_streams
from midstream.state.manifest import Manifest

Marks = Mapping[str, int | None]


def handover_time(old: Query, manifest: Manifest, new: Query, replayed: Collection[str]) -> int | None:
    """The hand-over if the new box goes live after ``manifest``; None if no row has come yet."""
    times = [progress.latest for progress in manifest.streams.values() if progress.latest is not None]
    if not times:
        return None
    latest = max(times)
    for stream in shared_streams(old, new):
        if has_dropped_rows(old, manifest, new, stream):
            # Nothing is known of their times: as a rule they were not ahead of all others.
            complete_from: int | None = latest + 1
        else:
            complete_from = _complete_from(old, manifest, stream, stream in replayed)
        reach = longest_window(new, stream)
        if complete_from is not None and reach is not None:
            times.append(complete_from - 1 + reach)
    return max(times)


def longest_window(query: Query, stream: str) -> int | None:
    """The longest window of a stream with another one; None if it has none with some."""
    widths = [query.windows.width(stream, other) for other in query.names if other != stream]
    return None if None in widths else max(width for width in widths if width is not None)


def _complete_from(old: Query, manifest: Manifest, stream: str, replayed: bool) -> int | None:
    """The time from which on the new box has all rows of a stream; None if it has all there are."""
    latest = manifest.streams[stream].latest
    if latest is None or not replayed:
        return None if latest is None else latest + 1
    marks = {name: progress.watermark for name, progress in manifest.streams.items()}
    kept = [_kept_from(stream, old.windows, marks)]
    # What had expired when the windows changed may be gone, however wide they have become.
    kept += [_kept_from(stream, change.windows, change.watermarks) for change in manifest.window_changes]
    return max((time for time in kept if time is not None), default=None)


def _kept_from(stream: str, windows: Windows, watermarks: Marks) -> int | None:
    """The time from which on all rows of a stream are stored."""
    bounds = list(_reachable_from(stream, windows, watermarks))
    return None if None in bounds else min(bound for bound in bounds if bound is not None)


def _reachable_from(stream: str, windows: Windows, watermarks: Marks) -> Iterator[int | None]:
    for other, watermark in watermarks.items():
        if other != stream:
            window = windows.width(stream, other)
            yield None if watermark is None or window is None else watermark - window


def last_window_end(query: Query, until: int) -> int:
    """When the last window ends that is the old box's; without windows, when its last result may be."""
    windows = query.event_windows
    if windows is None:
        return until + 1
    return windows.first_end_after(until + windows.length) - windows.slide


def is_done(query: Query, manifest: Manifest, until: int | None) -> bool:
    """Whether nothing that is up to the hand-over leaves the old box after ``manifest``."""
    if until is None:
        return True
    # Windows that are complete leave with the epoch after that.
    reached = earliest_result(query, manifest) if query.aggregation is None else manifest.emitted
    return reached is not None and reached >= last_window_end(query, until)

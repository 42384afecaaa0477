"""What a shell knows of an epoch besides its report: when it was triggered, and where its sources are.

Offsets are the sources' own, as JSON. How far a source is behind follows from them: the sum of the
differences between the numbers of its latest offset and of the one that the epoch has read up to. A source of
files has no such offsets; there it is the number of files that it has found and not read yet.

Spark looks for more files only once it has read those that it had found. Until then their number goes down,
however many have come since, so it says nothing about a trend.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

BacklogUnit = Literal["offsets", "files"]
Trend = Literal["growing", "steady", "shrinking"]

TREND_EPOCHS = 8
"""A trend compares the older half of this many epochs with the newer half."""
_TREND_SHARE = 0.1
"""A backlog that differs by a smaller share is steady."""
_TREND_LEAST = 1
"""And so is one that differs by less: a file that is there a moment too early is no trend."""


@dataclass(frozen=True)
class Backlog:
    """What the source of a stream had when the epoch began and the epoch did not read."""

    count: int
    unit: BacklogUnit
    trend: Trend | None = None
    """Over the last epochs; None until there are enough of them."""
    listed: int | None = None
    """What it was when its source last looked for more, if that was in an earlier epoch."""

    @property
    def when_listed(self) -> int:
        """What it was when its source last looked for more."""
        return self.count if self.listed is None else self.listed

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"count": self.count, "unit": self.unit, "trend": self.trend}


@dataclass(frozen=True)
class FileCount:
    """Files that a source has found and no epoch has read yet."""

    unread: int
    when_listed: int | None = None
    """How many there were when the source last looked for more, if that was in an earlier epoch."""

    @classmethod
    def of(cls, unread: int, before: FileCount | None) -> FileCount:
        """Those after an epoch, given those after the epoch before it."""
        if before is None or before.unread == 0:
            return cls(unread)
        return cls(unread, before.unread if before.when_listed is None else before.when_listed)


@dataclass(frozen=True, kw_only=True)
class SourceOffsets:
    """What an epoch has read of one of Spark's sources. A stream that is a union has several."""

    description: str
    start_offset: str | None
    """The offset after which the epoch reads, in the source's own JSON; None at the very beginning."""
    end_offset: str | None
    """The offset up to which it reads."""
    latest_offset: str | None
    """The latest offset that the source had when the epoch began; None if it does not say."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Figures of the source's own."""
    files: FileCount | None = None
    """Of a source of files, if it keeps count."""

    def backlog(self) -> Backlog | None:
        """How far the source is behind after the epoch; None if it does not say."""
        if self.files is not None:
            return Backlog(self.files.unread, "files", listed=self.files.when_listed)
        behind = _offsets_behind(self.end_offset, self.latest_offset)
        return None if behind is None else Backlog(behind, "offsets")

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, with Spark's names."""
        return {
            "description": self.description,
            "startOffset": _parsed(self.start_offset),
            "endOffset": _parsed(self.end_offset),
            "latestOffset": _parsed(self.latest_offset),
            "metrics": dict(self.metrics),
        }


@dataclass(frozen=True, kw_only=True)
class TriggerFacts:
    """When an epoch was triggered, and what it has read of the sources of each stream."""

    started: datetime
    previous: datetime | None = None
    """When the trigger before it was; None in the first of a run."""
    sources: Mapping[str, tuple[SourceOffsets, ...]] = field(default_factory=dict)

    def seconds_until(self, end: datetime) -> float:
        """How long the epoch has taken until ``end``, at least a millisecond, as Spark has it."""
        return max((end - self.started).total_seconds(), 0.001)

    @property
    def seconds_since_previous(self) -> float | None:
        """How long the rows of the epoch have been coming in; None in the first of a run."""
        if self.previous is None:
            return None
        return max((self.started - self.previous).total_seconds(), 0.001)


def backlog_of(sources: Sequence[SourceOffsets], earlier: Iterable[Backlog | None]) -> Backlog | None:
    """The backlog of a stream: that of all its sources, if all say so in the same unit.

    ``earlier`` are the stream's backlogs of the epochs before, oldest first.
    """
    backlogs = [backlog for source in sources if (backlog := source.backlog()) is not None]
    units = {backlog.unit for backlog in backlogs}
    if len(backlogs) < len(sources) or len(units) != 1:
        return None
    has_looked = [backlog.listed is None for backlog in backlogs]
    total = Backlog(
        sum(backlog.count for backlog in backlogs),
        units.pop(),
        listed=None if all(has_looked) else sum(backlog.when_listed for backlog in backlogs),
    )
    before = [backlog for backlog in earlier if backlog is not None and backlog.unit == total.unit]
    counts = [backlog.when_listed for backlog in (*before, total)][-TREND_EPOCHS:]
    trend = trend_of(counts)
    if not any(has_looked):
        # Nothing new is known: what the last look has shown holds, and a first look shows no trend.
        last = before[-1].trend if before else None
        trend = last or (trend if len(set(counts)) > 1 else None)
    return replace(total, trend=trend)


def trend_of(counts: Sequence[int]) -> Trend | None:
    """Whether counts get more or fewer: their newer half against the older one; None if there are too few."""
    if len(counts) < TREND_EPOCHS:
        return None
    half = len(counts) // 2
    older, newer = sum(counts[:half]) / half, sum(counts[half:]) / (len(counts) - half)
    if abs(newer - older) <= max(_TREND_SHARE * older, _TREND_LEAST):
        return "steady"
    # A peak that is over by now has made the newer half larger, too.
    return "growing" if newer > older and counts[-1] > older else "shrinking"


def _offsets_behind(end: str | None, latest: str | None) -> int | None:
    """The sum of the differences between the numbers that both offsets have, each in the same place."""
    reached, known = _numbers(_parsed(end)), _numbers(_parsed(latest))
    shared = reached.keys() & known.keys()
    return sum(max(0, known[place] - reached[place]) for place in shared) if shared else None


def _numbers(value: Any, place: tuple[str, ...] = ()) -> dict[tuple[str, ...], int]:
    """The whole numbers in a JSON value by where they are, such as ``("topic", "0")``."""
    if isinstance(value, dict):
        parts = (_numbers(inner, (*place, key)) for key, inner in value.items())
        return {key: number for part in parts for key, number in part.items()}
    return {place: value} if isinstance(value, int) and not isinstance(value, bool) else {}


def _parsed(offset: str | None) -> Any:
    """An offset as a JSON value; one that is not JSON stays text, as in Spark."""
    if offset is None:
        return None
    try:
        return json.loads(offset)
    except ValueError:
        return offset

"""Problems: what is wrong with a running query and may last, each kind as a type of event.

An event says that a problem ``began``, that it ``continues``, or that it is ``over``. Which problems there
are after an epoch, and which events are due, is decided in :mod:`midstream.protocol.health`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from midstream.protocol.event import Event, Severity, pluralized
from midstream.protocol.trigger_facts import BacklogUnit, Trend

Status = Literal["began", "continues", "over"]


class Problem(Event, frozen=True, kw_only=True):
    """Something is wrong, or no longer. Once it is over, the figures are those of when it was last found."""

    # Good news too: a log that showed that a problem began must show that it is over.
    severity: ClassVar[Severity] = "warning"
    over: ClassVar[str]
    """The text for people once the problem is over."""

    status: Status = "began"
    since: int
    """The epoch in which it began; after a restart, the last one before it."""

    @property
    def subject(self) -> str:
        """What has the problem: the name of a stream, or nothing if it is the query as a whole."""
        return ""

    @property
    def message(self) -> str:
        """The problem as a text for people."""
        text = self.over if self.status == "over" else self.template
        still = f"still, since batch {self.since}: " if self.status == "continues" else ""
        return still + text.format_map(self._shown)

    @property
    def _shown(self) -> dict[str, object]:
        """What the texts may name."""
        return {
            name: "; ".join(value) if isinstance(value, tuple) else value
            for name, value in msgspec.structs.asdict(self).items()
        }


class StreamProblem(Problem, frozen=True, kw_only=True):
    """Something is wrong with a stream."""

    stream: str

    @property
    def subject(self) -> str:
        """The name of the stream."""
        return self.stream


class StreamMissing(StreamProblem, frozen=True, kw_only=True, tag="stream-missing"):
    """A stream has never had a row that could be joined."""

    template: ClassVar[str] = (
        "stream {stream} has never had a row that could be joined, of {rows:,} rows in all: there can be no "
        "results before it has; check its source, and the null keys and late rows of its progress"
    )
    over: ClassVar[str] = "stream {stream} has rows now"

    rows: int
    """Rows that it has had, none of which could be joined."""


class StreamIdle(StreamProblem, frozen=True, kw_only=True, tag="stream-idle"):
    """A stream has been silent for longer than ``idleTimeout``."""

    template: ClassVar[str] = "stream {stream} is idle: state expires without waiting for it"
    over: ClassVar[str] = "stream {stream} has rows again"


class StreamStalled(StreamProblem, frozen=True, kw_only=True, tag="stream-stalled"):
    """A silent stream keeps the state of all others from expiring."""

    template: ClassVar[str] = (
        "stream {stream} has stalled: it has had no row that could be joined while the event time of the "
        "others advanced by {silent_ms:,} ms; state grows until it has such rows again; set idleTimeout to "
        "go on without it; check its source, and the null keys and late rows of its progress"
    )
    over: ClassVar[str] = "stream {stream} no longer stands still"

    silent_ms: int
    """By how much the event time of the others has advanced since a row of it was accepted."""


class EventTimeStalled(StreamProblem, frozen=True, kw_only=True, tag="event-time-stalled"):
    """A stream has rows, but its event time stands still and keeps the state of all others from expiring."""

    template: ClassVar[str] = (
        "stream {stream} has rows, but its newest event time stands still, {behind_ms:,} ms behind that of "
        "the others, which is more than the window; state grows until it advances: check the source's clock"
    )
    over: ClassVar[str] = "the event time of stream {stream} advances again, or is no longer far behind"

    behind_ms: int


class LateRows(StreamProblem, frozen=True, kw_only=True, tag="late-rows"):
    """A large share of a stream's rows is late, and is not joined."""

    template: ClassVar[str] = (
        "stream {stream} has many late rows: {share:.1%} of the last {rows:,} {reason}, and were not joined; "
        "{hint}"
    )
    over: ClassVar[str] = "few rows of stream {stream} are late now"

    rows: int
    late: int
    """Rows that were late or had no time."""
    null_time: int
    """Those of them that had no time: no lateness would accept them."""
    share: float

    @property
    def _shown(self) -> dict[str, object]:
        reason, hint = "were late", "if they should be, raise its lateness"
        if self.null_time == self.late:
            reason, hint = "had no time", "give them one in the DataFrame, or filter them out there"
        elif self.null_time:
            reason += f" or, {self.null_time:,} of these {self.late:,}, had no time"
            hint = "if those that were late should be, raise its lateness"
        return {**super()._shown, "reason": reason, "hint": hint}


class FutureRows(StreamProblem, frozen=True, kw_only=True, tag="future-rows"):
    """A stream has rows that are further ahead of the clock than ``maxEventTimeAhead``."""

    template: ClassVar[str] = (
        "stream {stream} has rows that are further ahead than maxEventTimeAhead, {rows:,} in the last "
        "batches: they are not joined; check its clock, or if the times are right, raise maxEventTimeAhead "
        "or set eventTimeClock to 'stream'"
    )
    over: ClassVar[str] = "stream {stream} has no rows any more that are further ahead than maxEventTimeAhead"

    rows: int


class StreamLagging(StreamProblem, frozen=True, kw_only=True, tag="stream-lagging"):
    """A stream falls behind its source."""

    template: ClassVar[str] = (
        "stream {stream} lags behind its source: {unread} not read yet, {trend}; "
        "let batches read more, or give the query more cores"
    )
    over: ClassVar[str] = "stream {stream} catches up with its source"

    backlog: int
    unit: BacklogUnit
    trend: Trend

    @property
    def _shown(self) -> dict[str, object]:
        return {**super()._shown, "unread": pluralized(self.backlog, self.unit.removesuffix("s"))}


class StateUnbounded(Problem, frozen=True, kw_only=True, tag="state-unbounded"):
    """No window bounds some pairs of streams, so rows are kept for ever."""

    template: ClassVar[str] = (
        "no window bounds {unbounded}: rows are kept for ever, {rows:,} of them in {bytes:,} bytes by now; "
        "set windows with within()"
    )
    over: ClassVar[str] = "windows bound all state"

    unbounded: tuple[str, ...]
    """Pairs of streams; with a window for each of them, all state would be bounded."""
    rows: int
    bytes: int


class StateGrowing(Problem, frozen=True, kw_only=True, tag="state-growing"):
    """State has grown with every window that has passed."""

    template: ClassVar[str] = (
        "state grows without end: {rows_before:,} rows {windows} windows ago, {rows:,} now; if no stream is "
        "behind the others, more rows come in than before"
    )
    over: ClassVar[str] = "state has stopped growing"

    rows_before: int
    rows: int
    windows: int
    """How many times the window has passed in between."""


class SlowEpochs(Problem, frozen=True, kw_only=True, tag="slow-epochs"):
    """Epochs take longer than the time between triggers."""

    template: ClassVar[str] = (
        "batches take longer than the trigger: {duration_ms:,} ms, and one is due every {trigger_ms:,} ms; "
        "each reads more than the one before until the sources' limits stop it"
    )
    over: ClassVar[str] = "batches take less time than the trigger again"

    duration_ms: int
    trigger_ms: int

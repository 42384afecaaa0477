"""Health: which problems a running query has, and when each is reported.

A health check is one record: the kind of problem, its threshold in words, and a function that finds it in
the facts of an epoch. :class:`Health` remembers which problems last. One that is found for the first time
*began*; while it lasts, an event says so again after a minute, then after twice as long each time, up to an
hour; and once it is no longer found it is *over*.

Nothing of this is in the checkpoint. Facts are the manifest, from which a restart finds what it needs at
once, and the progress of the last epochs, which a restart gathers anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from midstream.plan.explain import StateSize
from midstream.protocol.problems import (
    EventTimeStalled,
    FutureRows,
    LateRows,
    Problem,
    SlowEpochs,
    StateGrowing,
    StateUnbounded,
    StreamIdle,
    StreamLagging,
    StreamMissing,
    StreamStalled,
)
from midstream.protocol.progress import EpochProgress, SourceProgress, state_sizes
from midstream.query.query import Query
from midstream.state.manifest import Manifest, StreamProgress

FIRST_REPEAT = timedelta(minutes=1)
LONGEST_REPEAT = timedelta(hours=1)

RECENT_EPOCHS = 10
"""Over how many epochs rows are counted that were left out."""
LATE_SHARE = 0.01
LATE_LEAST_ROWS = 100
"""Fewer rows count as so many: a single late one among them is less than the default share."""
MISSING_EPOCHS = 10
SILENCE = 3_600_000_000
"""An hour of event time: how long a stream may have no rows where no window says so."""
STILL_EPOCHS = 10
"""A stream may well have the same newest time in some epochs: one row from ahead of the others is enough."""
RELIEF_EPOCHS = 3
"""A backlog that comes and goes with each file is one problem, not many."""
SLOW_EPOCHS = 3
"""A single slow epoch is common: the first, or one that merges large slices or changes the plan."""
GROWTH_STEPS = 3
"""The first step is always growth: when a query begins, its state is empty."""
GROWTH_FACTOR = 1.1
SAMPLE_WINDOWS = 4
"""State that does not grow goes up and down within about four windows, as slices merge and expire: what is
compared is the most that it had in such a time."""


@dataclass(frozen=True, kw_only=True)
class HealthLimits:
    """What depends on how a query is run."""

    late_share: float = LATE_SHARE
    """The share of late rows above which a stream has a problem."""
    interval_ms: float | None = None
    """The time between triggers, if there is one."""


@dataclass(frozen=True)
class StateSample:
    """The most rows that all states had in some windows' time."""

    start: int
    """The newest event time when it began."""
    rows: int


@dataclass(frozen=True, kw_only=True)
class HealthFacts:
    """What problems are found in."""

    query: Query
    limits: HealthLimits
    manifest: Manifest
    """After the epoch."""
    recent: Sequence[EpochProgress] = ()
    """The progress of the last epochs of this run, oldest first; the last is that of the manifest."""
    samples: Sequence[StateSample] = ()
    """How large state was, oldest first; the last one goes on."""

    @cached_property
    def newest_time(self) -> int | None:
        """The newest event time of all streams."""
        times = [stream.latest for stream in self.manifest.streams.values() if stream.latest is not None]
        return max(times, default=None)

    @cached_property
    def window(self) -> int | None:
        """The largest window; None if there is none."""
        return max((width for *_, width in self.query.windows.widths), default=None)

    @property
    def retention(self) -> int | None:
        """How long in event time rows are of use, about; None if no window says so."""
        lateness = max(stream.lateness for stream in self.query.streams)
        return None if self.window is None else max(self.window + lateness, 1)

    @property
    def max_silence(self) -> int:
        """How long in event time a stream may have no rows before it stands still."""
        return SILENCE if self.window is None else self.window

    def silence(self, stream: StreamProgress) -> int:
        """By how much the other streams have advanced since it had a row that was accepted."""
        if self.newest_time is None or stream.last_active is None:
            return 0
        return self.newest_time - stream.last_active


Finding = tuple[str, dict[str, Any]]
"""The subject of a problem, and the fields of its event."""
Finder = Callable[[HealthFacts, frozenset[str]], Iterator[Finding]]
"""Finds the subjects that have a problem. It is given those that had it after the epoch before: where a
figure may go back and forth around a threshold, a problem ends at another value than it begins at."""


@dataclass(frozen=True)
class HealthCheck:
    """One kind of problem."""

    problem: type[Problem]
    threshold: str
    """When the problem begins, and when it is over, in the words of the guide."""
    find: Finder


def _missing(facts: HealthFacts, _held: frozenset[str]) -> Iterator[Finding]:
    streams = facts.manifest.streams
    # If no row of any stream was ever accepted, there is no time that could advance.
    by_epochs = facts.window is None or facts.newest_time is None
    is_due = by_epochs and facts.manifest.epoch >= MISSING_EPOCHS and any(s.rows for s in streams.values())
    # However long the window is, nobody should wait for weeks to hear of a wrong source.
    most = min(facts.max_silence, SILENCE)
    for name, stream in streams.items():
        if stream.latest is None and (is_due or facts.silence(stream) > most):
            yield name, {"stream": name, "rows": stream.rows}


def _idle(facts: HealthFacts, _held: frozenset[str]) -> Iterator[Finding]:
    for name, stream in facts.manifest.streams.items():
        if stream.idle:
            yield name, {"stream": name}


def _stalled(facts: HealthFacts, _held: frozenset[str]) -> Iterator[Finding]:
    for name, stream in facts.manifest.streams.items():
        silence = facts.silence(stream)
        if stream.latest is not None and not stream.idle and silence > facts.max_silence:
            yield name, {"stream": name, "silent_ms": silence // 1000}


def _event_time_stalled(facts: HealthFacts, _held: frozenset[str]) -> Iterator[Finding]:
    recent = facts.recent[-STILL_EPOCHS:]
    newest, window = facts.newest_time, facts.window
    if len(recent) < STILL_EPOCHS or newest is None or window is None:
        return
    for name, stream in facts.manifest.streams.items():
        own = [progress.sources[name] for progress in recent]
        stands_still = {source.latest_event_time for source in own} == {stream.latest}
        is_silent = facts.silence(stream) > window
        if stream.latest is None or is_silent or not stands_still:
            continue
        if any(source.rows for source in own) and newest - stream.latest > window:
            yield name, {"stream": name, "behind_ms": (newest - stream.latest) // 1000}


def _late(facts: HealthFacts, held: frozenset[str]) -> Iterator[Finding]:
    for name, own in _recent_sources(facts):
        rows, null_time = sum(s.rows for s in own), sum(s.null_time for s in own)
        late = sum(s.late for s in own) + null_time
        limit = facts.limits.late_share / 2 if name in held else facts.limits.late_share
        if late > limit * max(rows, LATE_LEAST_ROWS):
            counts = {"rows": rows, "late": late, "null_time": null_time}
            yield name, {"stream": name, **counts, "share": late / rows}


def _future(facts: HealthFacts, _held: frozenset[str]) -> Iterator[Finding]:
    for name, own in _recent_sources(facts):
        if rows := sum(source.future for source in own):
            yield name, {"stream": name, "rows": rows}


def _recent_sources(facts: HealthFacts) -> Iterator[tuple[str, Sequence[SourceProgress]]]:
    """Of each stream, what became of its rows in the last epochs."""
    recent = facts.recent[-RECENT_EPOCHS:]
    for name in facts.manifest.streams:
        yield name, [progress.sources[name] for progress in recent]


def _lagging(facts: HealthFacts, held: frozenset[str]) -> Iterator[Finding]:
    recent = facts.recent[-RELIEF_EPOCHS:]
    for name in facts.manifest.streams if recent else ():
        *_, last = backlogs = [progress.sources[name].backlog for progress in recent]
        if last is None or last.trend is None:
            continue
        begins = last.trend == "growing" and last.count > 0
        lasts = name in held and any(b is not None and b.count and b.trend != "shrinking" for b in backlogs)
        if begins or lasts:
            yield name, {"stream": name, "backlog": last.count, "unit": last.unit, "trend": last.trend}


def _unbounded(facts: HealthFacts, _held: frozenset[str]) -> Iterator[Finding]:
    if pairs := facts.query.windows.unbounded(facts.query.names):
        sizes = _sizes_for_joining(facts.manifest)
        yield (
            "",
            {
                "unbounded": tuple(f"{a} and {b}" for a, b in pairs),
                "rows": sum(size.rows for size in sizes),
                "bytes": sum(size.bytes for size in sizes),
            },
        )


def _growing(facts: HealthFacts, held: frozenset[str]) -> Iterator[Finding]:
    # While it lasts any growth counts: what grows evenly grows by an ever smaller share.
    needed, factor = (1, 1.0) if held else (GROWTH_STEPS, GROWTH_FACTOR)
    samples = facts.samples[:-1]
    steps = list(pairwise(samples))[-needed:]
    if len(steps) == needed and all(later.rows > factor * earlier.rows for earlier, later in steps):
        windows = SAMPLE_WINDOWS * (len(samples) - 1)
        yield "", {"rows_before": samples[0].rows, "rows": samples[-1].rows, "windows": windows}


def _slow(facts: HealthFacts, held: frozenset[str]) -> Iterator[Finding]:
    interval = facts.limits.interval_ms
    last = [progress.duration_ms["trigger"] for progress in facts.recent[-SLOW_EPOCHS:]]
    # An interval of zero is a trigger that does not wait.
    if not interval or len(last) < SLOW_EPOCHS:
        return
    # It begins once all of the last epochs were too slow, and is over once none of them was.
    judge = any if held else all
    if judge(duration > interval for duration in last):
        yield "", {"duration_ms": round(last[-1]), "trigger_ms": round(interval)}


HEALTH_CHECKS: tuple[HealthCheck, ...] = (
    HealthCheck(
        StreamMissing,
        "no row of the stream was ever accepted, and the others have advanced by more than the window, or by "
        f"more than an hour; without a window, or if no row of any stream was ever accepted, from batch "
        f"{MISSING_EPOCHS} on",
        _missing,
    ),
    HealthCheck(StreamIdle, "the stream is idle", _idle),
    HealthCheck(
        StreamStalled,
        "the others have advanced by more than the window, or without one by more than an hour, since a row "
        "of the stream was accepted, and it is not idle",
        _stalled,
    ),
    HealthCheck(
        EventTimeStalled,
        f"the stream has had rows in the last {STILL_EPOCHS} batches, its newest event time has not moved, "
        "and it is behind the others by more than the window",
        _event_time_stalled,
    ),
    HealthCheck(
        LateRows,
        f"more than `lateShareWarning` of the rows of the last {RECENT_EPOCHS} batches, counted as at least "
        f"{LATE_LEAST_ROWS} rows, were late; over below half that share",
        _late,
    ),
    HealthCheck(FutureRows, f"some rows of the last {RECENT_EPOCHS} batches", _future),
    HealthCheck(
        StreamLagging,
        f"the backlog is growing; over when it was shrinking or gone in {RELIEF_EPOCHS} batches in a row",
        _lagging,
    ),
    HealthCheck(StateUnbounded, "from the first batch on", _unbounded),
    HealthCheck(
        StateGrowing,
        f"{GROWTH_STEPS} times in a row, the most rows that state had in {SAMPLE_WINDOWS} windows were over "
        f"{GROWTH_FACTOR - 1:.0%} more than in the {SAMPLE_WINDOWS} before them; over when they were no more",
        _growing,
    ),
    HealthCheck(
        SlowEpochs,
        f"{SLOW_EPOCHS} batches in a row took longer than the time between triggers; over when "
        f"{SLOW_EPOCHS} in a row did not",
        _slow,
    ),
)
"""All checks, in the order in which their events come."""


@dataclass(frozen=True)
class _Lasting:
    """A problem that lasts, as it was last found, and when to say so again."""

    problem: Problem
    repeat_at: datetime
    wait: timedelta


@dataclass(frozen=True)
class Health:
    """The problems that a query has, and what has to be remembered to find some of them."""

    lasting: Mapping[tuple[type[Problem], str], _Lasting] = field(default_factory=dict)
    samples: tuple[StateSample, ...] = ()

    @classmethod
    def resumed(cls, facts: HealthFacts, now: datetime) -> Health:
        """What a manifest alone says; what lasts is reported with the first epoch of the run."""
        health, _ = cls().after(facts, now)
        lasting = {key: _Lasting(kept.problem, now, FIRST_REPEAT) for key, kept in health.lasting.items()}
        return cls(lasting, health.samples)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems that last, as they were found last."""
        return tuple(kept.problem for kept in self.lasting.values())

    def after(self, facts: HealthFacts, now: datetime) -> tuple[Health, tuple[Problem, ...]]:
        """The health after one more epoch, and the events that are due at that time."""
        samples = _sampled(self.samples, facts)
        facts = replace_field(facts, samples=samples)
        lasting: dict[tuple[type[Problem], str], _Lasting] = {}
        events: list[Problem] = []
        for check in HEALTH_CHECKS:
            held = frozenset(subject for kind, subject in self.lasting if kind is check.problem)
            for subject, fields in check.find(facts, held):
                key = check.problem, subject
                kept, is_due = _found(check.problem, fields, self.lasting.get(key), facts.manifest.epoch, now)
                lasting[key] = kept
                events += [kept.problem] if is_due else []
            for subject in sorted(held):
                key = check.problem, subject
                if key not in lasting:
                    over = replace(self.lasting[key].problem, status="over", batch_id=facts.manifest.epoch)
                    events.append(over)
        return Health(lasting, samples), tuple(events)


def _found(
    kind: type[Problem], fields: dict[str, Any], before: _Lasting | None, epoch: int, now: datetime
) -> tuple[_Lasting, bool]:
    """A problem as it is found now, and whether an event is due."""
    if before is None:
        return _Lasting(kind(batch_id=epoch, since=epoch, **fields), now + FIRST_REPEAT, FIRST_REPEAT), True
    since = before.problem.since
    problem = kind(batch_id=epoch, status="continues", since=since, **fields)
    if now < before.repeat_at:
        return _Lasting(problem, before.repeat_at, before.wait), False
    wait = min(2 * before.wait, LONGEST_REPEAT)
    return _Lasting(problem, now + wait, wait), True


def _sizes_for_joining(manifest: Manifest) -> Collection[StateSize]:
    """What each state has of rows that may still join; aggregates go by windows of their own."""
    slices = tuple(slice_ for slice_ in manifest.slices if slice_.owner.has_rows_of_streams)
    return state_sizes(replace(manifest, slices=slices)).values()


def _sampled(samples: tuple[StateSample, ...], facts: HealthFacts) -> tuple[StateSample, ...]:
    """The samples of the state's size after one more epoch."""
    time, retention = facts.newest_time, facts.retention
    # A migration has the states of two plans, and then fewer: its samples say nothing.
    if time is None or retention is None or facts.manifest.migration is not None:
        return ()
    rows = sum(size.rows for size in _sizes_for_joining(facts.manifest))
    if not samples or time - samples[-1].start >= SAMPLE_WINDOWS * retention:
        return (*samples[-GROWTH_STEPS - 1 :], StateSample(time, rows))
    *earlier, last = samples
    return (*earlier, StateSample(last.start, max(last.rows, rows)))

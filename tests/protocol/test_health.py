"""Health: each problem is found at its threshold, told of again while it lasts, and said to be over."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.window import window
from midstream.inline import InlineJoin
from midstream.protocol.health import (
    FIRST_REPEAT,
    GROWTH_STEPS,
    HEALTH_CHECKS,
    LATE_LEAST_ROWS,
    LONGEST_REPEAT,
    MISSING_EPOCHS,
    RECENT_EPOCHS,
    SAMPLE_WINDOWS,
    SILENCE,
    SLOW_EPOCHS,
    STILL_EPOCHS,
    Health,
    HealthFacts,
    HealthLimits,
    StateSample,
)
from midstream.protocol.problems import Problem, StateGrowing, StreamMissing
from midstream.protocol.progress import EpochProgress
from midstream.protocol.settings import Settings
from midstream.protocol.trigger_facts import TREND_EPOCHS, Backlog, Trend, trend_of
from midstream.query.query import Query
from midstream.storage.memory_store import MemoryStore
from midstream.testing.hypothesis_aggregates import with_aggregation
from midstream.values import Micros
from tests.helpers import rows, small_query

WINDOW = 30
QUERY = small_query(["a.k = b.k"], default_window=WINDOW)
SETTINGS = Settings(1, 1)
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
Told = tuple[str, str, str]
"""Type, subject and status of an event."""


def told(progress: EpochProgress) -> list[Told]:
    return [(e.type, e.subject, e.status) for e in progress.events if isinstance(e, Problem)]


class Watched:
    """A query in this process, and what each epoch has told."""

    def __init__(self, query: Query = QUERY, settings: Settings = SETTINGS) -> None:
        self.query, self.settings, self.store = query, settings, MemoryStore()
        self.progress: list[EpochProgress] = []
        self.start()

    def start(self) -> None:
        self.join = InlineJoin(self.query, settings=self.settings, store=self.store)
        self.join.addListener(
            lambda event: self.progress.append(event) if isinstance(event, EpochProgress) else None
        )

    def run(self, arrivals: Mapping[str, int | pa.Table], now: int = 10**15) -> list[Told]:
        """One epoch with one row at a time, or a table, of some streams."""
        tables = {
            name: rows((value, 1)) if isinstance(value, int) else value for name, value in arrivals.items()
        }
        self.join.run_epoch(tables, now=now)
        return told(self.progress[-1])


def test_every_kind_of_problem_has_one_check():
    kinds = [check.problem for check in HEALTH_CHECKS]
    assert len(kinds) == len(set(kinds))
    leaves = [k for kind in Problem.__subclasses__() for k in (kind.__subclasses__() or [kind])]
    assert set(kinds) == set(leaves)


def test_a_silent_stream_stalls_after_a_window_and_keeps_being_named_in_the_progress():
    watched = Watched()
    epochs: Sequence[dict[str, int | pa.Table]] = (
        {"a": 0, "b": 0},
        {"a": 30},
        {"a": 31},
        {"a": 60},
        {"a": 61, "b": 61},
        {"a": 62},
    )
    assert [watched.run(arrivals) for arrivals in epochs] == [
        [],
        [],
        [("stream-stalled", "b", "began")],
        [],
        [("stream-stalled", "b", "over")],
        [],
    ]
    lasting = [[(p.type, p.since, p.status) for p in progress.problems] for progress in watched.progress]
    assert lasting == [
        [],
        [],
        [("stream-stalled", 2, "began")],
        [("stream-stalled", 2, "continues")],
        [],
        [],
    ]


def test_with_a_timeout_it_is_idle_and_stalls_no_longer():
    watched = Watched(settings=Settings(1, 1, Micros(40)))
    epochs: Sequence[dict[str, int | pa.Table]] = (
        {"a": 0, "b": 0},
        {"a": 31},
        {"a": 41},
        {"a": 90},
        {"b": 91},
    )
    assert [watched.run(arrivals) for arrivals in epochs] == [
        [],
        [("stream-stalled", "b", "began")],
        [("stream-idle", "b", "began"), ("stream-stalled", "b", "over")],
        [],
        [("stream-idle", "b", "over")],
    ]


def test_a_stream_that_never_came_is_named_even_if_its_rows_could_not_be_joined():
    watched = Watched()
    assert watched.run({"a": 0, "b": rows((0, None))}) == []
    assert watched.run({"a": 31}) == [("stream-missing", "b", "began")]
    (problem,) = watched.progress[-1].problems
    assert isinstance(problem, StreamMissing)
    assert problem.rows == 1
    assert watched.run({"b": 31}) == [("stream-missing", "b", "over")]


def test_without_a_window_a_stream_is_missing_after_some_epochs_and_state_is_unbounded_at_once():
    watched = Watched(small_query(["a.k = b.k"]))
    assert watched.run({"a": 0}) == [("state-unbounded", "", "began")]
    (problem,) = watched.progress[-1].problems
    assert problem.to_dict()["unbounded"] == ["a and b"]
    assert problem.to_dict()["rows"] == 1
    for epoch in range(1, MISSING_EPOCHS):
        assert watched.run({"a": 10**6 * epoch}) == []
    assert watched.run({"a": 10**9}) == [("stream-missing", "b", "began")]
    assert watched.run({"b": 10**9}) == [("stream-missing", "b", "over")]
    assert [p.type for p in watched.progress[-1].problems] == ["state-unbounded"]


def test_a_stream_that_never_came_is_named_after_an_hour_however_long_the_window():
    watched = Watched(small_query(["a.k = b.k"], default_window=100 * SILENCE))
    assert watched.run({"a": 0}) == []
    assert watched.run({"a": SILENCE}) == []
    assert watched.run({"a": SILENCE + 1}) == [("stream-missing", "b", "began")]
    assert watched.run({"a": SILENCE + 1, "b": 0}) == [("stream-missing", "b", "over")]
    assert watched.run({"a": 3 * SILENCE}) == [], "one that has come may be silent for the window"


def test_without_a_window_a_stream_stands_still_after_an_hour():
    watched = Watched(small_query(["a.k = b.k"]))
    assert watched.run({"a": 0, "b": 0}) == [("state-unbounded", "", "began")]
    assert watched.run({"a": SILENCE}) == []
    assert watched.run({"a": SILENCE + 1000}) == [("stream-stalled", "b", "began")]
    assert watched.progress[-1].problems[0].to_dict()["silentMs"] == SILENCE // 1000 + 1
    late = rows((-5, 1), (-5, 1))
    assert watched.run({"b": late}) == [("late-rows", "b", "began")], "late rows are none that are joined"
    assert watched.run({"b": 1}) == [("stream-stalled", "b", "over")]


@pytest.mark.parametrize("query", [QUERY, small_query(["a.k = b.k"])], ids=["window", "no window"])
def test_streams_of_which_no_row_was_ever_accepted_are_missing(query):
    watched = Watched(query)
    without_key = {name: rows((0, None)) for name in "ab"}
    found = [watched.run(without_key) for _ in range(MISSING_EPOCHS + 1)]
    missing = [("stream-missing", "a", "began"), ("stream-missing", "b", "began")]
    assert found[-1] == missing
    assert all(told not in epoch for told in missing for epoch in found[:-1])


def test_nothing_is_missing_as_long_as_no_stream_has_rows():
    watched = Watched(small_query(["a.k = b.k"]))
    for _ in range(MISSING_EPOCHS + 2):
        watched.run({})
    assert [p.type for p in watched.progress[-1].problems] == ["state-unbounded"]


def test_the_pairs_that_are_named_are_the_fewest_that_would_bound_all():
    on = ["a.k = b.k", "b.k = c.k", "c.k = d.k"]
    query = small_query(on, "abcd", pairs={("a", "b"): Micros(5)})
    assert query.windows.unbounded(query.names) == (("a", "c"), ("a", "d"))
    more = {("a", "b"): Micros(5), ("a", "c"): Micros(5), ("a", "d"): Micros(5)}
    assert small_query(on, "abcd", pairs=more).windows.unbounded(query.names) == ()


def test_an_event_time_that_stands_still_while_rows_come_is_another_problem_than_silence():
    watched = Watched()
    for epoch in range(STILL_EPOCHS + 2):
        assert watched.run({"a": WINDOW * epoch // 20, "b": 0}) == [], "it is not far behind"
    assert watched.run({"a": 9000, "b": 0}) == [("event-time-stalled", "b", "began")]
    assert watched.progress[-1].problems[0].to_dict()["behindMs"] == 9
    assert watched.run({"a": 9001, "b": 1}) == [("event-time-stalled", "b", "over")]


def test_late_rows_are_told_of_above_a_share_of_enough_rows():
    watched = Watched()
    in_time = rows(*((1000, 1) for _ in range(LATE_LEAST_ROWS)))
    assert watched.run({"a": 1000, "b": 1000}) == []
    assert watched.run({"a": rows((0, 1))}) == [], "a single row says little"
    assert watched.run({"a": pa.concat_tables([in_time, rows((0, 1))])}) == [("late-rows", "a", "began")]
    (problem,) = watched.progress[-1].problems
    assert (problem.to_dict()["late"], problem.to_dict()["rows"]) == (2, LATE_LEAST_ROWS + 3)
    assert watched.run({"a": in_time}) == [], "below the share, but not below half of it"
    for _ in range(2):
        events = watched.run({"a": in_time})
    assert events == [("late-rows", "a", "over")]


def test_which_share_of_late_rows_is_too_large_is_an_option():
    watched = Watched()
    watched.run({"a": 1000, "b": 1000})
    watched.run({"a": rows(*((1000 * (i % 2), 1) for i in range(LATE_LEAST_ROWS)))})
    facts = HealthFacts(
        query=QUERY, limits=HealthLimits(), manifest=watched.join.manifest, recent=watched.progress
    )
    for share, found in ((0.01, ["late-rows"]), (0.49, ["late-rows"]), (0.5, []), (1.0, [])):
        limits = HealthLimits(late_share=share)
        _, events = Health().after(replace(facts, limits=limits), NOW)
        assert [event.type for event in events] == found


def test_late_rows_of_a_stream_of_few_rows_are_told_of():
    """Whoever tries a query with a handful of rows, all of them late, has to hear of it, too."""
    watched = Watched()
    watched.run({"a": 1000, "b": 1000})
    assert watched.run({"b": rows((0, 1), (0, 2))}) == [("late-rows", "b", "began")]
    (problem,) = watched.progress[-1].problems
    assert problem.to_dict()["share"] == 2 / 3


def test_rows_without_a_time_are_told_of_apart_from_late_ones():
    watched = Watched()
    watched.run({"a": 1000, "b": 1000})
    assert watched.run({"b": rows((0, 1), (None, 2), (None, 3))}) == [("late-rows", "b", "began")]
    (problem,) = watched.progress[-1].problems
    assert {name: problem.to_dict()[name] for name in ("late", "nullTime", "rows")} == {
        "late": 3,
        "nullTime": 2,
        "rows": 4,
    }


def test_rows_of_the_future_are_told_of_once_while_they_last():
    watched = Watched(settings=Settings(1, 1, max_event_time_ahead=Micros(10)))
    assert watched.run({"a": 0, "b": 0}, now=100) == []
    assert watched.run({"a": 111}, now=100) == [("future-rows", "a", "began")]
    assert watched.run({"a": 111, "b": 0}, now=100) == []
    (problem,) = watched.progress[-1].problems
    assert (problem.to_dict()["rows"], problem.to_dict()["since"]) == (2, 1)
    for _ in range(RECENT_EPOCHS - 1):
        assert watched.run({"b": 0}, now=100) == []
    assert watched.run({"b": 0}, now=100) == [("future-rows", "a", "over")]


def test_late_rows_are_those_of_the_last_epochs():
    watched = Watched()
    watched.run({"a": 1000, "b": 1000})
    many = rows(*((0, 1) for _ in range(LATE_LEAST_ROWS)))
    assert watched.run({"b": many}) == [("late-rows", "b", "began")]
    for _ in range(RECENT_EPOCHS - 1):
        assert watched.run({"a": 1000}) == []
    assert watched.run({"a": 1000}) == [("late-rows", "b", "over")]


def test_a_restart_tells_of_what_lasts_with_its_first_epoch():
    watched = Watched()
    watched.run({"a": 0, "b": 0})
    assert watched.run({"a": 40}) == [("stream-stalled", "b", "began")]
    watched.start()
    assert watched.run({"a": 41}) == [("stream-stalled", "b", "continues")]
    assert watched.progress[-1].problems[0].since == 1
    watched.start()
    assert watched.run({"a": 42, "b": 42}) == [("stream-stalled", "b", "over")]
    watched.start()
    assert watched.run({"a": 43}) == []


def test_a_query_that_is_well_has_no_problems():
    watched = Watched()
    for epoch in range(20 * SAMPLE_WINDOWS):
        assert watched.run(dict.fromkeys("ab", 10 * epoch)) == []


def grown(query: Query, epochs: int, *, per_epoch: int, silent: str = "") -> list[Told]:
    watched = Watched(query)
    events = []
    for epoch in range(epochs):
        table = rows(*((per_epoch * epoch, i) for i in range(5)))
        events += watched.run({name: table for name in "ab" if epoch < 5 or name not in silent})
    return events


@pytest.mark.parametrize("per_epoch", [6, 10, 100])
def test_state_that_goes_up_and_down_does_not_grow_without_end(per_epoch):
    assert grown(QUERY, 20 * WINDOW // per_epoch + 20, per_epoch=per_epoch) == []


def test_groups_that_are_kept_until_their_window_is_complete_are_no_growth_without_end():
    aggregation = read_aggregation(["a.k AS k", window("1 day")], ["count(*) AS n"], QUERY.streams)
    watched = Watched(with_aggregation(QUERY, aggregation))
    told = []
    for time in range(0, 20 * SAMPLE_WINDOWS * WINDOW, 10):
        table = rows(*((time, time + i) for i in range(5)))
        told += watched.run({"a": table, "b": table})
    assert sum(s.rows for s in watched.join.manifest.slices if s.owner.kind == "partial") == 5 * 240
    assert told == []


def test_state_that_grows_with_every_window_does():
    needed = (GROWTH_STEPS + 2) * SAMPLE_WINDOWS * WINDOW // 10
    assert grown(QUERY, needed + 10, per_epoch=10, silent="b") == [
        ("stream-stalled", "b", "began"),
        ("state-growing", "", "began"),
    ]


# From here on the facts are made up: no clock, no source.


def base(query: Query = QUERY) -> HealthFacts:
    watched = Watched(query)
    watched.run({"a": 0, "b": 0})
    return HealthFacts(
        query=query, limits=HealthLimits(), manifest=watched.join.manifest, recent=watched.progress
    )


BASE = base()


def with_backlog(count: int | None, trend: Trend | None) -> HealthFacts:
    (progress,) = BASE.recent
    backlog = None if count is None else Backlog(count, "offsets", trend)
    sources = {**progress.sources, "b": replace(progress.sources["b"], backlog=backlog)}
    return replace(BASE, recent=[replace(progress, sources=sources)])


def slow(*durations: float, interval_ms: float | None = 1000) -> HealthFacts:
    (progress,) = BASE.recent
    recent = [replace(progress, duration_ms={"trigger": duration}) for duration in durations]
    return replace(BASE, recent=recent, limits=HealthLimits(interval_ms=interval_ms))


def statuses(*facts: HealthFacts, now: datetime = NOW) -> list[list[Told]]:
    """What is told of in epochs with these facts, all at the same time."""
    health = Health()
    found: list[list[Told]] = []
    for each in facts:
        health, events = health.after(each, now)
        found.append([(e.type, e.subject, e.status) for e in events])
    return found


def test_a_stream_lags_from_when_its_backlog_grows_until_it_shrinks_or_is_gone():
    began, over = [("stream-lagging", "b", "began")], [("stream-lagging", "b", "over")]
    growing, steady, shrinking = (with_backlog(9, t) for t in ("growing", "steady", "shrinking"))
    assert statuses(steady, growing, steady, growing, shrinking) == [[], began, [], [], over]
    assert statuses(growing, with_backlog(0, "growing")) == [began, over]
    assert statuses(growing, with_backlog(None, None)) == [began, over]
    assert statuses(with_backlog(0, "growing")) == [[]]
    assert statuses(with_backlog(9, None), shrinking) == [[], []]
    (event,) = Health().after(growing, NOW)[1]
    assert event.message.startswith("stream b lags behind its source: 9 offsets not read yet, growing")


def test_a_backlog_that_comes_and_goes_is_one_problem():
    def lagging(*counts: int) -> list[tuple[int, str]]:
        (progress,) = BASE.recent
        epochs = []
        for number in range(len(counts)):
            window = counts[: number + 1][-TREND_EPOCHS:]
            backlog = Backlog(counts[number], "files", trend_of(window))
            epochs.append(
                replace(
                    progress, sources={n: replace(s, backlog=backlog) for n, s in progress.sources.items()}
                )
            )
        facts = [replace(BASE, recent=epochs[: number + 1]) for number in range(len(epochs))]
        found = statuses(*facts)
        return [(number, s) for number, events in enumerate(found) for kind, name, s in events if name == "b"]

    quiet = [0] * TREND_EPOCHS
    assert lagging(*quiet, 1, 0, 1, 1, 0, 1, 0, 1, 1, 0) == []
    assert lagging(*quiet, 4, 9, 0, 12, 0, 0, 20, 30, 0, 40) == [(TREND_EPOCHS + 1, "began")]
    ended = lagging(*quiet, 4, 9, 12, 6, *[0] * 6)
    assert [status for _, status in ended] == ["began", "over"]


def test_epochs_are_slow_once_several_in_a_row_are_and_until_none_is():
    began, over = [("slow-epochs", "", "began")], [("slow-epochs", "", "over")]
    assert SLOW_EPOCHS == 3
    assert statuses(slow(1001, 1001)) == [[]]
    assert statuses(slow(1001, 1000, 1001)) == [[]]
    assert statuses(slow(9, 1001, 1001, 1001), slow(1001, 9, 9), slow(9, 9, 9)) == [began, [], over]
    for none in (None, 0.0):
        assert statuses(slow(1001, 1001, 1001, interval_ms=none)) == [[]], "nothing is due at any time"


def test_growth_that_lasts_may_be_by_a_smaller_share_and_is_over_when_there_is_none():
    window = SAMPLE_WINDOWS * WINDOW
    sizes = [100, 120, 150, 200]
    samples = tuple(StateSample(-window * (len(sizes) - i), size) for i, size in enumerate(sizes))
    health, events = Health(samples=samples).after(BASE, NOW)
    assert [(type(e), e.to_dict()["rowsBefore"], e.to_dict()["rows"]) for e in events] == [
        (StateGrowing, 100, 200)
    ]
    _, lasts = replace(health, samples=(*samples, StateSample(-window, 201))).after(BASE, NOW)
    assert lasts == ()
    _, ended = replace(health, samples=(*samples, StateSample(-window, 200))).after(BASE, NOW)
    assert [e.status for e in ended] == ["over"]
    small = replace(health, lasting={}, samples=(*samples[:-1], StateSample(-window, 160)))
    assert small.after(BASE, NOW)[1] == ()


def test_a_problem_is_told_of_again_ever_more_rarely_while_it_lasts():
    health, first = Health().after(with_backlog(9, "growing"), NOW)
    assert [e.status for e in first] == ["began"]
    repeated: list[Any] = []
    for minute in range(1, 60 * 6):
        health, events = health.after(with_backlog(9, "steady"), NOW + timedelta(minutes=minute))
        assert {e.status for e in events} <= {"continues"}
        repeated += [minute] * len(events)
    assert timedelta(minutes=1) == FIRST_REPEAT
    assert timedelta(hours=1) == LONGEST_REPEAT
    assert repeated == [1, 3, 7, 15, 31, 63, 123, 183, 243, 303]


def test_a_problem_that_comes_back_begins_anew():
    growing, none = with_backlog(9, "growing"), with_backlog(0, "steady")
    minutes = [0, 1, 30, 31, 32]
    health, found = Health(), []
    for minute, facts in zip(minutes, [growing, growing, none, growing, growing], strict=True):
        health, events = health.after(facts, NOW + timedelta(minutes=minute))
        found.append([e.status for e in events])
    assert found == [["began"], ["continues"], ["over"], ["began"], ["continues"]]


def test_a_clock_that_steps_back_repeats_nothing_and_loses_nothing():
    health, _ = Health().after(with_backlog(9, "growing"), NOW)
    health, events = health.after(with_backlog(9, "growing"), NOW - timedelta(days=1))
    assert events == ()
    assert [p.status for p in health.problems] == ["continues"]
    _, over = health.after(with_backlog(0, "steady"), NOW - timedelta(days=1))
    assert [e.status for e in over] == ["over"]

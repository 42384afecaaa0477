"""Rows from the future move no watermark."""

import pyarrow as pa
import pytest

from midstream.inline import InlineJoin
from midstream.protocol.settings import ONE_DAY, Settings
from midstream.state.manifest import OutputFile
from midstream.storage.late_rows import LATE_SCHEMA
from midstream.storage.memory_store import MemoryStore
from midstream.testing.faults import SimulatedCrash
from midstream.testing.random_streams import SECOND
from midstream.values import Micros
from tests.helpers import die_at, rows, small_query

YEARS = 1000 * 365 * 86_400 * SECOND
NOW = 1_700_000_000 * SECOND
QUERY = small_query(
    ["a.k = b.k", "a.k = c.k"],
    "abc",
    lateness=10 * SECOND,
    default_window=60 * SECOND,
    select=["a.v as x", "b.v as y", "c.v as z"],
)


class Kept:
    """A sink that keeps what is staged."""

    def __init__(self) -> None:
        self.rows: list[pa.Table] = []

    def stage(self, task, rows):
        self.rows.append(rows)
        return OutputFile("late", "x", "y", rows.num_rows)

    def publish(self, outputs):
        pass

    def sweep(self):
        pass


@pytest.mark.parametrize("idle", [None, Micros(600 * SECOND)], ids=["no timeout", "idle timeout"])
@pytest.mark.parametrize("others", ["", "b", "bc"], ids=["alone", "with one more", "with all"])
def test_a_row_from_the_future_makes_nothing_late(idle, others):
    late = Kept()
    join = InlineJoin(QUERY, settings=Settings(2, 4, idle), late_sink=late)
    found = [join.run_epoch({n: rows((NOW, 1, 0, f"{n}0")) for n in "abc"}, now=NOW)]
    wrong = rows((NOW + 5 * SECOND, 1, 0, "a1"), (NOW + YEARS, 1, 0, "wrong"))
    more = {n: rows((NOW + YEARS, 1, 0, "wrong too")) for n in others}
    found += [join.run_epoch({"a": wrong, **more}, now=NOW)]
    for number in range(1, 6):
        later = NOW + 10 * number * SECOND
        found += [join.run_epoch({n: rows((later, 1, 0, f"{n}{number + 1}")) for n in "bc"}, now=later)]
    found += [join.run_epoch({"a": rows((NOW + 50 * SECOND, 1, 0, "a9"))}, now=NOW + 50 * SECOND)]
    marks = join.manifest.streams
    assert {n: mark.late for n, mark in marks.items()} == dict.fromkeys("abc", 0)
    assert {n: mark.future for n, mark in marks.items()} == {n: int(n in f"a{others}") for n in "abc"}
    assert marks["a"].latest == NOW + 50 * SECOND
    assert not any(mark.idle for mark in marks.values())
    assert set(pa.concat_tables(found)["x"].to_pylist()) == {"a0", "a1", "a9"}
    kept = pa.concat_tables(late.rows)
    assert kept.schema == LATE_SCHEMA
    assert sorted(kept["stream"].to_pylist()) == sorted(f"a{others}")
    assert set(kept["reason"].to_pylist()) == {"future"}
    assert set(kept["time"].cast(pa.int64()).to_pylist()) == {NOW + YEARS}


def test_a_day_ahead_is_in_time_and_not_a_microsecond_more():
    assert Settings(1, 1).max_event_time_ahead == ONE_DAY == 86_400 * SECOND
    join = InlineJoin(QUERY, settings=Settings(1, 1))
    join.run_epoch({"a": rows((NOW + ONE_DAY, 1), (NOW + ONE_DAY + 1, 1))}, now=NOW)
    mark = join.manifest.streams["a"]
    assert (mark.rows, mark.future, mark.latest) == (2, 1, NOW + ONE_DAY)


@pytest.mark.parametrize("now", [-(2**62), 0, NOW, 2**62, 2**63 - 1])
def test_times_at_the_ends_of_what_there_is(now):
    first, last = -(2**63) + 1, 2**63 - 1
    for ahead in (None, Micros(0), ONE_DAY):
        join = InlineJoin(QUERY, settings=Settings(1, 1, max_event_time_ahead=ahead))
        join.run_epoch({"a": rows((first, 1), (0, 1), (last, 1))}, now=now)
        mark = join.manifest.streams["a"]
        limit = last if ahead is None else now + ahead
        assert mark.future == sum(time > limit for time in (first, 0, last))
        assert mark.latest == max(time for time in (first, 0, last) if time <= limit)
        assert mark.rows == 3
        assert mark.late == 0


def test_by_the_clock_of_the_stream_the_first_epoch_has_no_bound_and_later_ones_have_their_own():
    join = InlineJoin(QUERY, settings=Settings(1, 1, event_time_clock="stream"))
    # Long ago by the wall clock for one stream, and a thousand years ahead of it for another.
    join.run_epoch({"a": rows((5, 1)), "b": rows((NOW + YEARS, 1))}, now=NOW)
    join.run_epoch({"a": rows((5 + ONE_DAY, 1), (6 + ONE_DAY, 1)), "c": rows((NOW, 1))}, now=NOW)
    join.run_epoch({"b": rows((NOW + YEARS + ONE_DAY, 1), (NOW + YEARS + ONE_DAY + 1, 1))}, now=0)
    marks = join.manifest.streams
    assert {n: mark.future for n, mark in marks.items()} == {"a": 1, "b": 1, "c": 0}
    assert {n: mark.latest for n, mark in marks.items()} == {
        "a": 5 + ONE_DAY,
        "b": NOW + YEARS + ONE_DAY,
        "c": NOW,
    }


@pytest.mark.parametrize("clock", ["wall", "stream"])
def test_an_epoch_that_runs_again_judges_by_its_first_clock(clock):
    store = MemoryStore()
    settings = Settings(1, 1, event_time_clock=clock)
    InlineJoin(QUERY, settings=settings, store=store).run_epoch({"a": rows((NOW, 1))}, now=NOW)
    given = {"a": rows((NOW + ONE_DAY, 1), (NOW + ONE_DAY + 1, 1))}
    with pytest.raises(SimulatedCrash), die_at("before the commit"):
        InlineJoin(QUERY, settings=settings, store=store).run_epoch(given, now=NOW)
    for other, now in ((Settings(1, 1), NOW + YEARS), (Settings(1, 1, max_event_time_ahead=None), 0)):
        with pytest.raises(SimulatedCrash), die_at("before the commit"):
            InlineJoin(QUERY, settings=other, store=store).run_epoch(given, now=now)
    again = InlineJoin(QUERY, settings=Settings(1, 1, max_event_time_ahead=None), store=store)
    again.run_epoch(given, now=NOW + YEARS)
    assert again.manifest.streams["a"].future == 1
    # What was set in between takes effect with the epoch after it.
    again.run_epoch({"a": rows((NOW + YEARS, 1))}, now=NOW + YEARS)
    assert again.manifest.streams["a"].future == 1

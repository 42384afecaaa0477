"""Streams that fall silent, never come, or whose event time stands still."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from midstream.protocol.health import MISSING_EPOCHS, SILENCE, STILL_EPOCHS
from midstream.protocol.problems import StreamMissing
from midstream.protocol.settings import Settings
from midstream.values import Micros
from tests.helpers import rows, small_query
from tests.protocol.watched import QUERY, WINDOW, Watched


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


def test_an_event_time_that_stands_still_while_rows_come_is_another_problem_than_silence():
    watched = Watched()
    for epoch in range(STILL_EPOCHS + 2):
        assert watched.run({"a": WINDOW * epoch // 20, "b": 0}) == [], "it is not far behind"
    assert watched.run({"a": 9000, "b": 0}) == [("event-time-stalled", "b", "began")]
    assert watched.progress[-1].problems[0].to_dict()["behindMs"] == 9
    assert watched.run({"a": 9001, "b": 1}) == [("event-time-stalled", "b", "over")]

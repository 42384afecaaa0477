"""Rows that come too late or from the future: told of above a share, and while they last."""

from dataclasses import replace

import pyarrow as pa

from midstream.protocol.health import LATE_LEAST_ROWS, RECENT_EPOCHS, Health, HealthFacts, HealthLimits
from midstream.protocol.settings import Settings
from midstream.values import Micros
from tests.helpers import rows
from tests.protocol.watched import NOW, QUERY, Watched


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

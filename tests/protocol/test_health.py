"""Health: each problem is found at its threshold, told of again while it lasts, and said to be over."""

from datetime import timedelta
from typing import Any

from midstream.protocol.health import FIRST_REPEAT, HEALTH_CHECKS, LONGEST_REPEAT, SAMPLE_WINDOWS, Health
from midstream.protocol.problems import Problem
from tests.protocol.watched import NOW, Watched, with_backlog


def test_every_kind_of_problem_has_one_check():
    kinds = [check.problem for check in HEALTH_CHECKS]
    assert len(kinds) == len(set(kinds))
    leaves = [k for kind in Problem.__subclasses__() for k in (kind.__subclasses__() or [kind])]
    assert set(kinds) == set(leaves)


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

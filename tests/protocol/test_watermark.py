from midstream.engine.program import StreamCounts
from midstream.protocol.watermark import advance_progress
from midstream.state.manifest import StreamProgress
from midstream.values import Micros
from tests.helpers import small_query

QUERY = small_query(["a.k = b.k", "b.k = c.k"], "abc", lateness=10)
START = {name: StreamProgress() for name in "abc"}


def brought(**latest):
    return {name: StreamCounts(accepted=1, latest=time) for name, time in latest.items()}


def watermarks(marks):
    return {name: mark.watermark for name, mark in marks.items()}


def test_a_watermark_follows_the_streams_own_time_less_its_lateness():
    marks = advance_progress(QUERY, START, brought(a=100, b=50), None)
    assert watermarks(marks) == {"a": 90, "b": 40, "c": None}
    marks = advance_progress(QUERY, marks, brought(a=70), None)
    assert watermarks(marks) == {"a": 90, "b": 40, "c": None}


def test_nothing_known_is_nothing_moved():
    assert advance_progress(QUERY, START, {}, Micros(5)) == START


def test_what_became_of_rows_adds_up():
    count = StreamCounts(accepted=1, late=2, null_time=3, null_key=4, latest=7)
    marks = advance_progress(QUERY, START, {"a": count}, None)
    marks = advance_progress(QUERY, marks, {"a": count}, None)
    mark = marks["a"]
    assert (mark.rows, mark.late, mark.null_time, mark.null_key) == (20, 4, 6, 8)


def test_a_quiet_stream_is_idle_only_after_more_than_the_timeout():
    marks = advance_progress(QUERY, START, brought(a=100, b=100, c=100), Micros(30))
    marks = advance_progress(QUERY, marks, brought(a=130, b=125), Micros(30))
    assert not marks["c"].idle
    marks = advance_progress(QUERY, marks, brought(a=131, b=126), Micros(30))
    assert marks["c"].idle
    # It follows the slowest of the active ones.
    assert watermarks(marks) == {"a": 121, "b": 116, "c": 116}


def test_a_stream_that_never_came_counts_from_the_first_known_time():
    marks = advance_progress(QUERY, START, brought(a=100, b=100), Micros(30))
    assert watermarks(marks)["c"] is None
    marks = advance_progress(QUERY, marks, brought(a=140, b=140), Micros(30))
    assert watermarks(marks)["c"] == 130


def test_a_stream_that_comes_back_keeps_the_raised_watermark():
    marks = advance_progress(QUERY, START, brought(a=100, b=100, c=100), Micros(30))
    marks = advance_progress(QUERY, marks, brought(a=200, b=200), Micros(30))
    marks = advance_progress(QUERY, marks, brought(c=195), Micros(30))
    assert not marks["c"].idle
    assert watermarks(marks)["c"] == 190
    assert marks["c"].latest == 195


def test_late_rows_alone_do_not_wake_a_stream():
    marks = advance_progress(QUERY, START, brought(a=100, b=100, c=100), Micros(30))
    marks = advance_progress(QUERY, marks, brought(a=200, b=200), Micros(30))
    marks = advance_progress(QUERY, marks, {"c": StreamCounts(late=1)}, Micros(30))
    assert marks["c"].idle


def test_an_idle_stream_never_goes_back():
    marks = advance_progress(QUERY, START, brought(a=100, b=20, c=100), Micros(30))
    marks = advance_progress(QUERY, marks, brought(a=200, b=30), Micros(30))
    assert watermarks(marks) == {"a": 190, "b": 20, "c": 90}


def test_an_active_stream_without_a_watermark_holds_the_idle_ones():
    marks = advance_progress(QUERY, START, {**brought(a=100), "b": StreamCounts(late=1)}, Micros(1000))
    marks = advance_progress(QUERY, marks, brought(a=300), Micros(1000))
    assert watermarks(marks) == {"a": 290, "b": None, "c": None}


def test_without_a_timeout_nobody_is_idle():
    marks = advance_progress(QUERY, START, brought(a=0, b=0, c=0), None)
    assert not advance_progress(QUERY, marks, brought(a=10**12), None)["c"].idle

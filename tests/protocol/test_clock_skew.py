"""Clocks that disagree: lateness is relative to a row's own stream, so skew between streams loses no row."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.testing import Shape, accept, assert_same_rows, batch_join, generate, stream
from midstream.testing.random_streams import SECOND
from midstream.values import Micros

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


def _query(window: int, lateness: int = 5 * SECOND):
    shape = Shape(lateness=Micros(lateness))
    return build_query(
        [stream(name, shape) for name in "abc"],
        ["a.k = b.k", "b.k = c.k"],
        default_window=Micros(window),
        select=["a.id", "b.id", "c.id"],
    )


def _shift(table: pa.Table, micros: int) -> pa.Table:
    times = table["t"].cast(pa.int64())
    return table.set_column(1, "t", pc.add(times, micros).cast(table["t"].type))


def _epochs(number: int, every: int = 10 * SECOND, offsets: dict[str, int] | None = None, **shape):
    shapes = dict.fromkeys("abc", Shape(**{"rows": 12, **shape}))
    epochs = generate(shapes, epochs=number, seed=5, every=Micros(every))
    return [{n: _shift(t, (offsets or {}).get(n, 0)) for n, t in epoch.items()} for epoch in epochs]


def _run(query, epochs, idle_timeout: int | None = None) -> InlineJoin:
    """Run the epochs; after each, all results so far must be those of the oracle."""
    timeout = None if idle_timeout is None else Micros(idle_timeout)
    join = InlineJoin(query, settings=Settings(2, 8, timeout))
    results: list[pa.Table] = []
    for number, epoch in enumerate(epochs, 1):
        results.append(join.run_epoch(epoch))
        taken = accept(query, epochs[:number], idle_timeout)
        assert_same_rows(pa.concat_tables(results), batch_join(query, taken.tables(query)))
    return join


def _state(join: InlineJoin) -> int:
    return sum(s.rows for s in join.manifest.slices if s.owner.kind == "index")


def _late(join: InlineJoin) -> dict[str, int]:
    return {name: mark.late for name, mark in join.manifest.streams.items()}


OFFSETS = st.fixed_dictionaries(dict.fromkeys("abc", st.integers(-HOUR, HOUR)))


@settings(max_examples=8)
@given(offsets=OFFSETS)
def test_skew_alone_makes_no_row_late_and_changes_no_result(offsets):
    query = _query(2 * HOUR + 15 * SECOND)
    join = _run(query, _epochs(4, offsets=offsets, late=0.1))
    assert join.manifest.results > 0
    # The newest rows of an epoch are a few seconds apart by themselves.
    apart = (max(offsets.values()) - min(offsets.values())) / 1000
    assert join.lastProgress is not None
    assert join.lastProgress["skewMs"] == pytest.approx(apart, abs=15_000)
    assert _late(join) == _late(_run(query, _epochs(4, late=0.1)))


def test_under_steady_skew_state_still_expires():
    offsets = {"a": -10 * MINUTE, "b": 0, "c": 10 * MINUTE}
    query = _query(25 * MINUTE)
    epochs = _epochs(36, every=5 * MINUTE, offsets=offsets)
    join = InlineJoin(query, settings=Settings(2, 8))
    sizes: list[int] = []
    for epoch in epochs:
        join.run_epoch(epoch)
        sizes.append(_state(join))
    assert max(sizes[24:]) < 1.5 * max(sizes[:12])
    assert join.manifest.results == batch_join(query, accept(query, epochs).tables(query)).num_rows > 0


def test_a_frozen_clock_holds_state_back_and_loses_nothing():
    query = _query(30 * SECOND)
    epochs = _epochs(14)
    frozen = pa.repeat(pc.max(epochs[3]["c"]["t"]), 12)
    # For six epochs c brings rows that all have one time: it is not idle, and must be waited for.
    stuck = [
        {**e, "c": e["c"].set_column(1, "t", frozen)} if 3 < number < 10 else e
        for number, e in enumerate(epochs)
    ]
    join = _run(query, stuck[:10])
    held = _state(join)
    assert _late(join) == dict.fromkeys("abc", 0)
    going = _run(query, epochs[:10])
    assert held > 1.5 * _state(going)
    # Once it goes on, so does everything else.
    assert _state(_run(query, stuck)) < held


def test_an_idle_timeout_lets_time_move_past_a_stream_that_stopped():
    query = _query(30 * SECOND)
    epochs = [{**e, "c": e["c"].slice(0, 0)} if n > 2 else e for n, e in enumerate(_epochs(14))]
    waiting = _run(query, epochs)
    going_on = _run(query, epochs, idle_timeout=20 * SECOND)
    assert going_on.manifest.streams["c"].idle
    assert not waiting.manifest.streams["c"].idle
    assert _state(going_on) < _state(waiting) / 2
    assert going_on.manifest.results == waiting.manifest.results > 0


@pytest.mark.parametrize(("lateness", "lost"), [(5 * SECOND, True), (2 * HOUR, False)], ids=["short", "long"])
def test_a_clock_that_steps_back_makes_rows_late_only_beyond_their_lateness(lateness, lost):
    query = _query(2 * HOUR, lateness)
    epochs = _epochs(6)
    stepped = [{**e, "b": _shift(e["b"], -HOUR)} if n > 2 else e for n, e in enumerate(epochs)]
    join = _run(query, stepped)
    marks = join.manifest.streams
    assert marks["b"].late == (36 if lost else 0)
    assert marks["b"].rows == 72
    assert (marks["a"].late, marks["c"].late) == (0, 0)
    # What is late is counted, and its clock never turns the watermark back.
    assert marks["b"].watermark == _run(query, epochs[:3]).manifest.streams["b"].watermark

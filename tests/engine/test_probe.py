import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine import hot_keys, probe
from midstream.engine.index_rows import IndexRows, in_time_order, sort_rows
from midstream.query.window import Windows
from midstream.values import Micros

EARLIEST, LATEST = -(2**63), 2**63 - 1
NO_WINDOWS = Windows(())
# Few values, so that there are hot keys and equal times; and both ends of the range.
TIMES = st.one_of(st.integers(-3, 6), st.sampled_from([EARLIEST, EARLIEST + 1, LATEST - 1, LATEST]))
WIDTHS = st.sampled_from([None, 0, 1, 3, 2**61, LATEST - 1, LATEST, LATEST + 1, 10**20])


def make_rows(streams: str, lines: list[tuple[int, ...]]) -> IndexRows:
    """Sorted rows from lines of a hash and a time for each stream."""
    columns = np.array(lines, object).reshape(len(lines), 1 + len(streams))
    times = {name: columns[:, 1 + i].astype(np.int64) for i, name in enumerate(streams)}
    return sort_rows((0,), columns[:, 0].astype(np.uint64), {}, times)


def drawn_rows(streams: str) -> st.SearchStrategy[IndexRows]:
    line = st.tuples(st.integers(0, 3), *[TIMES] * len(streams))
    return st.lists(line, max_size=25).map(lambda lines: make_rows(streams, lines))


def drawn_windows() -> st.SearchStrategy[Windows]:
    pairs = [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")]
    return st.tuples(*[WIDTHS] * len(pairs)).map(
        lambda widths: Windows(
            tuple((*p, Micros(w)) for p, w in zip(pairs, widths, strict=True) if w is not None)
        )
    )


def pairs_of(rows: IndexRows, run: IndexRows, windows: Windows) -> list[tuple[int, int]]:
    portions = probe.candidate_pairs(rows, run, windows)
    return [pair for left, right in portions for pair in zip(left.tolist(), right.tolist(), strict=True)]


def is_near(rows: IndexRows, i: int, run: IndexRows, j: int, windows: Windows) -> bool:
    """Whether two rows are within the windows, as far as the time by which the run is sorted tells."""
    run_time = int(run.times[run.time_order_stream][j])
    widths = [
        (int(times[i]), windows.width(name, run.time_order_stream)) for name, times in rows.times.items()
    ]
    # A width of more than 63 bits is ignored here; the check of all windows applies it later.
    return all(width is None or width > LATEST or abs(time - run_time) <= width for time, width in widths)


@given(drawn_rows("a"), drawn_rows("c"), st.sampled_from([1, 2, 3, 5, 1000]))
def test_all_pairs_are_found_once_in_order_and_in_portions(rows, run, portion):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "MAX_CANDIDATES_AT_ONCE", portion)
        portions = [
            (left.tolist(), right.tolist()) for left, right in probe.candidate_pairs(rows, run, NO_WINDOWS)
        ]
    assert all(0 < len(left) == len(right) <= portion for left, right in portions)
    pairs = [pair for left, right in portions for pair in zip(left, right, strict=True)]
    assert pairs == [(i, j) for i, x in enumerate(rows.hashes) for j, y in enumerate(run.hashes) if x == y]


@given(
    drawn_rows("ab"),
    st.sampled_from(["c", "cd", "dc"]).flatmap(drawn_rows),
    drawn_windows(),
    st.integers(1, 6),
    st.sampled_from([1, 3, 1000]),
)
def test_of_rows_with_a_hot_key_only_those_near_in_time_are_candidates(rows, run, windows, hot_rows, portion):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "MAX_CANDIDATES_AT_ONCE", portion)
        patch.setattr(hot_keys, "HOT_KEY_ROWS", hot_rows)
        run = in_time_order(run)
        pairs = pairs_of(rows, run, windows)
    sizes = dict(zip(*(c.tolist() for c in np.unique(run.hashes, return_counts=True)), strict=True))
    assert pairs == [
        (i, j)
        for i, x in enumerate(rows.hashes.tolist())
        for j, y in enumerate(run.hashes.tolist())
        if x == y and (sizes[y] < hot_rows or is_near(rows, i, run, j, windows))
    ]


@pytest.mark.parametrize(
    "count",
    [hot_keys.HOT_KEY_ROWS - 1, hot_keys.HOT_KEY_ROWS, hot_keys.HOT_KEY_ROWS + 1, 2 * hot_keys.HOT_KEY_ROWS],
)
def test_a_key_is_hot_from_a_number_of_rows_on(count):
    run = in_time_order(make_rows("c", [(7, -time) for time in range(count)]))
    windows = Windows((("a", "c", Micros(1)),))
    pairs = pairs_of(make_rows("a", [(6, 0), (7, -5), (8, 0)]), run, windows)
    assert len(pairs) == (3 if count >= hot_keys.HOT_KEY_ROWS else count)


def test_a_row_whose_windows_exclude_each_other_has_no_candidates():
    run = in_time_order(make_rows("c", [(7, time) for time in range(100)]))
    windows = Windows((("a", "c", Micros(1)), ("b", "c", Micros(1))))
    rows = make_rows("ab", [(7, 10, 90), (7, 10, 11), (7, EARLIEST, LATEST)])
    assert pairs_of(rows, run, windows) == [(1, 10), (1, 11)]

"""Rows with hot keys are in order of time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine import hot_keys
from midstream.engine.index_rows import IndexRows, in_time_order, merge_rows, sort_rows
from midstream.plan.state_id import StateId

LINES = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 2**63 - 1])))


def make_rows(lines: list[tuple[int, int]]) -> IndexRows:
    hashes, times = (np.array([line[i] for line in lines], np.int64) for i in (0, 1))
    numbers = np.arange(len(lines))
    return sort_rows((0,), hashes.astype(np.uint64), {StateId("a,b"): numbers}, {"b": times, "a": -numbers})


def lines_of(rows: IndexRows) -> list[tuple[int, int, int]]:
    columns = (rows.hashes, rows.times["b"], rows.references[StateId("a,b")])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def expected(rows: IndexRows, hot_rows: int) -> list[tuple[int, int, int]]:
    """Rows with hot keys in a stable order of time, the others in their order."""
    lines = lines_of(rows)
    ordered = []
    for key in sorted({line[0] for line in lines}):
        group = [line for line in lines if line[0] == key]
        ordered += sorted(group, key=lambda line: line[1]) if len(group) >= hot_rows else group
    return ordered


@given(LINES, st.integers(1, 6))
def test_only_rows_with_hot_keys_are_reordered_and_only_once(lines, hot_rows):
    rows = make_rows(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot_keys, "HOT_KEY_ROWS", hot_rows)
        ordered = in_time_order(rows)
        assert in_time_order(ordered) is ordered
    assert lines_of(ordered) == expected(rows, hot_rows)
    assert ordered.times["a"].tolist() == [-number for number in ordered.references[StateId("a,b")]]


@given(LINES, st.data())
def test_a_subset_of_rows_in_order_is_in_order(lines, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot_keys, "HOT_KEY_ROWS", 3)
        rows = in_time_order(make_rows(lines))
        mask = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
        subset = rows.take(np.array(mask, np.bool_))
        assert in_time_order(subset) is subset


@given(st.lists(LINES, min_size=1, max_size=4))
def test_merged_rows_are_put_in_order_too(parts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot_keys, "HOT_KEY_ROWS", 3)
        merged = merge_rows([in_time_order(make_rows(lines)) for lines in parts])
        assert lines_of(in_time_order(merged)) == expected(merged, 3)


def test_rows_without_hot_keys_are_left_as_they_are():
    rows = make_rows(
        [(number // (hot_keys.HOT_KEY_ROWS - 1), -number) for number in range(10 * hot_keys.HOT_KEY_ROWS)]
    )
    assert in_time_order(rows) is rows
    hot = make_rows(
        [(number // hot_keys.HOT_KEY_ROWS, -number) for number in range(10 * hot_keys.HOT_KEY_ROWS)]
    )
    assert in_time_order(hot) is not hot

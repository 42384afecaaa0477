import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.query.window import Windows, imply_windows
from midstream.state.expiry import Expiry
from midstream.values import Micros

WINDOWS = imply_windows("abc", None, {("a", "b"): Micros(10), ("b", "c"): Micros(20)})


def live(watermarks, **times):
    columns = {name: np.array(column) for name, column in times.items()}
    return Expiry(WINDOWS, watermarks).is_live(columns).tolist()


def test_a_row_is_live_until_no_future_row_can_meet_it():
    watermarks = {"a": 0, "b": 100, "c": 100}
    # Future rows of b are at 100 or later, so a is needed from 90 on; for c, 30 away, from 70 on.
    assert live(watermarks, a=[69, 70, 89, 90]) == [False, True, True, True]


def test_a_combined_row_has_expired_if_any_component_is_too_old():
    assert live({"a": 0, "b": 0, "c": 100}, a=[70, 69, 70], b=[80, 80, 79]) == [True, False, False]


def test_a_stream_without_a_watermark_or_window_keeps_everything_live():
    assert live({"a": 0, "b": None, "c": 100}, a=[-(10**9)]) == [True]
    assert Expiry(Windows(()), {"a": 5, "b": 10**9}).is_live({"a": np.array([0])}).tolist() == [True]


def test_rows_of_all_streams_are_dead():
    expiry = Expiry(WINDOWS, {"a": 0, "b": 0, "c": 0})
    assert expiry.has_expired("abc", [10**9] * 3)


@pytest.mark.parametrize(("latest", "dead"), [(69, True), (70, False)])
def test_a_slice_has_expired_if_its_latest_rows_are(latest, dead):
    assert Expiry(WINDOWS, {"a": 0, "b": 100, "c": 100}).has_expired(("a",), (latest,)) is dead


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1),
    st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(0, 80), min_size=3),
)
def test_a_slice_that_has_expired_has_no_live_row(rows, watermarks):
    expiry = Expiry(WINDOWS, watermarks)
    times = {"a": np.array([r[0] for r in rows]), "b": np.array([r[1] for r in rows])}
    if expiry.has_expired(("a", "b"), [int(t.max()) for t in times.values()]):
        assert not expiry.is_live(times).any()

"""Error contexts say where a library failed, as far as is known, and quote no values."""

import pickle
import traceback

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from midstream.engine import joiner
from midstream.engine.arrays import as_column
from midstream.engine.error_context import ComputingError, error_context
from midstream.errors import InternalError, error_fields, error_from
from midstream.inline import InlineJoin
from tests.helpers import rows, small_query

CANARY = "canary-7f3a"
FAILURES = {
    "a failure of Arrow (invalid)": pa.ArrowInvalid(CANARY),
    "a failure of Arrow (not implemented)": pa.ArrowNotImplementedError(CANARY),
    "a failure of Arrow (capacity)": pa.ArrowCapacityError(CANARY),
    "a failure of Polars (compute)": pl.exceptions.ComputeError(CANARY),
    "a failure of Polars (panic)": pl.exceptions.PanicException(CANARY),
    "a failure (overflow)": OverflowError(CANARY),
}


@pytest.mark.parametrize(("words", "failure"), FAILURES.items(), ids=FAILURES)
def test_an_error_of_a_library_becomes_our_error(words, failure):
    with (
        pytest.raises(InternalError) as raised,
        error_context("a step", batch=3, streams="ab", columns=["a.x"]),
    ):
        raise failure
    error = raised.value
    assert error.must == "a step must work with any rows"
    assert f"got {words} in " in str(error)
    assert "(batch 3, streams a, b, column a.x)" in str(error)
    assert CANARY not in "".join(traceback.format_exception(error))


def test_a_real_panic_is_caught():
    beyond_the_calendar = pl.Series(pl.from_arrow(pa.array([2**31 - 1], pa.int32()).view(pa.date32())))
    with (
        pytest.raises(InternalError, match=r"a failure of Polars \(panic\) in .*\(batch 0\)"),
        error_context(batch=0),
    ):
        beyond_the_calendar.to_frame("x").to_struct().struct.json_encode()


def test_the_line_of_our_code_is_named():
    with (
        pytest.raises(InternalError, match=r"got a failure of Arrow \([a-z ]+\) in arrays.py, line \d+"),
        error_context(),
    ):
        as_column(np.array(["no number"], object))


def test_outer_contexts_add_what_inner_ones_lack():
    task, node = error_context("a step", batch=3, streams="abc"), error_context(streams=["a"])
    condition = error_context(condition="a.x < b.x", columns=["a.x", "b.x", "a.x"])
    with pytest.raises(InternalError) as raised, task, node, condition:
        raise pa.ArrowInvalid(CANARY)
    assert "(batch 3, stream a, condition a.x < b.x, columns a.x, b.x)" in str(raised.value)


@pytest.mark.parametrize(
    "error", [ValueError("ours"), pa.lib.ArrowMemoryError("malloc"), KeyboardInterrupt(), InternalError("x")]
)
def test_other_errors_pass(error):
    with pytest.raises(type(error)) as raised, error_context("a step", batch=3):
        raise error
    assert raised.value is error


def test_an_error_of_a_task_can_be_sent_to_the_driver():
    with pytest.raises(ComputingError) as raised, error_context("a step", batch=3):
        raise pa.ArrowInvalid(CANARY)
    for copy in (error_from(error_fields(raised.value)), pickle.loads(pickle.dumps(raised.value))):  # noqa: S301
        assert isinstance(copy, InternalError)
        assert str(copy) == str(raised.value)


@pytest.mark.parametrize(
    "error",
    [
        pl.exceptions.InvalidOperationError(f"conversion failed for value {CANARY}"),
        pl.exceptions.ComputeError(CANARY),
        pa.ArrowInvalid(f"Failed to parse string: {CANARY!r}"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_condition_that_cannot_be_computed_gives_no_value_away(monkeypatch, error):
    def fail(*_):
        raise error

    query = small_query(["a.k = b.k", "a.v <> b.v"], default_window=10)
    join = InlineJoin(query)
    monkeypatch.setattr(joiner, "filter_residual", fail)
    with pytest.raises(InternalError, match=r"got a failure of \w+ \([a-z ]+\) in \w+.py") as failure:
        join.run_epoch({"a": rows((0, 1, 0, CANARY)), "b": rows((0, 1, 0, "x"))})
    assert CANARY not in "".join(traceback.format_exception(failure.value))
    assert join.manifest.epoch == -1

"""Errors of libraries may quote values of rows; those of Midstream say where it happened, without values."""

import traceback

import polars as pl
import pyarrow as pa
import pytest

from midstream.engine import joiner
from midstream.errors import InternalError
from midstream.inline import InlineJoin
from tests.helpers import rows, small_query

CANARY = "canary-7f3a"


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

    query = small_query(["a.k = b.k", "a.v <> b.v"], everywhere=10)
    join = InlineJoin(query)
    monkeypatch.setattr(joiner, "filter_residual", fail)
    with pytest.raises(InternalError, match=rf"got {type(error).__name__} in \w+.py, line \d+") as failure:
        join.run_epoch({"a": rows((0, 1, 0, CANARY)), "b": rows((0, 1, 0, "x"))})
    assert CANARY not in "".join(traceback.format_exception(failure.value))
    assert join.manifest.epoch == -1

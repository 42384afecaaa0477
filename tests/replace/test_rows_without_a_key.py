"""Rows that were not stored because a key was null, and a new definition that does not compare that key."""

import pyarrow as pa
import pytest

from midstream.migration.strategies import BLACK_BOX_STRATEGIES
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.testing import assert_same_rows
from midstream.testing.random_streams import SECOND
from midstream.values import Micros
from tests.replace.replacement_run import ReplacementRun, results_between

SCHEMA = pa.schema([("id", pa.int64()), ("t", pa.timestamp("us")), ("k", pa.int64()), ("j", pa.string())])


def _query(names: str, *predicates: str) -> Query:
    streams = [Stream(name, SCHEMA, ColumnRef(name, ("t",)), Micros(5 * SECOND)) for name in names]
    window = Micros(20 * SECOND)
    return build_query(streams, predicates, default_window=window, select=["a.id", "b.id"])


OLD = _query("abc", "a.k = b.k", "b.j = c.j")
NEW = _query("ab", "a.k = b.k")


def _rows(epoch: int, name: str) -> pa.Table:
    """One row a second of event time; every second one of b has no key for c."""
    times = range(4 * epoch, 4 * epoch + 4)
    keys = [None if name == "b" and time % 2 else "x" for time in times]
    columns = [
        pa.array([time + 1000 * ord(name) for time in times]),
        pa.array([time * SECOND for time in times], pa.int64()).cast(pa.timestamp("us")),
        pa.array([time // 40 for time in times]),
        pa.array(keys, pa.string()),
    ]
    return pa.table(columns, schema=SCHEMA)


@pytest.mark.parametrize("strategy", sorted(BLACK_BOX_STRATEGIES))
def test_results_pass_over_later_so_that_none_lacks_such_a_row(strategy):
    run = ReplacementRun(OLD, None, Settings(2, 8))
    for epoch in range(20):
        if epoch == 5:
            text = run.join.explain_replace(NEW)
            assert "b: some were not stored, because a column was null that is no key any more" in text
            assert "stream left out: c" in text
            run.replace(NEW, strategy)
        run.process({name: _rows(epoch, name) for name in "abc"}, 1)
    assert run.has_ended
    assert run.replacement is not None
    # Of b, nothing from before it was live is counted on.
    live = run.live_since or 0
    until = (4 * live - 1 + 20) * SECOND
    assert run.replacement.until == until
    # Of all rows there are, those included that were dropped.
    tables = {name: pa.concat_tables([_rows(epoch, name) for epoch in range(20)]) for name in "abc"}
    want = [results_between(OLD, tables, None, until), results_between(NEW, tables, until, None)]
    assert want[1].num_rows > 100
    assert_same_rows(pa.concat_tables(run.tables), pa.concat_tables(want))

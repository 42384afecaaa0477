"""State: only dead rows are purged, and none too early."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.state.expiry import Expiry
from midstream.testing import Shape, accept, assert_same_rows, batch_join, generate, naive_join, stream
from midstream.testing.hypothesis_strategies import cases
from midstream.testing.oracle import matching_rows
from midstream.testing.random_streams import SECOND
from midstream.testing.reference import micros
from midstream.values import Micros
from tests.helpers import rows, small_query


@given(cases(max_streams=4))
def test_a_dead_row_is_in_no_later_result(case):
    query, names = case.query, case.query.names
    accepted = accept(query, case.epochs, case.settings.idle_timeout)
    tables = accepted.tables(query)
    times = {n: [micros(t) for t in tables[n].column("t").to_pylist()] for n in names}
    arrival = {
        n: [e for e, part in enumerate(accepted.epochs) if n in part for _ in range(part[n].num_rows)]
        for n in names
    }
    results = matching_rows(query, tables).to_pylist()
    for epoch in range(1, len(case.epochs)):
        progress = accepted.history[epoch - 1]
        expiry = Expiry(query.windows, {n: stream.watermark for n, stream in progress.items()})
        later = [r for r in results if max(arrival[n][r[n]] for n in names) >= epoch]
        for size in range(1, len(names)):
            for part in combinations(names, size):
                stored = [r for r in later if all(arrival[n][r[n]] < epoch for n in part)]
                if not stored:
                    continue
                columns = {n: np.array([times[n][r[n]] for r in stored]) for n in part}
                live = expiry.is_live(columns)
                assert live.all(), f"{part} at epoch {epoch}"
                newest = [int(columns[n].max()) for n in part]
                assert not expiry.has_expired(part, newest)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 14)), min_size=2, max_size=12),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_nothing_is_purged_too_early(arrivals, window, lateness):
    query = small_query(
        ["a.k = b.k"], lateness=lateness, default_window=Micros(window), select=["a.t", "b.t"]
    )
    # With one row per epoch, whatever is purged is at the edge of its window.
    epochs = [{name: rows((time, 1))} for name, time in arrivals]
    join = InlineJoin(query, settings=Settings(1, 1))
    results = pa.concat_tables([join.run_epoch(epoch) for epoch in epochs])
    assert_same_rows(results, naive_join(query, accept(query, epochs).tables(query)))


@pytest.mark.parametrize("seed", range(6))
def test_thousands_of_rows_with_every_irregularity(seed):
    names = "abcd"[: 2 + seed % 3]
    shapes = {
        name: Shape(
            rows=60,
            keys=30,
            hot=0.1,
            late=0.05,
            null_keys=0.03,
            null_times=0.02,
            duplicates=0.05,
            silent=frozenset(range(i, 20, 5)) if i else frozenset(),
        )
        for i, name in enumerate(names)
    }
    query = build_query(
        [stream(n, shapes[n]) for n in names],
        [f"{x}.k = {y}.k" for x, y in pairwise(names)]
        + [f"{names[0]}.k2 = {names[-1]}.k2", f"{names[0]}.v <= {names[-1]}.v"],
        default_window=Micros(15 * SECOND),
        select=[f"{n}.id" for n in names],
    )
    epochs = generate(shapes, 20, seed)
    join = InlineJoin(query, settings=Settings(2, 8))
    results = [join.run_epoch(epoch) for epoch in epochs]
    tables = accept(query, epochs).tables(query)
    assert_same_rows(pa.concat_tables(results), batch_join(query, tables))

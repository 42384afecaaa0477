"""Lateness and windows between streams that change at restarts: no result is before the output watermark.

What is aggregated must be the results of a query without aggregates that goes through the same changes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.window import Window, window
from midstream.errors import CheckpointError
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.window import imply_windows
from midstream.storage.memory_store import MemoryStore
from midstream.testing import Shape, generate, stream
from midstream.testing.hypothesis_aggregates import with_aggregation
from midstream.testing.random_streams import SECOND
from midstream.values import Micros

SHAPE = Shape(rows=10, late=0.2, keys=4)
SETTINGS = Settings(2, 8)
SECONDS = st.sampled_from([5, 10, 20, 40])
STREAMS = [stream(name, SHAPE) for name in "abc"]


@cache
def asked(within: int, lateness: int, time: str | None) -> tuple[Query, Query]:
    """The query with aggregates, and the same without."""
    streams = [replace(each, lateness=Micros(lateness * SECOND)) for each in STREAMS]
    plain = build_query(
        streams,
        ["a.k = b.k", "b.k2 = c.k2"],
        default_window=Micros(within * SECOND),
        select=["a.k", "a.t", "b.t", "c.t"],
    )
    groups: list[str | Window] = ["a.k", window("15 seconds", "5 seconds", time=time)]
    return with_aggregation(plain, read_aggregation(groups, ["count(*) AS n"], streams)), plain


def counted(results: pa.Table, time: str | None, until: int | None) -> Counter[tuple[int, int]]:
    """How many results each key and window has."""
    names = [f"{name}_t" for name in "abc"] if time is None else [time.replace(".", "_")]
    times = np.max([results.column(name).cast(pa.int64()).to_numpy() for name in names], axis=0, initial=0)
    counts: Counter[tuple[int, int]] = Counter()
    for key, at in zip(results.column("a_k").to_pylist(), times.tolist(), strict=True):
        first = at - at % (5 * SECOND)
        ends = (first - step * 5 * SECOND + 15 * SECOND for step in range(3))
        counts.update((key, end) for end in ends if until is not None and end <= until)
    return counts


@given(st.data())
def test_windows_have_what_a_query_without_aggregates_gives(data):
    time = data.draw(st.sampled_from([None, "a.t", "b.t", "c.t"]))
    epochs = generate(dict.fromkeys("abc", SHAPE), epochs=10, seed=data.draw(st.integers(0, 1 << 20)))
    changes = data.draw(st.dictionaries(st.integers(1, 9), st.tuples(SECONDS, SECONDS), max_size=3))
    changes[0] = data.draw(st.tuples(SECONDS, SECONDS))
    store, plain_store = MemoryStore(), MemoryStore()
    windows, results = [], []
    for number, epoch in enumerate([*epochs, {}]):
        if number in changes:
            query, plain_query = asked(*changes[number], time)
            # In one place, as what it gives depends neither on its plan nor on its partitions.
            plain_join = InlineJoin(plain_query, "a b c", settings=Settings(1, 1), store=plain_store)
        join = InlineJoin(query, settings=SETTINGS, store=store)
        windows.append(join.run_epoch(epoch))
        results.append(plain_join.run_epoch(epoch))
    until = join.manifest.emitted
    got, plain = pa.concat_tables(windows), pa.concat_tables(results)
    ends = got.column("window").combine_chunks().field("end").cast(pa.int64()).to_pylist()
    groups = list(zip(got.column("a_k").to_pylist(), ends, strict=True))
    assert len(set(groups)) == len(groups)
    wanted = counted(plain, time, until)
    assert dict(zip(groups, got.column("n").to_pylist(), strict=True)) == wanted


def test_another_definition_is_refused():
    store = MemoryStore()
    query, plain = asked(10, 5, None)
    InlineJoin(query, settings=SETTINGS, store=store).run_epoch({})
    other, _ = asked(10, 5, "a.t")
    begun = ["a.k AS a_k", "window('15 seconds', '5 seconds')"]
    changed = ["a.k AS a_k", "window('15 seconds', '5 seconds', time of a)"]
    by = read_aggregation(["a.k", window("20 seconds")], ["count(*) AS n"], plain.streams)
    tumbling, longer = with_aggregation(plain, by), ["a.k AS a_k", "window('20 seconds')"]
    for asks, got in ((plain, "nothing"), (other, str(changed)), (tumbling, str(longer))):
        with pytest.raises(CheckpointError) as raised:
            InlineJoin(asks, settings=SETTINGS, store=store)
        assert raised.value.must.endswith(f": groupBy was {begun}")
        assert raised.value.got == got
        assert raised.value.hint == (
            "write it as it was, let it replace the old one with the option 'replace', "
            "or start a new query with another checkpointLocation"
        )
    wider = replace(query, windows=imply_windows(query.names, Micros(20 * SECOND), {}))
    InlineJoin(wider, settings=SETTINGS, store=store).run_epoch({})

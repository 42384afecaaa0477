"""What a running query cannot become is refused at the call."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from midstream.errors import OptionError, PlanError, QueryError
from midstream.inline import InlineJoin
from midstream.migration.strategies import BLACK_BOX_STRATEGIES
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.testing.random_streams import SECOND
from midstream.values import Micros
from tests.sites.adaptive_case import sited_query

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("t", pa.timestamp("us")),
        ("t2", pa.timestamp("us")),
        ("k", pa.int64()),
        ("v", pa.int64()),
    ]
)


def query(
    names="abc", *, on=(), window=10, time="t", schema=SCHEMA, select=("a.id", "b.id"), zone="UTC"
) -> Query:
    streams = [Stream(name, schema, ColumnRef(name, (time,)), Micros(0)) for name in names]
    chain = [f"{x}.k = {y}.k" for x, y in pairwise(names)]
    bound = None if window is None else Micros(window * SECOND)
    return build_query(streams, [*chain, *on], default_window=bound, select=select, zone=zone, cross=True)


OTHER_TYPE = SCHEMA.set(3, pa.field("k", pa.int32()))

REFUSED: dict[str, tuple[Query, dict[str, Any], str]] = {
    "a stream added and one left out": (query("abd"), {}, "but not both"),
    "other streams": (query("de", select=("d.id", "e.id")), {}, "but not both"),
    "another event time": (query(time="t2"), {}, "must keep its event time: a had a.t"),
    "another type": (query(schema=OTHER_TYPE), {}, "a.k was bigint"),
    "another time zone": (query(zone="Europe/Berlin"), {}, "must keep the time zone, UTC"),
    "another schema without a path": (query(select=("a.id", "b.id AS other")), {}, "a place of their own"),
    "a column that is not stored": (query(on=("a.v <> b.v",)), {}, "none of a.v, b.v"),
    "no window": (query(window=None), {}, "must be joined within a window"),
    "a plan of other streams": (query("abcd"), {"plan": "a b c"}, "d"),
    "a white-box strategy": (query(), {"strategy": "hybrid"}, "must be one of generalized_hybrid"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_and_nothing_has_happened(case):
    new, options, message = REFUSED[case]
    join = InlineJoin(query(), settings=Settings(2, 8))
    join.run_epoch({})
    files = dict(join.store.files)  # type: ignore[attr-defined]  # it is one in memory
    with pytest.raises((QueryError, OptionError, PlanError), match=message) as error:
        join.replace(new, **options)
    assert error.value.hint or isinstance(error.value, OptionError | PlanError)
    assert not join.is_replacing
    assert dict(join.store.files) == files  # type: ignore[attr-defined]  # as above


@pytest.mark.parametrize("strategy", sorted(BLACK_BOX_STRATEGIES))
def test_without_windows_stored_rows_suffice_if_there_were_none_before(strategy):
    join = InlineJoin(query(window=None), settings=Settings(2, 8))
    join.run_epoch({})
    if strategy == "generalized_parallel_track":
        with pytest.raises(QueryError, match="must be joined within a window"):
            join.replace(query(window=None), "a (b c)", strategy)
    else:
        join.replace(query(window=None), "a (b c)", strategy)
        assert join.is_replacing


def test_what_needs_no_stored_rows_may_use_any_column():
    join = InlineJoin(query(), settings=Settings(2, 8))
    join.run_epoch({})
    join.replace(query(on=("a.v <> b.v",)), strategy="generalized_parallel_track")
    assert join.is_replacing


@pytest.mark.parametrize("side", ["before", "after"])
def test_streams_that_live_at_sites_are_refused(side):
    sited = sited_query()
    plain = replace(sited, topology=None)
    running, new = (sited, plain) if side == "before" else (plain, sited)
    join = InlineJoin(running)
    with pytest.raises(QueryError, match=r"no streams that live at sites.*got frankfurt"):
        join.replace(new)
    assert join.manifest.replacement is None

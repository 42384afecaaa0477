"""What differs between two definitions is told in the words in which it is asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.window import window
from midstream.protocol.settings import Settings, definition_of
from midstream.query.query import Query
from midstream.replace.changes import describe_changes
from midstream.testing.hypothesis_aggregates import with_aggregation
from tests.helpers import small_query
from tests.sites.adaptive_case import sited_query

ON = {"ab": ["a.k = b.k"], "abc": ["a.k = b.k", "b.k = c.k"], "abd": ["a.k = b.k", "b.k = d.k"]}


def query(
    names: str = "abc", *on: str, window: int | None = 10, select=("a.k", "b.k"), lateness: int = 0, **more
) -> Query:
    on = (*ON[names], *on)
    return small_query(list(on), names, lateness, default_window=window, select=list(select), **more)


def grouped(groups, calls, *, updates: bool = False) -> Query:
    aggregation = read_aggregation(groups, calls, query().streams)
    return with_aggregation(query(), replace(aggregation, is_update_mode=updates))


COUNT = grouped(["a.k AS k", window("10 seconds")], ["count(*) AS n"])
SITED = sited_query()
CHANGES: dict[str, tuple[Query, Query, list[str]]] = {
    "nothing": (query(), query(), []),
    "lateness": (
        query(),
        query(lateness=5_000_000),
        [f"lateness of {name}: 0 microseconds -> 5 seconds" for name in "abc"],
    ),
    "conditions": (
        query("abc", "a.k <> c.j"),
        query("abc", "a.j <> c.j", "a.j > b.j"),
        [
            "condition left out: a.k <> c.j",
            "condition added: a.j <> c.j",
            "condition added: a.j > b.j",
        ],
    ),
    "the order of conditions": (
        query("abc", "a.k <> c.j", "a.j <> c.j"),
        query("abc", "a.j <> c.j", "a.k <> c.j"),
        ["conditions: in another order, a.k = b.k, b.k = c.k, a.j <> c.j, a.k <> c.j"],
    ),
    "the window": (query(), query(window=30), ["window between streams: 10 microseconds -> 30 microseconds"]),
    "no window": (query(), query(window=None), ["window between streams: 10 microseconds -> none"]),
    "a window": (
        query(),
        query(pairs={("b", "c"): 15}),
        ["window between b and c: 10 microseconds -> 15 microseconds"],
    ),
    "a stream added": (query("ab"), query(), ["stream added: c", "condition added: b.k = c.k"]),
    "a stream added with a window of its own": (
        query("ab"),
        query(pairs={("b", "c"): 15}),
        [
            "stream added: c",
            "condition added: b.k = c.k",
            "window between a and c: 10 microseconds",
            "window between b and c: 15 microseconds",
        ],
    ),
    "a stream left out": (query(), query("ab"), ["stream left out: c", "condition left out: b.k = c.k"]),
    "a stream for another": (
        query(),
        query("abd"),
        [
            "stream left out: c",
            "stream added: d",
            "condition left out: b.k = c.k",
            "condition added: b.k = d.k",
        ],
    ),
    "outputs": (
        query(),
        query(select=("b.k", "a.k AS first", "c.v")),
        ["output left out: a.k AS a_k", "output added: a.k AS first", "output added: c.v AS c_v"],
    ),
    "the order of outputs": (
        query(),
        query(select=("b.k", "a.k")),
        ["outputs: in another order, b.k AS b_k, a.k AS a_k"],
    ),
    "aggregates at all": (
        query(),
        COUNT,
        ["results: a.k AS a_k, b.k AS b_k -> count(*) AS n by a.k AS k, window of 10 seconds"],
    ),
    "no aggregates": (
        COUNT,
        query(),
        ["results: count(*) AS n by a.k AS k, window of 10 seconds -> a.k AS a_k, b.k AS b_k"],
    ),
    "aggregates": (
        COUNT,
        grouped(["a.k AS k", window("10 seconds")], ["max(c.k) AS m", "count(*) AS n"]),
        ["aggregate added: max(c.k) AS m"],
    ),
    "groups": (
        COUNT,
        grouped([window("10 seconds"), "b.j AS j"], ["count(*) AS n"]),
        ["group left out: a.k AS k", "group added: b.j AS j"],
    ),
    "the place of the window": (
        COUNT,
        grouped([window("10 seconds"), "a.k AS k"], ["count(*) AS n"]),
        ["place of the window among the groups: column 2 -> column 1"],
    ),
    "windows of results": (
        COUNT,
        grouped(["a.k AS k", window("1 hour", "10 minutes", "5 minutes", time="a.t")], ["count(*) AS n"]),
        ["windows of results: 10 seconds -> 1 hour every 10 minutes, 5 minutes later, by the time of a"],
    ),
    "the output mode": (
        COUNT,
        grouped(["a.k AS k", window("10 seconds")], ["count(*) AS n"], updates=True),
        ["output mode: append -> update"],
    ),
    "the time zone": (query(), query(zone="Europe/Berlin"), ["time zone: UTC -> Europe/Berlin"]),
    "sites": (
        SITED,
        replace(SITED, topology=None),
        ["sites of the streams: a at frankfurt, b at paris, c at oregon -> none"],
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_told_and_nothing_else(change):
    before, after, lines = CHANGES[change]
    definitions = [definition_of(each, Settings(2, 8)) for each in (before, after)]
    assert list(describe_changes(*definitions)) == lines

"""A request that waits is dropped if its results could not go any more where they were to go, and says so."""

from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.storage.memory_store import MemoryStore
from midstream.storage.numbered_requests import REQUESTS
from tests.helpers import rows, small_query

KEYS = ["a.k = b.k", "b.k = c.k"]
SETTINGS = Settings(2, 8)


def query(*on: str, select: tuple[str, ...] = ("a.k", "b.k")):
    return small_query([*KEYS, *on], "abc", default_window=10, select=select)


def test_a_request_is_dropped_once_and_told_of_if_the_query_is_started_with_other_outputs():
    store = MemoryStore()
    join = InlineJoin(query(), settings=SETTINGS, store=store)
    join.run_epoch({"a": rows((1, 1))})
    join.replace(query("a.k <> b.j"), strategy="generalized_parallel_track")
    join = InlineJoin(query(select=("a.k",)), settings=SETTINGS, store=store)
    assert len(store.list(REQUESTS)) == 1
    join.run_epoch({"b": rows((2, 1))})
    (event,) = [e for e in join.recentProgress[-1]["events"] if e["type"].startswith("replacement")]
    assert (event["type"], event["severity"], event["request"]) == ("replacement-dropped", "warning", 1)
    assert join.manifest.replacement is None
    # It is gone, and another one may be made.
    assert not join.is_replacing
    assert store.list(REQUESTS) == []
    join.run_epoch({})
    assert join.recentProgress[-1]["events"] == []
    join.replace(query("a.k <> b.j", select=("a.k",)), strategy="generalized_parallel_track")
    join.run_epoch({})
    assert join.recentProgress[-1]["events"][0]["type"] == "replacement-started"
    assert join.manifest.replacements == 1

"""What else is asked for while a definition is replaced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from midstream.errors import OptionError
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.storage.memory_store import MemoryStore
from midstream.storage.numbered_requests import REQUESTS
from midstream.testing import Shape, generate, stream
from midstream.values import Micros

SHAPE = Shape(rows=6, keys=4)
EPOCHS = generate(dict.fromkeys("abc", SHAPE), epochs=14, seed=1)
KEYS = ("a.k = b.k", "b.k = c.k")
OTHER_KEYS = ("a.k = b.k", "b.k2 = c.k2")


def query(*on: str) -> Query:
    streams = [stream(name, SHAPE) for name in "abc"]
    return build_query(streams, on, default_window=Micros(5_000_000), select=["a.id", "b.id"], cross=True)


def run_epochs(join: InlineJoin, epochs: int) -> None:
    for _ in range(epochs):
        join.run_epoch(EPOCHS[join.manifest.epoch + 1])


def test_partitions_that_are_asked_for_at_the_same_time_come_after_it():
    join = InlineJoin(query(*KEYS), settings=Settings(1, 8))
    run_epochs(join, 3)
    join.rescale(3)
    join.replace(query(*KEYS, "a.id <> b.id"))
    run_epochs(join, 11)
    assert join.manifest.replacements == 1
    assert not join.is_replacing
    assert join.partitions == 3


def test_the_plan_that_a_migration_leads_to_goes_on():
    join = InlineJoin(query(*KEYS), "a (b c)", settings=Settings(2, 8))
    run_epochs(join, 4)
    join.migrate("(a b) c", "parallel_track")
    run_epochs(join, 1)
    assert join.manifest.migration is not None
    join.replace(query(*KEYS, "a.id <> b.id"))
    run_epochs(join, 9)
    assert join.manifest.replacements == 1
    assert join.manifest.plan == "(a b) c"


def test_partitions_in_which_its_plan_is_forbidden_are_refused():
    join = InlineJoin(query(*KEYS), "a b c", settings=Settings(1, 8, single_partition="forbid"))
    run_epochs(join, 3)
    join.replace(query(*OTHER_KEYS), "a b c", "generalized_parallel_track")
    with pytest.raises(OptionError, match="a replacement that was asked for must have ended"):
        join.rescale(3)
    run_epochs(join, 11)
    assert not join.is_replacing
    with pytest.raises(OptionError, match="forbid"):
        join.rescale(3)


def test_a_plan_that_is_forbidden_in_partitions_to_come_is_refused():
    join = InlineJoin(query(*KEYS), "a b c", settings=Settings(1, 8, single_partition="forbid"))
    run_epochs(join, 3)
    join.rescale(3)
    with pytest.raises(OptionError, match="forbid"):
        join.replace(query(*OTHER_KEYS), "a b c", "generalized_parallel_track")
    assert not join.is_replacing


def test_a_request_that_was_dropped_does_not_come_back():
    store = MemoryStore()
    join = InlineJoin(query(*KEYS), settings=Settings(2, 8), store=store)
    run_epochs(join, 3)
    join.replace(query(*KEYS, "a.id <> b.id"))
    one_column = replace(query(*KEYS), outputs=query(*KEYS).outputs[:1])
    # Results of the definition that was asked for have no place here.
    join = InlineJoin(one_column, settings=Settings(2, 8), store=store)
    run_epochs(join, 1)
    assert not join.is_replacing
    join = InlineJoin(query(*KEYS), settings=Settings(2, 8), store=store)
    run_epochs(join, 2)
    assert (join.manifest.replacements, join.is_replacing) == (0, False)
    assert store.list(REQUESTS) == []

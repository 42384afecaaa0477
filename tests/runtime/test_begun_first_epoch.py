"""A first epoch that was begun and not committed: the query stays what it began with."""

import pytest
from msgspec.structs import replace

from midstream.errors import CheckpointError
from midstream.inline import InlineJoin
from midstream.protocol.intent import encode_intent
from midstream.protocol.settings import Settings
from midstream.runtime.crash_points import POINTS
from midstream.storage.intents import find_intent
from midstream.storage.memory_store import MemoryStore
from midstream.testing.faults import SimulatedCrash
from midstream.values import Micros
from tests.helpers import die_at, small_query

QUERY = small_query(["a.k = b.k", "b.k = c.k"], "abc", default_window=10)


def _begin(store: MemoryStore) -> None:
    with pytest.raises(SimulatedCrash), die_at(POINTS[0]):
        InlineJoin(QUERY, "a (b c)", settings=Settings(2, 8), store=store).run_epoch({})


@pytest.mark.parametrize(
    ("other", "settings", "names"),
    [
        (QUERY, Settings(2, 9), "options.groups was 8; got 9"),
        (
            small_query(["a.k = b.k", "b.j = c.j"], "abc", default_window=10),
            Settings(2, 8),
            r"on was .*'b.k = c.k'.*; got .*'b.j = c.j'",
        ),
    ],
)
def test_a_first_epoch_that_was_begun_cannot_change_the_query(other, settings, names):
    store = MemoryStore()
    _begin(store)
    with pytest.raises(CheckpointError, match=names):
        InlineJoin(other, settings=settings, store=store)


def test_a_first_epoch_that_was_begun_keeps_its_plan():
    store = MemoryStore()
    _begin(store)
    restarted = InlineJoin(QUERY, "(a b) c", settings=Settings(2, 8, Micros(5)), store=store)
    restarted.run_epoch({})
    assert restarted.manifest.plan == restarted.manifest.initial_plan == "a (b c)"
    assert restarted.manifest.epoch == 0


def test_a_first_intent_without_the_query_is_refused():
    store = MemoryStore()
    _begin(store)
    intent = find_intent(store, 0)
    assert intent is not None
    store.put("intents/000000000000.json", encode_intent(replace(intent, first=None)))
    with pytest.raises(CheckpointError, match="must say what the query began with"):
        InlineJoin(QUERY, store=store)
    store.put("intents/000000000000.json", encode_intent(replace(intent, epoch=3)))
    with pytest.raises(CheckpointError, match="must be the intent of its epoch; got that of epoch 3"):
        InlineJoin(QUERY, store=store)

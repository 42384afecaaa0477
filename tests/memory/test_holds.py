"""How early rows may be that fragments owe, and what stays alive for them."""

from __future__ import annotations

from unittest import mock

import numpy as np

from midstream.inline import InlineJoin
from midstream.memory.holds import holds_of
from midstream.memory.next_step import MemoryDecision
from midstream.memory.settings import MemorySettings
from midstream.protocol.settings import Settings
from midstream.query.window import Windows
from midstream.state.expiry import Expiry
from midstream.state.memory import Mark, Memory
from midstream.storage.fsck import check as fsck
from midstream.storage.memory_store import MemoryStore
from midstream.values import Micros
from tests.helpers import rows, small_query

NAMES = frozenset("abc")
WINDOWS = Windows((("a", "b", Micros(10)), ("a", "c", Micros(20)), ("b", "c", Micros(10))))
MARK = Mark({"a": 100, "b": 130, "c": 150})


def _memory(fragment: str, mark: Mark = MARK) -> Memory:
    return Memory(cuts={fragment: {3: (7, 9)}}, marks={7: mark, 9: Mark({"a": 200, "b": 200, "c": 200})})


def test_a_hold_is_by_the_mark_of_the_oldest_cut():
    assert holds_of(_memory("0: a b"), NAMES) == ({"a": 100, "b": 130},)


def test_a_hold_is_as_early_as_what_fragments_below_owed():
    mark = Mark(MARK.watermarks, holds=({"a": 40, "b": 150}, {"b": 10, "c": 10}))
    assert holds_of(_memory("0: a b", mark), NAMES) == ({"a": 40, "b": 130},)


def test_a_hold_is_unbounded_without_a_watermark():
    (hold,) = holds_of(_memory("0: a b", Mark({"a": 100, "b": None, "c": 150})), NAMES)
    assert hold == {"a": 100, "b": None}


def test_what_the_last_fragment_owes_holds_nothing():
    assert holds_of(_memory("0: a b c"), NAMES) == ()


def test_rows_stay_alive_while_what_is_owed_may_meet_them():
    watermarks = {"a": 500, "b": 500, "c": 500}
    times = {"c": np.array([70, 79, 80, 489, 490])}
    assert Expiry(WINDOWS, watermarks).is_live(times).tolist() == [False, False, False, True, True]
    held = Expiry(WINDOWS, watermarks, holds=({"a": 100, "b": 90},))
    assert held.is_live(times).tolist() == [False, False, True, True, True]
    assert held.has_expired(("c",), (79,))
    assert not held.has_expired(("c",), (80,))
    # Rows that have streams of the fragment came from there.
    assert Expiry(WINDOWS, watermarks, holds=({"a": 100, "b": 90},)).has_expired(("a", "c"), (85, 85))


def test_no_row_that_had_expired_when_the_cut_was_made_comes_to_life():
    at_the_cut = Expiry(WINDOWS, MARK.watermarks)
    later = Expiry(WINDOWS, {"a": 500, "b": 500, "c": 500}, holds=holds_of(_memory("0: a b"), NAMES))
    times = {"c": np.arange(60, 160)}
    assert np.array_equal(later.is_live(times), at_the_cut.is_live(times))


def test_a_row_that_has_lost_a_component_stays_expired_when_groups_are_spilled():
    query = small_query(["a.j = b.j", "b.k = c.k", "c.k = d.k"], "abcd", default_window=20)
    everyone = "abcd"
    epochs = [
        {name: rows((0, number, number, "")) for number, name in enumerate(everyone) if name != "c"},
        {"c": rows((10, 1, 1, ""))},
        # A row of c and d is stored, of the times 10 and 25, beside one of 26 and 25.
        {"c": rows((26, 1, 1, "")), "d": rows((25, 1, 1, ""))},
        {name: rows((31, 9 + number, 9, "")) for number, name in enumerate(everyone)},
        # What c had at 10 goes, and the groups of a and b are spilled.
        {},
        {},
    ]

    def spill(context, _sizes, _inputs):
        spilled = {"0: a b": frozenset(range(8))} if context.epoch == 4 else {}
        return MemoryDecision(spilled)

    store = MemoryStore()
    settings = Settings(1, 8, memory=MemorySettings(1 << 30), max_event_time_ahead=None)
    with mock.patch("midstream.protocol.epoch_memory.decide_memory", spill):
        join = InlineJoin(query, "((d c) (a b))", settings=settings, store=store)
        for epoch in epochs:
            join.run_epoch(epoch, now=0)
            assert fsck(store).problems == ()
    assert join.manifest.memory.cuts

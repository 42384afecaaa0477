"""How early rows may be that fragments owe, and what stays alive for them."""

from __future__ import annotations

import numpy as np

from midstream.memory.holds import holds_of
from midstream.query.window import Windows
from midstream.state.expiry import Expiry
from midstream.state.memory import Mark, Memory
from midstream.values import Micros

NAMES = frozenset("abc")
WINDOWS = Windows((("a", "b", Micros(10)), ("a", "c", Micros(20)), ("b", "c", Micros(10))))
MARK = Mark({"a": 100, "b": 130, "c": 150})


def _memory(fragment: str, mark: Mark = MARK) -> Memory:
    return Memory(cuts={fragment: {3: (7, 9)}}, marks={7: mark, 9: Mark({"a": 200, "b": 200, "c": 200})})


def test_a_hold_is_by_the_mark_of_the_oldest_cut():
    (hold,) = holds_of(_memory("0: a b"), WINDOWS, NAMES)
    assert hold == {"a": min(100, 130 - 10, 150 - 20), "b": min(130, 100 - 10, 150 - 10)}


def test_it_is_as_early_as_what_fragments_below_owed():
    mark = Mark(MARK.watermarks, holds=({"a": 40, "b": 50},))
    (hold,) = holds_of(_memory("0: a b", mark), WINDOWS, NAMES)
    assert hold == {"a": 40, "b": 50}


def test_it_is_unbounded_without_a_watermark_or_a_window():
    (hold,) = holds_of(_memory("0: a b", Mark({"a": 100, "b": None, "c": 150})), WINDOWS, NAMES)
    assert hold == {"a": None, "b": None}


def test_what_the_last_fragment_owes_holds_nothing():
    assert holds_of(_memory("0: a b c"), WINDOWS, NAMES) == ()


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

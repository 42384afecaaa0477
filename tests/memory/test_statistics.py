"""What groups have produced, traced to results through the fragments above."""

from __future__ import annotations

import math

import numpy as np
import pytest

from midstream.engine.group_counts import RESULTS
from midstream.memory.statistics import read_statistics, update_statistics
from midstream.plan.build_layout import build_layout
from midstream.plan.state_id import StateId
from midstream.plan.tree import parse_plan
from midstream.state.memory import GroupStatistics
from midstream.state.slices import Slice, SliceOwner
from tests.helpers import small_query

QUERY = small_query(["a.k = b.k", "b.j = c.j"], "abc", default_window=2_000_000)
LAYOUT = build_layout(QUERY, parse_plan("(a b) c", "abc"))
BELOW, ABOVE = "0: a b", "1: a,b c"


def _flows(*triples: tuple[int, int, int]) -> bytes:
    return np.array(triples, np.int32).tobytes()


def _update(
    before: dict[str, GroupStatistics], flows: dict[str, bytes], seconds: float = 0.0
) -> dict[str, GroupStatistics]:
    owner = SliceOwner("index", StateId.of("ab"), (1,), 0)
    pairs = Slice(owner, first_epoch=0, last_epoch=0, epochs=1, rows=4, latest=(0, 0), bytes=200)
    return update_statistics(QUERY, LAYOUT, before, flows, [pairs], groups=3, seconds=seconds)


def test_results_are_due_to_groups_below_in_proportion_to_what_they_sent():
    # Group 0 sends 30 rows to group 2 above and 10 to group 1; group 1 sends 10 to group 2.
    flows = {BELOW: _flows((0, 2, 30), (0, 1, 10), (1, 2, 10)), ABOVE: _flows((2, RESULTS, 400))}
    after = _update({}, flows)
    below, above = read_statistics(after[BELOW], 3), read_statistics(after[ABOVE], 3)
    assert above.results.tolist() == [0, 0, 400]
    assert below.rows.tolist() == [40, 10, 0]
    assert below.results.tolist() == [300, 100, 0]
    assert below.stored_bytes.tolist() == [2000, 500, 0]


def test_every_result_counts_once_in_each_fragment():
    flows = {
        BELOW: _flows((0, 2, 3), (1, 2, 7), (2, 0, 5)),
        ABOVE: _flows((2, RESULTS, 90), (0, RESULTS, 10)),
    }
    after = _update({}, flows)
    assert [read_statistics(after[name], 3).results.sum() for name in (BELOW, ABOVE)] == [100, 100]


def test_figures_fade_with_half_a_window():
    first = _update({}, {ABOVE: _flows((1, RESULTS, 100))})
    later = _update(first, {}, seconds=1.0)
    assert read_statistics(later[ABOVE], 3).results[1] == pytest.approx(100 / math.e)

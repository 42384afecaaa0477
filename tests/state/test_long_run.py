"""Long runs: slices stay few, rows stay bounded, old files are deleted."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import pytest

from midstream.inline import InlineJoin
from midstream.protocol.coordinator import EPOCHS_KEPT, RETIRED_KEPT
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.storage.memory_store import MemoryStore
from midstream.testing import Shape, generate, stream
from midstream.testing.random_streams import SECOND
from midstream.values import Micros

SHAPE = Shape(rows=4, keys=4, late=0.05, null_keys=0.02, duplicates=0.1)
HALF_MINUTE = Micros(30 * SECOND)


def query_of(names="abc", default_window=HALF_MINUTE):
    pairs = [f"{x}.k = {y}.k" for x, y in pairwise(names)]
    return build_query([stream(n, SHAPE) for n in names], pairs, default_window=default_window)


@pytest.mark.parametrize("plan", ["(a b) c", "a b c"])
def test_a_long_run_has_few_slices_bounded_state_and_no_old_files(plan):
    epochs, store = 300, MemoryStore()
    join = InlineJoin(query_of(), plan, settings=Settings(1, 4), store=store)
    sizes = []
    for number, epoch in enumerate(generate(dict.fromkeys("abc", SHAPE), epochs, seed=1)):
        join.run_epoch(epoch)
        slice_counts = Counter(s.owner for s in join.manifest.slices)
        assert max(slice_counts.values()) <= 3 * math.log(number + 2, 4) + 4
        sizes.append(sum(s.rows for s in join.manifest.slices))
        files = {f"slices/{s.name}" for s in join.manifest.slices}
        files |= {f"slices/{r.name}" for r in join.manifest.retired}
        assert set(store.list("slices")) == files
        assert len(store.list("manifests")) <= EPOCHS_KEPT
        assert all(r.epoch > number - RETIRED_KEPT for r in join.manifest.retired)
    assert max(sizes[100:]) <= 1.5 * max(sizes[20:100])


def test_without_a_window_slices_stay_few_too():
    join = InlineJoin(query_of("ab", None), settings=Settings(1, 4))
    shapes = {n: Shape(rows=1, keys=50) for n in "ab"}
    for number, epoch in enumerate(generate(shapes, 300, seed=2)):
        join.run_epoch(epoch)
        slice_counts = Counter(s.owner for s in join.manifest.slices)
        assert max(slice_counts.values()) <= 3 * math.log(number + 2, 4) + 4

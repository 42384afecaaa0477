"""What a cleanup costs."""

from __future__ import annotations

import pyarrow as pa
import pytest

from midstream.engine.work import WorkCounts
from midstream.inline import InlineJoin
from midstream.memory.settings import MemorySettings
from midstream.protocol.settings import Settings
from midstream.storage.memory_store import MemoryStore
from tests.helpers import rows, small_query

QUERY = small_query(["a.k = b.k", "b.k = c.k"], "abc", select=["a.v as a", "b.v as b", "c.v as c"])
ROWS = 480


def _work_of_cleanup(epochs: int) -> tuple[WorkCounts, list[pa.Table]]:
    """The same rows in so many epochs, each of which spills all groups; then all come back at once."""
    store, settings = MemoryStore(), Settings(2, 8, memory=MemorySettings(1, spill_share=1.0))
    join, results = InlineJoin(QUERY, "a b c", settings=settings, store=store), []
    keys = list(range(ROWS))
    for number in range(epochs):
        # Every epoch has each stream's rows of other keys, so that all results are of several epochs.
        parts = {s: keys[(number + shift) % epochs :: epochs] for shift, s in enumerate("abc")}
        arrivals = {s: rows(*((number, key, key, f"{s}{key}") for key in part)) for s, part in parts.items()}
        results.append(join.run_epoch(arrivals))
    assert max(len(cuts) for _, _, cuts in join.manifest.memory.spilled()) == epochs - 1
    join = InlineJoin(QUERY, settings=Settings(2, 8), store=store)
    results.append(join.run_epoch({}))
    assert not join.manifest.memory.cuts
    return join.report.work, results


@pytest.mark.parametrize("epochs", [4, 24])
def test_a_cleanup_looks_at_each_row_once_however_many_generations_and_slices_there_are(epochs):
    work, results = _work_of_cleanup(epochs)
    assert [table.num_rows for table in results] == [0] * epochs + [ROWS]
    assert work.scanned_rows == 3 * ROWS
    # Each row of an input searches another one, and what it finds a third.
    assert work.probes <= 2 * 3 * ROWS
    assert work.candidates <= 2 * 3 * ROWS

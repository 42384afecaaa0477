"""Groups that are spilled while two plans run: what they owe is made once, whatever the plans share."""

from __future__ import annotations

import pyarrow as pa
import pytest

from midstream.inline import InlineJoin
from midstream.memory.settings import MemorySettings
from midstream.protocol.settings import Settings
from midstream.storage.slice_files import SliceFiles
from midstream.testing import accept, assert_same_rows, batch_join
from tests.helpers import rows, small_query

QUERY = small_query(
    ["a.k = b.k", "b.k = c.k", "c.k = d.k"], "abcd", default_window=35, select=["a.v", "b.v", "c.v", "d.v"]
)
EPOCHS = [
    {name: rows(*((10 * epoch, key, 0, f"{name}{epoch} {key}") for key in range(12))) for name in "abcd"}
    for epoch in range(8)
]


@pytest.mark.parametrize(
    "how",
    [{"strategy": "parallel_track"}, {"strategy": "hybrid", "isolated": True}, {"strategy": "hybrid"}],
    ids=lambda how: " ".join(map(str, how.values())),
)
def test_what_is_spilled_while_two_plans_share_a_combined_state_is_made_once(how):
    settings = Settings(2, 8, memory=MemorySettings(3_000))
    join = InlineJoin(QUERY, "((a b) c) d", settings=settings)
    tables = [join.run_epoch(epoch) for epoch in EPOCHS[:3]]
    join.migrate("((a b) d) c", background="off", **how)
    tables += [join.run_epoch(EPOCHS[3])]
    assert join.manifest.migration is not None
    tables += [join.run_epoch(epoch) for epoch in EPOCHS[4:]]
    tables.append(join.drain())
    tables += [SliceFiles(join.store).open(s) for s in join.manifest.slices if s.owner.kind == "deferred"]
    accepted = accept(QUERY, EPOCHS, settings.idle_timeout).tables(QUERY)
    assert_same_rows(pa.concat_tables(tables), batch_join(QUERY, accepted))

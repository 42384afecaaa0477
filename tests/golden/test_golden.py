"""Checkpoints of every released format open in this version, and go on with the right results.

When the format changes: raise ``FORMAT`` in ``state/manifest.py``, teach ``decode_manifest`` to read the
old one, add a checkpoint of the new one with ``python -m tests.golden.case tests/golden/format-N``, and
leave the old ones as they are.
"""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from midstream.inline import InlineJoin
from midstream.state.manifest import FORMAT
from midstream.storage.fsck import check
from midstream.storage.local import LocalStore
from midstream.testing import accept, assert_same_rows, batch_join
from tests.golden.case import EPOCHS, MADE_WITH, QUERY, SETTINGS

FORMATS = sorted(Path(__file__).parent.glob("format-*"))


def test_there_is_a_golden_checkpoint_of_the_current_format():
    assert f"format-{FORMAT}" in [path.name for path in FORMATS]


@pytest.mark.parametrize("path", FORMATS, ids=lambda path: path.name)
def test_a_golden_checkpoint_opens_and_goes_on(path, tmp_path):
    shutil.copytree(path, tmp_path / "checkpoint")
    store = LocalStore(str(tmp_path / "checkpoint"))
    assert check(store).problems == ()
    query = InlineJoin(QUERY, settings=SETTINGS, store=store)
    assert query.manifest.epoch == MADE_WITH - 1
    results = pa.concat_tables([query.run_epoch(epoch) for epoch in EPOCHS[MADE_WITH:]])
    before = batch_join(QUERY, accept(QUERY, EPOCHS[:MADE_WITH]).tables(QUERY))
    everything = batch_join(QUERY, accept(QUERY, EPOCHS).tables(QUERY))
    assert results.num_rows == everything.num_rows - before.num_rows > 0
    assert query.manifest.results == everything.num_rows
    assert_same_rows(pa.concat_tables([before, results]), everything)

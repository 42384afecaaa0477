"""Checkpoints of every format since 3 open in this version, and go on with the right results.

When the format changes: raise ``FORMAT`` in ``state/manifest.py``, teach ``state/upgrade.py`` what the old
one said, add checkpoints of the new one with ``python -m tests.golden.case tests/golden/format-N`` and, for
each strategy in ``MIGRATING``, ``... tests/golden/format-N-STRATEGY STRATEGY``; one with aggregates,
``... tests/golden/aggregates-format-N aggregates``; and one with sites, ``... tests/golden/sites-format-N
sites``. Leave the old ones as they are.
"""

import shutil
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from midstream.inline import InlineJoin
from midstream.protocol.rescaling import may_rescale
from midstream.state.manifest import FORMAT
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.storage.slice_files import SliceFiles
from midstream.testing import accept, assert_same_rows, batch_join
from midstream.testing.aggregate_oracle import aggregate_windows, assert_same_windows
from tests.golden.case import (
    AGGREGATED_QUERY,
    EPOCHS,
    MADE_WITH,
    OTHER_PLAN,
    OTHER_SITED_PLAN,
    QUERY,
    SETTINGS,
    SITED_QUERY,
    SITED_SETTINGS,
)

CHECKPOINTS = sorted(Path(__file__).parent.glob("format-*"))
WITH_AGGREGATES = sorted(Path(__file__).parent.glob("aggregates-format-*"))
WITH_SITES = sorted(Path(__file__).parent.glob("sites-format-*"))
MIGRATING = ("hybrid", "parallel_track")


@cache
def results_until(count: int, *, again: bool = False) -> pa.Table:
    """All results of the first epochs, and of all of them once more, later."""
    epochs = [*EPOCHS[:count], *(map(later, EPOCHS) if again else ())]
    return batch_join(QUERY, accept(QUERY, epochs).tables(QUERY))


def test_there_are_golden_checkpoints_of_the_current_format():
    wanted = {f"format-{FORMAT}", *(f"format-{FORMAT}-{strategy}" for strategy in MIGRATING)}
    assert wanted <= {path.name for path in CHECKPOINTS}
    assert f"aggregates-format-{FORMAT}" in {path.name for path in WITH_AGGREGATES}
    assert f"sites-format-{FORMAT}" in {path.name for path in WITH_SITES}


@pytest.mark.parametrize("partitions", [SETTINGS.partitions, 5])
@pytest.mark.parametrize("path", CHECKPOINTS, ids=lambda path: path.name)
def test_a_golden_checkpoint_opens_and_goes_on(path, partitions, tmp_path):
    shutil.copytree(path, tmp_path / "checkpoint")
    store = LocalStore(str(tmp_path / "checkpoint"))
    assert fsck(store).problems == ()
    query = InlineJoin(QUERY, settings=replace(SETTINGS, partitions=partitions), store=store)
    assert query.manifest.epoch == MADE_WITH - 1
    migrating = query.manifest.migration
    assert (migrating is None) == (path.name.count("-") == 1)
    before = results_until(MADE_WITH)
    deferred = [SliceFiles(store).open(s) for s in query.manifest.slices if s.owner.kind == "deferred"]
    assert bool(deferred) == path.name.endswith("parallel_track")
    pending = [s for s in query.manifest.slices if s.owner.kind == "pending"]
    assert bool(pending) == path.name.endswith("hybrid")
    # The last epoch has no rows, but a time that all that is old has expired by.
    epochs = [*EPOCHS[MADE_WITH:], *({} for _ in range(3))]
    results = pa.concat_tables([query.run_epoch(epoch, background_epochs=1) for epoch in epochs])
    everything = results_until(len(EPOCHS))
    waiting = [SliceFiles(store).open(s) for s in query.manifest.slices if s.owner.kind == "deferred"]
    # What was deferred is among the results now, or still waits, and was not among those of before.
    made = pa.concat_tables([before, results, *waiting])
    assert made.num_rows == everything.num_rows + sum(table.num_rows for table in deferred)
    assert_same_rows(made, pa.concat_tables([everything, *deferred]))
    assert results.num_rows > 0
    assert query.manifest.results == everything.num_rows - sum(table.num_rows for table in waiting)
    # Rows that an earlier version has moved stay where they are until they expire.
    waits = not may_rescale(query.manifest)
    assert not waits or _is_ambiguous(path)
    assert query.partitions == (SETTINGS.partitions if waits else partitions)
    assert fsck(store).problems == ()
    if path.name.endswith("hybrid"):
        assert (query.manifest.migration, query.manifest.plan) == (None, OTHER_PLAN)


@pytest.mark.parametrize("path", WITH_SITES, ids=lambda path: path.name)
def test_a_golden_checkpoint_with_sites_opens_and_goes_on(path, tmp_path):
    shutil.copytree(path, tmp_path / "checkpoint")
    store = LocalStore(str(tmp_path / "checkpoint"))
    assert fsck(store).problems == ()
    query = InlineJoin(SITED_QUERY, settings=SITED_SETTINGS, store=store)
    assert query.manifest.epoch == MADE_WITH - 1
    assert query.manifest.adaptation.sites is not None
    assert query.manifest.migration is not None
    assert any(slice_.owner.kind == "pending" for slice_ in query.manifest.slices)
    before = results_until(MADE_WITH)
    plans, results = [], []
    # One window after the other is complete, with whatever rows epochs bring.
    for epoch in [*EPOCHS[MADE_WITH:], *({} for _ in range(6))]:
        results.append(query.run_epoch(epoch))
        plans.append(query.manifest.plan)
    assert_same_rows(pa.concat_tables([before, *results]), results_until(len(EPOCHS)))
    assert OTHER_SITED_PLAN in plans
    assert fsck(store).problems == ()


def _is_ambiguous(path: Path) -> bool:
    """Whether rows that were moved before have references that are theirs in one partition only."""
    return int(path.name.split("-")[1]) < 7


def later(epoch: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """The rows of an epoch, 90 seconds later."""
    moved = {}
    for name, table in epoch.items():
        times = pc.add(table["t"], pa.scalar(timedelta(seconds=90)))
        moved[name] = table.set_column(table.schema.get_field_index("t"), "t", times)
    return moved


@pytest.mark.parametrize(
    "path", [p for p in CHECKPOINTS if p.name.endswith(MIGRATING)], ids=lambda path: path.name
)
def test_a_migrated_golden_checkpoint_gets_other_partitions_once_its_old_rows_have_expired(path, tmp_path):
    shutil.copytree(path, tmp_path / "checkpoint")
    store = LocalStore(str(tmp_path / "checkpoint"))
    query = InlineJoin(QUERY, settings=replace(SETTINGS, partitions=5), store=store)
    migrated = query.manifest.migrations
    deferred = [SliceFiles(store).open(s) for s in query.manifest.slices if s.owner.kind == "deferred"]
    # The plan keeps the states that the migration has begun, and they never have no rows.
    epochs = [*EPOCHS[MADE_WITH:], *map(later, EPOCHS)]
    made, ran = [], []
    for epoch in epochs:
        made.append(query.run_epoch(epoch, background_epochs=1))
        ran.append(query.partitions)
    is_old = _is_ambiguous(path)
    assert ran[0] == (2 if is_old else 5)
    assert ran[-3:] == [5, 5, 5]
    payload = [s.owner.state for s in query.manifest.slices if s.owner.kind == "payload"]
    assert query.manifest.migrations == migrated
    assert any(state.migration for state in payload)
    made_by_now = pa.concat_tables([results_until(MADE_WITH), *made])
    assert_same_rows(made_by_now, pa.concat_tables([results_until(len(EPOCHS), again=True), *deferred]))
    assert fsck(store).problems == ()


@pytest.mark.parametrize("partitions", [SETTINGS.partitions, 5])
@pytest.mark.parametrize("path", WITH_AGGREGATES, ids=lambda path: path.name)
def test_a_golden_checkpoint_with_aggregates_opens_and_goes_on(path, partitions, tmp_path):
    shutil.copytree(path, tmp_path / "checkpoint")
    store = LocalStore(str(tmp_path / "checkpoint"))
    assert fsck(store).problems == ()
    query = InlineJoin(AGGREGATED_QUERY, settings=replace(SETTINGS, partitions=partitions), store=store)
    assert query.manifest.epoch == MADE_WITH - 1
    assert [s for s in query.manifest.slices if s.owner.kind == "partial"]
    before = _windows(MADE_WITH, query.manifest.emitted)
    after = [query.run_epoch(epoch) for epoch in [*EPOCHS[MADE_WITH:], {}]]
    everything = _windows(len(EPOCHS), query.manifest.emitted)
    assert_same_windows(pa.concat_tables([before, *after]), everything, AGGREGATED_QUERY)
    assert before.num_rows < everything.num_rows
    assert fsck(store).problems == ()


@cache
def _windows(epochs: int, until: int | None) -> pa.Table:
    assert until is not None
    accepted = accept(AGGREGATED_QUERY, EPOCHS[:epochs]).tables(AGGREGATED_QUERY)
    return aggregate_windows(AGGREGATED_QUERY, accepted, until=until)

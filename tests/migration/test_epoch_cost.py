"""An epoch of a migration costs what it does, not what is stored: rows that it looks at, counted."""

from __future__ import annotations

import pyarrow as pa
import pytest

from midstream.engine.index_rows import IndexRows
from midstream.engine.joiner import Joiner
from midstream.state.expiry import Expiry
from tests.helpers import rows
from tests.migration.migration_cases import StrategyCase
from tests.migration.migration_run import (
    HYBRID,
    ISOLATED,
    PARALLEL_TRACK,
    REORDERED,
    SHARING,
    MigrationRun,
)


class RowsLookedAt:
    """Counts the rows that are copied, or whose epochs or liveness are asked for, one by one."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        take, epochs, is_live = IndexRows.take, Joiner.epochs, Expiry.is_live

        def counting_take(index_rows, positions):
            taken = take(index_rows, positions)
            self.count += len(taken)
            return taken

        def counting_epochs(joiner, index_rows, stream):
            self.count += len(index_rows)
            return epochs(joiner, index_rows, stream)

        def counting_is_live(expiry, times, last_epoch=None):
            self.count += len(next(iter(times.values())))
            return is_live(expiry, times, last_epoch)

        patch.setattr(IndexRows, "take", counting_take)
        patch.setattr(Joiner, "epochs", counting_epochs)
        patch.setattr(Expiry, "is_live", counting_is_live)


def migrating(how: StrategyCase, stored: int) -> MigrationRun:
    """A run whose migration has begun, with so many rows in each state."""
    old = {name: rows(*((10, key, 1, name) for key in range(stored))) for name in "abcd"}
    run = MigrationRun().process([old])
    run.migrate(REORDERED, how)
    return run


@pytest.mark.parametrize("how", [SHARING, ISOLATED, PARALLEL_TRACK])
def test_rows_that_are_looked_at_do_not_grow_with_what_is_stored(monkeypatch, how):
    counts = []
    for stored in (10, 300):
        run = migrating(how, stored)
        with monkeypatch.context() as patch:
            looked_at = RowsLookedAt(patch)
            # The keys of the first two rows are stored.
            run.process([{name: rows((12, 1, 1, "x"), (12, 2, 2, "y"), (12, -1, 1, "z")) for name in "abcd"}])
        assert run.last.migration is not None
        assert run.results[-1].num_rows > 2
        counts.append(looked_at.count)
    assert counts[0] == counts[1] > 0


def test_rows_that_a_rebuild_scans_are_counted():
    for stored in (10, 300):
        run = migrating(HYBRID, stored).go(2, background_epochs=1)
        scanned = [sum(work.scanned_rows for work in works.values()) for works in run.work]
        # {c,d} is rebuilt from one of the two.
        assert scanned == [0, 0, stored]


def test_a_rebuild_from_combined_rows_scans_those_of_one_stream_and_finds_the_others():
    def epoch(number: int) -> dict[str, pa.Table]:
        # Each row of c has five matches in d, and five of these pairs one in a.
        repeats = {"a": 1, "b": 1, "c": 1, "d": 5}
        keys = range(10 * number, 10 * number + 10)
        return {n: rows(*((number, key, 1, n) for key in keys for _ in range(repeats[n]))) for n in "abcd"}

    run = MigrationRun().process([epoch(number) for number in range(15)])
    run.migrate(REORDERED, HYBRID)
    run.process((epoch(number) for number in range(15, 40)), background_epochs=4)
    scanned: dict[str, set[int]] = {}
    for manifest, works in zip(run.manifests, run.work, strict=True):
        for state in manifest.migration.rebuilding if manifest.migration is not None else ():
            scanned.setdefault(state.label, set()).add(sum(work.scanned_rows for work in works.values()))
    # A slice of c has 16 epochs of 10 rows. Each piece has 4 epochs of 50 rows of {c,d}, which has many more.
    assert scanned == {"c,d": {160}, "a,c,d": {160 + 200}}

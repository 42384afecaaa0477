"""SIGKILL for real in every phase of a replacement: drivers that are started again with either definition."""

import signal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.testing import accept, assert_same_rows, stream
from midstream.values import Micros
from tests.replace.replacement_run import results_between
from tests.spark.feed import noted_epochs
from tests.spark.killable_query import SHAPE, KillableQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def _query(seconds: int, *on: str) -> Query:
    streams = [stream(name, SHAPE) for name in "abc"]
    window = Micros(seconds * 1_000_000)
    items = ["a.id", "b.id", "c.id"]
    return build_query(streams, ["a.k = b.k", "b.k2 = c.k2", *on], default_window=window, select=items)


OLD, NEW = _query(25), _query(45, "a.id <> c.id")


def test_drivers_killed_in_every_phase_of_a_replacement_lose_and_repeat_nothing(tmp_path):
    killable_query = KillableQuery(tmp_path, epochs=16, seed=3)

    def dies(definition: str, point: str, phase: str) -> Manifest:
        """Start a driver with a definition, which dies at a point; gives what is committed then."""
        process = killable_query.start_replaceable(definition, point, phase)
        assert process.wait(timeout=300) == -signal.SIGKILL, (
            f"{point}, {phase}: {(tmp_path / 'log').read_text()[-2000:]}"
        )
        return killable_query.manifest()

    found = dies("old", "after the step", "catches up")
    # It was asked for, and its first epoch is run again.
    assert (found.replacement, found.replacements) == (None, 0)
    found = dies("new", "before the commit", "goes live")
    assert found.replacement is not None
    assert found.replacement.live_since is None
    found = dies("old", "after publishing", "live")
    assert found.replacement is not None
    until = found.replacement.until
    assert until is not None
    found = dies("new", "after the commit", "ends")
    assert found.ended_replacement is not None
    killable_query.finish(killable_query.start_replaceable("new"))

    last = killable_query.manifest()
    assert (last.replacement, last.replacements) == (None, 1)
    assert fsck(LocalStore(str(tmp_path / "checkpoint"))).problems == ()
    epochs = noted_epochs(killable_query.feed, tmp_path / "checkpoint")
    of_old = results_between(OLD, accept(OLD, epochs).tables(OLD), None, until)
    of_new = results_between(NEW, accept(NEW, epochs).tables(NEW), until, None)
    assert min(of_old.num_rows, of_new.num_rows) > 50
    files = sorted((tmp_path / "out").glob("*.parquet"))
    got = pa.concat_tables(map(pq.read_table, files))
    assert_same_rows(got, pa.concat_tables([of_old, of_new]))

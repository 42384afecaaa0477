"""An epoch that runs again is the same epoch, whatever was asked for and changed in between.

Its driver died, or its manifest was damaged. Meanwhile somebody asks for another plan, or starts the query
with other options: they count from the next epoch on.
"""

import threading

import pyarrow as pa
import pytest

from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.storage.manifest_log import newest_manifest
from midstream.testing import Shape, assert_same_rows, generate
from tests.spark.runner import check, one_key

pytestmark = pytest.mark.spark

SHAPE = Shape(rows=25)
DIES, EPOCHS = 1, 6
"""A migration that begins after it has ended by then: while it lasts, results may be held back."""
PLAN, OTHER = "(a b) c", "a (b c)"


class Seen:
    """What a function of the user's saw, batch by batch; in one batch it fails once."""

    def __init__(self, join, checkpoint) -> None:
        self.join = join
        self.checkpoint = checkpoint
        self.batches: dict[int, list[pa.Table]] = {}
        self.may_go_on = threading.Event()

    def __call__(self, rows, batch):
        seen = self.batches.setdefault(batch, [])
        seen.append(rows.toArrow())
        if batch == DIES and len(seen) == 1:
            raise RuntimeError("the user's own mistake")
        if batch == DIES:
            assert self.may_go_on.wait(60)

    def start(self, **options):
        options = {"checkpointLocation": self.checkpoint, "plan": PLAN, "partitions": 2, **options}
        return self.join.writeStream.foreachBatch(self).options(**options).trigger(availableNow=True).start()

    def check(self, epochs):
        """The batch came twice with the same rows, and all that came, once, is the batch join."""
        first, again = self.batches[DIES]
        assert first.num_rows == again.num_rows > 0
        assert_same_rows(first, again)
        check(self.join.query(), epochs, pa.concat_tables([tables[-1] for tables in self.batches.values()]))


@pytest.fixture
def join(spark, feed):
    feed.add(*generate(dict.fromkeys("abc", SHAPE), epochs=EPOCHS, seed=61))
    return one_key(spark, feed).select("a.id", "b.id", "c.id")


@pytest.fixture
def seen(join, tmp_path) -> Seen:
    return Seen(join, tmp_path / "checkpoint")


def _events(progress) -> list[str]:
    return [event["type"] for event in progress["events"]]


@pytest.mark.parametrize("asked", ["before it starts", "as soon as it runs"])
def test_a_batch_comes_again_with_the_same_rows_though_another_plan_is_asked_for(feed, seen, asked):
    query = seen.start(adapt="off")
    with pytest.raises(Exception, match="the user's own mistake"):
        query.awaitTermination()
    if asked == "before it starts":
        # As if it had been asked for right before the query died.
        query._handler.migrate(OTHER, "parallel_track", background=None)
    query = seen.start(adapt="off")
    if asked == "as soon as it runs":
        query.migrate(OTHER, "parallel_track")
    seen.may_go_on.set()
    query.awaitTermination()
    seen.check(feed.epochs)
    began = [p["batchId"] for p in query.recentProgress if "migration-started" in _events(p)]
    assert began == [DIES + 1]
    assert str(query.plan) == OTHER


def test_a_batch_comes_again_with_the_same_rows_though_options_change(feed, seen):
    with pytest.raises(Exception, match="the user's own mistake"):
        seen.start(adapt="auto").awaitTermination()
    ahead = {"maxEventTimeAhead": "1 second", "eventTimeClock": "stream"}
    seen.may_go_on.set()
    query = seen.start(adapt="off", strategy="moving_state", **ahead)
    query.awaitTermination()
    assert [p["numFutureRows"] > 0 for p in query.recentProgress[:2]] == [False, True]
    first, again = seen.batches[DIES]
    assert first.num_rows == again.num_rows > 0
    assert_same_rows(first, again)


def test_results_are_there_once_though_a_manifest_was_damaged_and_another_plan_is_asked_for(
    feed, join, runner
):
    runner.run(join, plan=PLAN)
    before = runner.results()
    newest = max((runner.checkpoint / "manifests").glob("*.json"))
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    query = runner.start(join)
    query.migrate("a b c", "moving_state")
    query.awaitTermination()
    assert_same_rows(runner.results(), before)
    assert check(join.query(), feed.epochs, runner.results()).num_rows > 0
    # The epoch ran as it did at first; the request waits for the next one.
    store = LocalStore(str(runner.checkpoint))
    manifest = newest_manifest(store)
    assert manifest is not None
    assert (manifest.epoch, manifest.plan, manifest.migrations) == (EPOCHS - 1, PLAN, 0)
    assert fsck(store).problems == ()
    feed.add(generate(dict.fromkeys("abc", SHAPE), epochs=EPOCHS + 1, seed=61)[-1])
    assert str(runner.run(join).plan) == "a b c"
    assert check(join.query(), feed.epochs, runner.results()).num_rows > before.num_rows

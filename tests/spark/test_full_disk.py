"""A full disk: the query stops and says so, what was committed stays, and with space it goes on."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from midstream import Join, MidstreamError
from midstream.errors import StreamError
from midstream.state.manifest import Manifest
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.storage.manifest_log import newest_manifest
from midstream.testing import Shape, generate
from tests.mounts import mounted
from tests.spark.driver_course import Change
from tests.spark.feed import Feed
from tests.spark.migration_scenario import LEFT_DEEP, RIGHT_DEEP
from tests.spark.runner import Runner, check, one_key

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(sys.platform != "linux", reason="mounts a disk in memory as Linux does"),
]

EPOCHS = generate(dict.fromkeys("ab", Shape(rows=30)), epochs=3, seed=19)
# Far more state, and results, than the space that the tests leave.
LARGE_SHAPE = Shape(rows=5000, keys=2500)
LARGE = generate(dict.fromkeys("ab", LARGE_SHAPE), epochs=4, seed=20)[3]


class SmallDisk:
    """A disk of a few megabytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self, *, leave: int) -> None:
        state = os.statvfs(self.folder)
        with self._ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, state.f_bavail * state.f_frsize - leave)

    def free(self) -> None:
        self._ballast.unlink()


@contextmanager
def _small_disk(folder: Path) -> Iterator[SmallDisk]:
    with mounted(folder, "-t", "tmpfs", "-o", "size=16m", "tmpfs"):
        yield SmallDisk(folder)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with _small_disk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
def disks(tmp_path: Path, runner: Runner) -> Iterator[dict[str, SmallDisk]]:
    """One that the checkpoint of a query is on, and one for its results."""
    with _small_disk(tmp_path / "disk-1") as of_checkpoint, _small_disk(tmp_path / "disk-2") as of_results:
        runner.checkpoint = of_checkpoint.folder / "checkpoint"
        runner.out = of_results.folder / "out"
        yield {"checkpoint": of_checkpoint, "out": of_results}


def _error_of_run(runner: Runner, join: Join) -> MidstreamError:
    """Start the query, which meets the full disk; gives what its user sees."""
    query = runner.start(join)
    with pytest.raises(StreamError) as caught:
        query.awaitTermination()
    seen = query.exception()
    assert isinstance(seen, StreamError)
    assert str(seen) == str(caught.value)
    assert "it goes on after its last committed epoch" in str(seen)
    return seen


def _is_as_it_was(spark, feed: Feed, runner: Runner) -> None:
    findings = fsck(LocalStore(str(runner.checkpoint)))
    assert (findings.problems, findings.epoch) == ((), len(EPOCHS) - 1)
    check(one_key(spark, feed, "ab").query(), EPOCHS, runner.results())


def _goes_on(spark, feed: Feed, runner: Runner) -> None:
    runner.run(one_key(spark, feed, "ab"))
    findings = fsck(LocalStore(str(runner.checkpoint)))
    assert (findings.problems, findings.orphans, findings.epoch) == ((), (), len(EPOCHS))
    assert list((runner.out / "_staged").glob("*-*-*")) == []
    check(one_key(spark, feed, "ab").query(), feed.epochs, runner.results())


@pytest.mark.parametrize("full", ["checkpoint", "out"])
def test_a_query_whose_disk_is_full_says_so_and_goes_on_once_there_is_space(spark, feed, runner, disk, full):
    setattr(runner, full, disk.folder / full)
    feed.add(*EPOCHS)
    runner.run(one_key(spark, feed, "ab"))
    feed.add(LARGE)
    disk.fill(leave=96 << 10)
    error = _error_of_run(runner, one_key(spark, feed, "ab"))
    assert "the disk must have space" in error.must
    assert error.got == f"no space left on that of {disk.folder / full}"
    _is_as_it_was(spark, feed, runner)
    disk.free()
    _goes_on(spark, feed, runner)


# Migrations of one query, and which of its two disks is full in the middle of each.
FULL_IN = (
    (Change(1, RIGHT_DEEP, "moving_state"), "checkpoint"),
    (Change(6, LEFT_DEEP, "parallel_track"), "checkpoint"),
    (Change(12, RIGHT_DEEP, "hybrid", "off"), "out"),
    (Change(18, LEFT_DEEP, "hybrid"), "checkpoint"),
)


@pytest.mark.slow
def test_a_disk_that_is_full_in_the_middle_of_a_migration_only_holds_it_up(scenario, runner, disks):
    scenario.run(FULL_IN[0][0], epochs=2, plan=LEFT_DEEP)
    for number, (change, full) in enumerate(FULL_IN, start=1):
        # Asked for in the last epoch: the next one begins. Moving state is over with it, others go on.
        if change.strategy != "moving_state":
            scenario.run(epochs=1)
        before = _manifest(runner)
        assert before.epoch == change.epoch + (before.migration is not None)
        assert (before.migration is None) == (change.strategy == "moving_state")
        scenario.feed.add(generate(dict.fromkeys("abcd", LARGE_SHAPE), epochs=before.epoch + 2, seed=20)[-1])
        disks[full].fill(leave=96 << 10)
        error = _error_of_run(runner, scenario.join())
        assert error.got == f"no space left on that of {getattr(runner, full)}"
        assert _manifest(runner) == before
        assert fsck(LocalStore(str(runner.checkpoint))).problems == ()
        disks[full].free()
        # In the last of these epochs, the next change is asked for.
        scenario.run(*(change for change, _ in FULL_IN[number : number + 1]), epochs=4)
        after = _manifest(runner)
        assert (after.plan, after.migration, after.migrations) == (change.plan, None, number)
    scenario.check()


def _manifest(runner: Runner) -> Manifest:
    manifest = newest_manifest(LocalStore(str(runner.checkpoint)))
    assert manifest is not None
    return manifest


def test_a_disk_that_is_full_before_an_epoch_begins_is_called_so_too(spark, feed, runner, disk):
    runner.checkpoint = disk.folder / "checkpoint"
    feed.add(*EPOCHS)
    runner.run(one_key(spark, feed, "ab"))
    feed.add(LARGE)
    disk.fill(leave=0)
    with pytest.raises(StreamError, match="the disk must have space"):
        runner.start(one_key(spark, feed, "ab"))
    disk.free()
    # Enough for us to start, not for what Spark notes of a batch.
    disk.fill(leave=12 << 10)
    assert "No space left on device" in str(_error_of_run(runner, one_key(spark, feed, "ab")).got)
    _is_as_it_was(spark, feed, runner)
    disk.free()
    _goes_on(spark, feed, runner)

"""Many engine partitions: exact, in few tasks and files."""

from dataclasses import replace

import pytest

from midstream import Join
from midstream.plan.tree import parse_plan
from midstream.spark import execution
from midstream.spark.task_ranges import TaskRanges
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.storage.manifest_log import newest_manifest
from midstream.testing import Shape, generate
from midstream.testing.random_places import RandomPlaces, hashes_of, placed_by
from tests.spark.migration_scenario import columns, rows
from tests.spark.runner import check

pytestmark = pytest.mark.spark

SHAPE = Shape(rows=120, late=0.05, null_keys=0.05, null_times=0.02, duplicates=0.05, keys=60)
STAGES = 2


def run(spark, feed, runner, partitions, source):
    """Run a join over two keys, so that rows go from any engine partition to any other; check its results."""
    feed.add(*generate(dict.fromkeys("abc", SHAPE), epochs=3, seed=partitions))
    join = Join(spark)
    for name in "abc":
        join = join.stream(name, source(feed.df(name)), time="t", lateness="5 seconds")
    join = join.on("a.k = b.k", "b.k2 = c.k2").within("12 seconds").select("a.id", "b.id", "c.id")
    query = runner.run(join, partitions=partitions, lateRows=runner.out.parent / "late")
    assert check(join.query(), feed.epochs, runner.results()).num_rows > 100
    return query


@pytest.mark.parametrize(("partitions", "source"), [(64, rows), (256, columns)])
def test_a_join_in_many_partitions_is_exact_and_takes_few_tasks_and_files(
    spark, feed, runner, partitions, source
):
    query = run(spark, feed, runner, partitions, source)
    manifest = newest_manifest(LocalStore(str(runner.checkpoint)))
    assert manifest is not None
    assert len({slice_.owner.partition for slice_ in manifest.slices}) > 40
    tasks = 4 * spark.sparkContext.defaultParallelism
    for folder in ("out", "late"):
        files = [path.name.split("-")[1] for path in (runner.out.parent / folder).glob("*.parquet")]
        assert all(files.count(epoch) <= tasks * STAGES for epoch in files)
    started = stages_of(spark, query)
    assert len(started) == (1 + STAGES) * len(feed.epochs)
    assert max(started) <= tasks + 3, "of the sources: one for each file, and one that has no Python worker"


def stages_of(spark, query) -> list[int]:
    """How many tasks each stage of a query's jobs had."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    jobs = context.statusStore().jobsList(None)
    found = (jobs.apply(i) for i in range(jobs.size()))
    ours = [job for job in found if job.jobGroup().isDefined() and job.jobGroup().get() == query.runId]
    numbers = {job.stageIds().apply(i) for job in ours for i in range(job.stageIds().size())}
    return [context.statusStore().lastStageAttempt(number).numTasks() for number in numbers]


@pytest.mark.parametrize("source", [columns, rows])
def test_a_cluster_that_has_grown_since_the_query_started_gets_more_tasks(
    spark, feed, runner, monkeypatch, source
):
    class Grown(TaskRanges):
        @classmethod
        def for_cores(cls, partitions: int, cores: int) -> TaskRanges:
            return TaskRanges.for_cores(partitions, 2 * cores)

    monkeypatch.setattr(execution, "TaskRanges", Grown)
    query = run(spark, feed, runner, 64, source)
    assert max(stages_of(spark, query)) == 8 * spark.sparkContext.defaultParallelism


def test_state_moves_and_hot_keys_are_shared_and_results_are_exact(spark, feed, runner):
    """Any group and any key, by chance: the decision is the driver's, all that follows from it the tasks'."""
    epochs = generate(dict.fromkeys("abc", replace(SHAPE, keys=6, rows=30)), epochs=6, seed=4)
    feed.add(*epochs)
    join = Join(spark)
    for name in "abc":
        join = join.stream(name, rows(feed.df(name)), time="t", lateness="5 seconds")
    join = join.on("a.k = b.k", "b.k = c.k").within("12 seconds").select("a.id", "b.id", "c.id")
    query = join.query()
    places = RandomPlaces(3, 0.9, 0.6, hashes_of(query, parse_plan("a b c", query.names), feed.epochs))
    with placed_by(places):
        options = {"balance": "lazy_disk", "balancePause": "0 seconds", "initialShares": "3,1,0,2"}
        running = runner.run(join, partitions=4, groups=16, lateRows=runner.out.parent / "late", **options)
    assert check(query, feed.epochs, runner.results()).num_rows > 100
    assert len(running.recentProgress) == len(epochs)
    manifest = newest_manifest(LocalStore(str(runner.checkpoint)))
    assert manifest is not None
    assert any(table.spread.get("0") for table in manifest.routings)
    assert any(table.moved.get("0") for table in manifest.routings)
    assert fsck(LocalStore(str(runner.checkpoint))).problems == ()

"""The cost of an epoch, counted: it may only grow on purpose.

Times depend on the machine; these figures do not. They are compared with ``counts.json``. If a change is
meant to cost more, or costs less, write the new figures with

    python -m pytest tests/spark/test_counts.py --write-counts

and say in the commit why.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.workloads import CHAIN, CLIQUE, Workload
from midstream import Join
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.storage.memory_store import MemoryStore
from tests.spark.feed import schema_of

COUNTS = Path(__file__).with_name("counts.json")
WORKLOADS = {
    "clique": Workload("clique", "", CLIQUE, domain=2000, rows=1000, seconds=14, window=3),
    "chain": Workload("chain", "", CHAIN, domain=2000, rows=500, seconds=14, window=3),
}
SETTLED = 8
"""Epochs after which the state no longer grows; only later ones are counted of what the engine does."""
ON_SPARK = 6
"""Epochs on Spark, of which each has as many jobs and tasks as any other."""


@pytest.fixture(scope="module", params=list(WORKLOADS))
def work(request):
    return WORKLOADS[request.param]


@pytest.fixture(scope="module")
def data(work, tmp_path_factory):
    return work.write(tmp_path_factory.mktemp("counts"))


@pytest.fixture
def compare(request, work):
    def compare(where, found):
        known = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
        if request.config.getoption("--write-counts"):
            known.setdefault(work.name, {})[where] = found
            COUNTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
            return
        assert found == {
            # Spark packs several messages into one as memory allows, and compressed sizes vary a little.
            name: pytest.approx(count, rel=0.15) if "shuffled" in name else count
            for name, count in known[work.name][where].items()
        }

    return compare


@dataclass(frozen=True)
class CountingStore(MemoryStore):
    """A store that notes what is asked of it."""

    asked: list[tuple[str, str]] = field(default_factory=list)

    def put(self, name, data):
        self.asked.append(("written", name))
        super().put(name, data)

    def read(self, name, *, sparsely=False):
        self.asked.append(("opened", name))
        return super().read(name, sparsely=sparsely)

    def list(self, folder):
        self.asked.append(("listed", folder))
        return super().list(folder)


def _join(work, join, frames):
    for name, frame in frames.items():
        join = join.stream(name, frame, time="ts")
    for left, right, key in work.equalities():
        join = join.on(f"{left}.{key} = {right}.{key}")
    return join.within(f"{work.window} seconds")


def _read(spark, work, data):
    """The first files of each stream, as many as there are epochs on Spark."""
    files = f"0000[0-{ON_SPARK - 1}].parquet"
    for name in work.streams:
        reader = spark.readStream.schema(schema_of(data / name)).option("maxFilesPerTrigger", 1)
        yield name, reader.parquet(f"{data / name}/{files}")


@pytest.mark.spark
def test_what_the_engine_does_in_an_epoch(spark, work, data, compare):
    query = _join(work, Join(spark), dict(_read(spark, work, data))).query()
    store = CountingStore()
    join = InlineJoin(query, settings=Settings(2, 256), store=store)
    totals: dict[str, int] = {}
    for epoch in range(work.seconds):
        arrivals = {name: pq.read_table(data / name / f"{epoch:05d}.parquet") for name in work.streams}
        store.asked.clear()
        results = join.run_epoch(arrivals)
        if epoch < SETTLED:
            continue
        record = join.report.work
        found = {
            "results": results.num_rows,
            "probes": record.probes,
            "candidates": record.candidates,
            "intermediate rows": record.intermediate_rows,
            "slices opened": sum(how == "opened" for how, _ in store.asked),
            "files written": sum(how == "written" for how, _ in store.asked),
            "folders listed": sum(how == "listed" for how, _ in store.asked),
            "bytes of new slices": sum(s.bytes for s in join.report.slices),
        }
        totals = {name: totals.get(name, 0) + count for name, count in found.items()}
    totals["slices at the end"] = len(join.manifest.slices)
    compare("engine", totals)


@pytest.mark.spark
@pytest.mark.parametrize("how", ["columns", "rows"])
def test_what_spark_does_in_an_epoch(spark, work, data, tmp_path, compare, how):
    frames = dict(_read(spark, work, data))
    if how == "rows":
        frames = {name: frame.where("true") for name, frame in frames.items()}
    writer = _join(work, Join(spark), frames).writeStream.format("parquet")
    writer = writer.option("path", tmp_path / "out").option("checkpointLocation", tmp_path / "checkpoint")
    query = writer.option("partitions", 2).option("adapt", "off").trigger(availableNow=True).start()
    query.awaitTermination()
    assert len(query.recentProgress) == ON_SPARK
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    store = context.statusStore()
    jobs = [job for job in _each(store.jobsList(None)) if _group(job) == query.runId]
    stages = {stage for job in jobs for stage in _each(job.stageIds())}
    ran = [store.lastStageAttempt(stage) for stage in stages]
    found = {
        "jobs": len(jobs),
        "tasks": sum(stage.numCompleteTasks() for stage in ran),
        "rows shuffled": sum(stage.shuffleWriteRecords() for stage in ran),
        "kilobytes shuffled": sum(stage.shuffleWriteBytes() for stage in ran) / 1000,
    }
    compare(how, {name: round(count / ON_SPARK, 2) for name, count in found.items()})


def _each(sequence):
    return [sequence.apply(i) for i in range(sequence.size())]


def _group(job):
    return job.jobGroup().get() if job.jobGroup().isDefined() else None

"""A query on Spark that finds its plan by itself, and says why."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream import Join, OptionError
from midstream.protocol.coordinator import EPOCHS_KEPT
from midstream.storage.intents import find_intent
from midstream.storage.local import LocalStore
from midstream.storage.manifest_log import newest_manifest
from midstream.testing import assert_same_rows
from tests.spark.runner import Runner, check

pytestmark = pytest.mark.spark

SECOND = 1_000_000
START = 1_704_067_200 * SECOND
SECONDS, ROWS, WINDOW = 14, 200, 4
DEAR = "(b c) a"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Streams b and c match much; a matches little, and should be joined first."""
    folder = tmp_path_factory.mktemp("streams")
    random = np.random.default_rng(1)
    for name in "abc":
        (folder / name).mkdir()
        for second in range(SECONDS):
            begin = START + second * SECOND
            times = np.sort(random.integers(begin, begin + SECOND, ROWS))
            keys = random.integers(0, 40, ROWS) + (random.random(ROWS) < 0.99) * (name == "a") * 10_000
            table = pa.table(
                {
                    "id": np.arange(ROWS) + second * ROWS,
                    "k": keys,
                    "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
                }
            )
            path = folder / name / f"{second:03d}.parquet"
            pq.write_table(table, path)
            # Spark reads the oldest file first; rows that come out of turn would be late.
            os.utime(path, (second, second))
    return folder


@pytest.fixture(scope="module")
def join(spark, data):
    joined = Join(spark)
    for name in "abc":
        reader = spark.readStream.schema("id long, k long, ts timestamp").option("maxFilesPerTrigger", 1)
        joined = joined.stream(name, reader.parquet(str(data / name)), time="ts")
    joined = joined.on("a.k = b.k", "b.k = c.k").within(f"{WINDOW} seconds")
    return joined.select("a.id AS a", "b.id AS b", "c.id AS c")


@pytest.fixture(scope="module")
def kept(join, tmp_path_factory):
    """A query that keeps its plan, and where it has run."""
    runner = Runner(tmp_path_factory.mktemp("kept"))
    return runner.run(join, plan=DEAR, partitions=2), runner


def rows_of(folder):
    table = pq.read_table(sorted(folder.glob("*.parquet")))
    return sorted(zip(*(table.column(name).to_pylist() for name in "abc"), strict=True))


def test_a_query_leaves_a_plan_that_is_dear_and_loses_nothing(join, runner, kept):
    query = runner.run(join, plan=DEAR, partitions=2, adapt="auto")
    progress = query.recentProgress
    assert str(query.plan) != DEAR
    events = [event for p in progress for event in p["events"]]
    decisions = [event for event in events if event["type"] == "decision"]
    assert any(event["verdict"] == "migrate" and event["plan"] == DEAR for event in decisions)
    assert next(e["from"] for e in events if e["type"] == "migration-started") == DEAR
    text = query.explanation("adaptive")
    assert "== Adapting ==" in text
    assert "Last decision" in text
    assert "units/s  running" in text
    adapted = rows_of(runner.out)
    other, ran = kept
    assert str(other.plan) == DEAR
    # The last rows, after the same ones, cost less on the new plan.
    less, more = (p[-1]["work"]["intermediateRows"] for p in (progress, other.recentProgress))
    assert less < more / 2
    assert adapted == rows_of(ran.out)
    assert adapted


def test_what_was_decided_is_carried_out_though_the_query_no_longer_adapts(join, data, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    seen: dict[int, list[pa.Table]] = {}
    died: list[int] = []

    def save(rows, batch):
        seen.setdefault(batch, []).append(rows.toArrow())
        intent = find_intent(LocalStore(str(checkpoint)), batch)
        assert intent is not None
        if not died and intent.verdict is not None and intent.verdict.migration is not None:
            died.append(batch)
            raise RuntimeError("dies in the middle of what was decided")

    def start(adapt):
        options = {"plan": DEAR, "partitions": 2, "strategy": "parallel_track", "adapt": adapt}
        writer = join.writeStream.foreachBatch(save).option("checkpointLocation", checkpoint)
        return writer.options(**options).trigger(availableNow=True).start()

    with pytest.raises(Exception, match="in the middle of what was decided"):
        start("auto").awaitTermination()
    query = start("off")
    query.awaitTermination()
    happened = {p["batchId"]: [event["type"] for event in p["events"]] for p in query.recentProgress}
    assert [batch for batch, events in happened.items() if "migration-started" in events] == died
    first, again = seen[died[0]]
    assert first.num_rows == again.num_rows > 0
    assert_same_rows(first, again)
    epochs = [
        {name: pq.read_table(data / name / f"{second:03d}.parquet") for name in "abc"}
        for second in range(SECONDS)
    ]
    check(join.query(), epochs, pa.concat_tables([tables[-1] for tables in seen.values()]))


def test_explain_knows_its_modes(kept):
    query, _ = kept
    assert query.explanation("adaptive").startswith("== Adapting (off) ==")
    with pytest.raises(OptionError, match=r"'adaptive', 'json', 'mermaid'; got 'cost'"):
        query.explain("cost")


def test_files_that_nobody_needs_are_deleted(kept):
    query, ran = kept
    store = LocalStore(str(ran.checkpoint))
    manifest = newest_manifest(store)
    assert manifest is not None
    needed = {f"slices/{slice_.name}" for slice_ in manifest.slices}
    needed |= {f"slices/{retired.name}" for retired in manifest.retired}
    assert set(store.list("slices")) == needed
    assert len(manifest.slices) == sum(state["slices"] for state in query.lastProgress["state"].values())
    assert len(store.list("manifests")) == EPOCHS_KEPT < SECONDS
    # Rows of four seconds, and of those that come together with the newest.
    assert query.lastProgress["state"]["{a}"]["rows"] <= (WINDOW + 2) * ROWS

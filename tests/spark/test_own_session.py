"""Sessions that this project starts: they listen on this machine only, and workers load what they need."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.jvm_archive import jvm_environment
from tests.spark.listening import addresses

pytestmark = pytest.mark.spark

LOCAL = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}

# With all that tasks do if they read files themselves: text and numbers as keys, nulls, late rows,
# conditions, merged slices, two stages.
QUERY = """
import json, os, sys
from pathlib import Path
import polars as pl
from midstream import Join
from midstream.demo.session import spark_session
from tests.spark.listening import addresses

root = Path(sys.argv[1])
with spark_session("local[1]", root / "session") as spark:
    streams = {}
    for name in "abc":
        (root / name).mkdir()
        for epoch in range(6):
            times = pl.Series([epoch * 1_000_000, (epoch - 3) * 1_000_000, None, epoch * 1_000_000])
            rows = {
                "k": pl.Series([epoch % 2, 1, 2, None]),
                "word": pl.Series(["x", "y", "x", None]),
                "t": times.cast(pl.Datetime("us", "UTC")),
            }
            file = root / name / f"{epoch}.parquet"
            pl.DataFrame(rows).write_parquet(file)
            os.utime(file, (1_700_000_000 + epoch,) * 2)
        schema = spark.read.parquet(str(root / name)).schema
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        streams[name] = reader.parquet(str(root / name))
    join = Join(spark)
    for name, frame in streams.items():
        join = join.stream(name, frame, time="t", lateness="1 second")
    join = join.on("a.k = b.k", "b.word = c.word", "a.t <= c.t").within("3 seconds")
    loaded = set()

    def look(results, epoch):
        # Another query, or none, might have another worker.
        names = spark.sparkContext.parallelize([0], 1).map(lambda _: sorted(sys.modules)).collect()
        loaded.update(*names)

    writer = join.writeStream.foreachBatch(look).option("checkpointLocation", root / "checkpoint")
    writer = writer.option("plan", "(a b) c").option("lateRows", root / "late")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    results = sum(progress["numOutputRows"] for progress in query.recentProgress)
    late = sum(progress["numLateRows"] for progress in query.recentProgress)
    # By now with Python workers, which are spoken to through sockets too.
    found = {"results": results, "late": late, "loaded": sorted(loaded), "addresses": sorted(addresses())}
    left = writer.trigger(processingTime="1 second").start()
# Like anybody who ends a session first, and then the query.
left.stop()
found["left"] = [left.isActive, repr(left.exception()), os.listdir(root / "checkpoint" / "leases")]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, Any]:
    """What a query in a session of the demo, in a process of its own, has found."""
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    path = os.pathsep.join([".", *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", QUERY, tmp_path_factory.mktemp("own")],
        cwd=Path(__file__).parents[2],
        env={**environment, **jvm_environment(), "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_workers_do_not_load_what_no_step_needs(found):
    """The memory of every one of them counts."""
    assert min(found["results"], found["late"]) > 0
    # It is the worker that ran the steps.
    assert "midstream.engine.step" in found["loaded"]
    assert {"pandas", "sqlglot", "duckdb"} & set(found["loaded"]) == set()


def test_a_query_may_be_stopped_after_its_session(found):
    assert found["left"][:2] == [False, "None"]
    leases = found["left"][2]
    assert f"{max(leases).partition('.')[0]}.released" in leases, leases


def test_the_session_of_the_demo_listens_only_here(found):
    assert found["addresses"]
    assert set(found["addresses"]) <= LOCAL


def test_the_session_of_the_tests_listens_only_here(spark):
    assert spark.conf.get("spark.ui.enabled") == "false"
    # Others that run in this process, such as the tests' object store, must keep to it as well.
    assert addresses() <= LOCAL

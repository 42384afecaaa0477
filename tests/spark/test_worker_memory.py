"""What workers load: the memory of every one of them counts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

# With all that tasks do if they read files themselves: text and numbers as keys, nulls, late rows,
# conditions, merged slices, two stages.
QUERY = """
import json, os, sys
from pathlib import Path
import polars as pl
from midstream import Join
from midstream.demo.session import spark_session

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
    print(json.dumps({"results": results, "late": late, "loaded": sorted(loaded)}))
"""


def test_workers_do_not_load_what_no_step_needs(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", QUERY, tmp_path],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert min(found["results"], found["late"]) > 0
    # It is the worker that ran the steps.
    assert "midstream.engine.step" in found["loaded"]
    assert {"pandas", "sqlglot", "duckdb"}.isdisjoint(found["loaded"])

"""The same query on several executors, each a process of its own, started by the test."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from midstream.query.query import build_query
from midstream.testing import Shape, generate, stream
from midstream.values import Micros
from tests.spark.conftest import Feed, check

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from midstream import Join

root = sys.argv[1]
spark = (
    SparkSession.builder.master("local-cluster[2,1,1024]")
    .config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC")
    .config("spark.log.level", "ERROR").config("spark.executor.memory", "1g")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
join = Join(spark)
for name in "abc":
    folder = f"{root}/in/{name}"
    reader = spark.readStream.schema(spark.read.parquet(folder).schema).option("maxFilesPerTrigger", 1)
    join = join.stream(name, reader.parquet(folder), time="t", lateness="5 seconds")
join = join.on("a.k = b.k", "b.k2 = c.k2").within("15 seconds").select("a.id", "b.id", "c.id", "c.k2")
query = (
    join.writeStream.format("parquet").option("path", f"{root}/out").option("partitions", 3)
    .option("checkpointLocation", f"{root}/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
print("EXECUTORS", executors, "EPOCHS", len(query.recentProgress))
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.cluster
def test_a_join_over_two_keys_on_two_executors(tmp_path: Path) -> None:
    epochs = generate(dict.fromkeys("abc", Shape(rows=40, late=0.05, null_keys=0.05)), epochs=3, seed=1)
    feed = Feed(None, tmp_path / "in")
    feed.add(*epochs)
    environment = {
        "PATH": "/usr/bin:/bin",
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Executors are started by scripts of Spark's own, which look here for everything else.
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "HOME": str(tmp_path),
        **({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "EXECUTORS 2 EPOCHS 3" in done.stdout
    shapes = Shape(rows=40, late=0.05, null_keys=0.05)
    query = build_query(
        [stream(name, shapes) for name in "abc"],
        ["a.k = b.k", "b.k2 = c.k2"],
        everywhere=Micros(15_000_000),
        select=["a.id", "b.id", "c.id", "c.k2"],
    )
    results = pa.concat_tables([pq.read_table(path) for path in (tmp_path / "out").glob("*.parquet")])
    assert check(query, epochs, results).num_rows > 0

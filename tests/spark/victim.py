"""A program that runs a query and dies where it is told to; started by the tests that kill for real.

Arguments: a folder with the input, the Spark master, the crash point at which the driver dies (or ""), and
what happens to tasks, as JSON.
"""

import json
import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

from pyspark.sql import SparkSession

from midstream import Join
from midstream.spark.query import JoinStreamingQuery
from midstream.storage.crash import crash_hook
from tests.spark.faults import Fault, failing_tasks


def start(spark: SparkSession, root: Path) -> JoinStreamingQuery:
    """Run the query over all input that is there."""
    join = Join(spark)
    for name in "abc":
        folder = f"{root}/in/{name}"
        reader = spark.readStream.schema(spark.read.parquet(folder).schema).option("maxFilesPerTrigger", 1)
        join = join.stream(name, reader.parquet(folder), time="t", lateness="5 seconds")
    join = join.on("a.k = b.k", "b.k2 = c.k2").within("8 seconds").select("a.id", "b.id", "c.id")
    writer = join.writeStream.format("parquet").option("path", f"{root}/out").option("partitions", 2)
    return writer.option("checkpointLocation", f"{root}/checkpoint").trigger(availableNow=True).start()


def main(root: Path, master: str, deadly: str, faults: list[Fault]) -> None:
    def die(point: str) -> None:
        if point == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "OFF")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    with crash_hook(die), failing_tasks(root / "struck", faults) if faults else nullcontext():
        start(spark, root).awaitTermination()
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    print("DONE", executors)
    spark.stop()


if __name__ == "__main__":
    _, folder, its_master, its_end, its_faults = sys.argv
    main(Path(folder), its_master, its_end, [Fault(*fault) for fault in json.loads(its_faults)])

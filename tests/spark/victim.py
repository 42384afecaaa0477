"""A program that runs a query and dies where it is told to; started by the tests that kill for real.

Arguments: a folder with the input, the Spark master, what is to die (`nobody`, `driver`, `worker` or
`executor`), and for the driver the crash point.
"""

import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

from pyspark.sql import SparkSession

from midstream import Join
from midstream.spark import launch
from midstream.storage.crash import crash_hook
from midstream.storage.output import ParquetWriter

ROOT, MASTER, VICTIM, POINT = (*sys.argv[1:], "")[:4]


class KillingWriter(ParquetWriter):
    """Kills once, while a task stages results: the worker that runs it, or the executor above it."""

    def results(self, epoch, partition, table):
        if epoch == 2 and table is not None:
            try:
                (Path(ROOT) / "killed").open("x").close()
            except FileExistsError:
                return super().results(epoch, partition, table)
            os.kill(_executor() if VICTIM == "executor" else os.getpid(), signal.SIGKILL)
        return super().results(epoch, partition, table)


def _executor() -> int:
    """The JVM that started the daemon that started this worker."""
    daemon = os.getppid()
    return int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])


def _die(point: str) -> None:
    if point == POINT:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    if VICTIM in ("worker", "executor"):
        setattr(launch, "ParquetWriter", KillingWriter)  # noqa: B010  # what tasks are sent
    spark = (
        SparkSession.builder.master(MASTER)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "OFF")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    join = Join(spark)
    for name in "abc":
        folder = f"{ROOT}/in/{name}"
        reader = spark.readStream.schema(spark.read.parquet(folder).schema).option("maxFilesPerTrigger", 1)
        join = join.stream(name, reader.parquet(folder), time="t", lateness="5 seconds")
    join = join.on("a.k = b.k", "b.k2 = c.k2").within("8 seconds").select("a.id", "b.id", "c.id")
    writer = join.writeStream.format("parquet").option("path", f"{ROOT}/out").option("partitions", 2)
    writer = writer.option("checkpointLocation", f"{ROOT}/checkpoint").trigger(availableNow=True)
    with crash_hook(_die) if VICTIM == "driver" else nullcontext():
        writer.start().awaitTermination()
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    print("DONE", executors)
    spark.stop()


if __name__ == "__main__":
    main()

"""The contestants. Each is run in a process of its own and prints one line of JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.memory_watch import MemoryWatch
from benchmarks.workloads import WORKLOADS, Workload

# State is not in the JVM, which needs little memory; with more it would only collect garbage later.
MIDSTREAM_CONF = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.memory": "1g",
    # A heap that grows only when it must, and is given back; and the compiler that needs less, since the
    # JVM does little more than pass bytes on.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Xms96m -Xmn24m -XX:TieredStopAtLevel=1"
    " -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30",
}


def run_midstream(work: Workload, data: Path, out: Path) -> dict[str, Any]:
    """Midstream as a user would run it: exactly once, into Parquet."""
    from pyspark.sql.streaming.query import StreamingQuery

    from midstream import Join

    spark = make_session(MIDSTREAM_CONF)
    memory = MemoryWatch()
    join = Join(spark)
    for stream in work.streams:
        join = join.stream(stream, _read(spark, work, data, stream), time="ts")
    for left, right, key in work.equalities():
        join = join.on(f"{left}.{key} = {right}.{key}")
    items = [f"{s}.{c} AS {s}_{c}" for s in work.streams for c in work.columns(s)]
    writer = join.within(f"{work.window} seconds").select(*items).writeStream.format("parquet")
    writer = writer.option("path", out / "results").option("checkpointLocation", out / "checkpoint")
    query = writer.trigger(availableNow=True).start()
    # Both keep only the newest progress, so it is collected as it comes; only what is needed, in the same
    # memory that is measured.
    figures: dict[int, dict[str, Any]] = {}
    millis: dict[int, int] = {}
    live: dict[int, int] = {}
    done = False
    while not done:
        done = bool(query.awaitTermination(2))
        for p in query.recentProgress:
            parts = {**p["durationMs"], **{f"task {k}": v for k, v in p["taskMs"].items()}}
            figures[p["batchId"]] = {"rows": p["numInputRows"], "parts": parts}
            live[p["batchId"]] = p["stateBytesActive"]
        sparks_own = StreamingQuery(query._jsq).recentProgress
        millis |= {p["batchId"]: p["durationMs"]["triggerExecution"] for p in sparks_own}
        memory.sample()
    epochs = [{**figures[number], "ms": millis[number]} for number in sorted(figures)]
    disk = sum(path.stat().st_size for path in (out / "checkpoint" / "slices").iterdir())
    return {
        "epochs": epochs,
        "memory": memory.peak(),
        "live": max(live.values()),
        "disk": disk,
        "live at the end": live[max(live)],
    }


def run_spark(work: Workload, data: Path, out: Path) -> dict[str, Any]:
    """Spark's own stream-stream joins, one after the other, in their best configuration."""
    from pyspark.sql import functions as F  # noqa: N812

    state = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark = make_session(
        {
            "spark.sql.streaming.stateStore.providerClass": state,
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
            "spark.sql.streaming.join.stateFormatVersion": "4",
        }
    )
    window = work.window * 1_000_000

    def source(stream: str) -> Any:
        frame = _read(spark, work, data, stream)
        frame = frame.select(*(F.col(c).alias(f"{stream}_{c}") for c in work.columns(stream)))
        frame = frame.withColumn(f"us_{stream}", F.unix_micros(f"{stream}_ts"))
        return frame.withWatermark(f"{stream}_ts", "0 seconds")

    first, *others = work.streams
    joined = source(first)
    seen = [first]
    for stream in others:
        conditions = [f"{a}_{key} = {b}_{key}" for a, b, key in work.equalities() if b == stream]
        interval = f"interval {work.window} seconds"
        conditions += [f"{first}_ts >= {stream}_ts - {interval}", f"{first}_ts <= {stream}_ts + {interval}"]
        conditions += [f"abs(us_{other} - us_{stream}) <= {window}" for other in seen[1:]]
        # Spark takes one event-time column through a chain of joins: the others go as plain numbers.
        joined = joined.join(source(stream), F.expr(" and ".join(conditions))).drop(f"{stream}_ts")
        seen.append(stream)
    picked = [
        F.timestamp_micros(f"us_{s}").alias(f"{s}_ts") if (c == "ts" and s != first) else F.col(f"{s}_{c}")
        for s in work.streams
        for c in work.columns(s)
    ]
    writer = joined.select(*picked).writeStream.format("parquet").option("path", str(out / "results"))
    query = writer.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    epochs = [
        {"rows": p["numInputRows"], "ms": p["durationMs"]["triggerExecution"]}
        for p in query.recentProgress
        if p["numInputRows"]
    ]
    return {"epochs": epochs}


def run_polars(work: Workload, data: Path, out: Path) -> dict[str, Any]:
    """Polars' batch join of the same files in one go, three times: the limit on this machine."""
    (out / "results").mkdir(parents=True)
    epochs = []
    for _ in range(3):
        begin = time.perf_counter()
        _join_at_once(work, data).write_parquet(out / "results" / "all.parquet")
        millis = 1000 * (time.perf_counter() - begin)
        epochs.append({"rows": work.rows * work.seconds * len(work.streams), "ms": millis})
    return {"epochs": epochs}


def _join_at_once(work: Workload, data: Path) -> Any:
    import polars as pl

    def source(stream: str) -> pl.LazyFrame:
        frame = pl.scan_parquet(data / stream / "*.parquet")
        return frame.rename({c: f"{stream}_{c}" for c in work.columns(stream)})

    joined = source(work.streams[0])
    for i, stream in enumerate(work.streams[1:], 1):
        pairs = [(a, key) for a, b, key in work.equalities() if b == stream]
        joined = joined.join(
            source(stream),
            left_on=[f"{a}_{key}" for a, key in pairs],
            right_on=[f"{stream}_{key}" for _, key in pairs],
            coalesce=False,
        )
        for other in work.streams[:i]:
            distance = (pl.col(f"{other}_ts") - pl.col(f"{stream}_ts")).abs()
            joined = joined.filter(distance <= pl.duration(seconds=work.window))
    return joined.select(f"{s}_{c}" for s in work.streams for c in work.columns(s)).collect()


def fingerprint(results: Path) -> dict[str, int]:
    """Count and order-free digest of the rows, the same for the same multiset."""
    import polars as pl

    files = sorted(results.glob("*.parquet"))
    rows = digest = 0
    for path in files:
        frame = pl.read_parquet(path)
        frame = frame.with_columns(pl.col(pl.Datetime).dt.replace_time_zone(None).dt.timestamp("us"))
        rows += frame.height
        digest = (digest + int(frame.hash_rows().cast(pl.UInt64).to_numpy().sum(dtype="uint64"))) % (1 << 64)
    return {"rows": rows, "digest": digest}


def make_session(settings: dict[str, str], cores: int = 2) -> Any:
    """Spark on so many cores."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.driver.memory", "6g")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
        **settings,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _read(spark: Any, work: Workload, data: Path, stream: str) -> Any:
    folder = str(data / stream)
    reader = spark.readStream.schema(spark.read.parquet(folder).schema)
    return reader.option("maxFilesPerTrigger", work.seconds_per_epoch).parquet(folder)


ENGINES = {"midstream": run_midstream, "spark": run_spark, "polars": run_polars}

if __name__ == "__main__":
    name, contestant, folder = sys.argv[1:]
    target = Path(folder) / "run"
    shutil.rmtree(target, ignore_errors=True)
    source_folder = WORKLOADS[name].write(Path(folder) / "data")
    figures = ENGINES[contestant](WORKLOADS[name], source_folder, target)
    print(json.dumps({**figures, **fingerprint(target / "results")}))
    shutil.rmtree(target, ignore_errors=True)

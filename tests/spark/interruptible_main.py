"""A program that is interrupted in the middle of batches; started by ``test_interrupt.py``.

The argument is a folder with the input. The log of Spark is as users have it, and that of Python as it is
once something has called ``logging.basicConfig``.
"""

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody has it

from midstream import Join
from midstream.spark.query import JoinStreamingQuery
from midstream.spark.worker_python import use_this_python
from tests.spark.feed import Feed
from tests.spark_session import USERS_FILE_MANAGER, make_session


def start(join: Join, root: Path) -> JoinStreamingQuery:
    """Start a query, and return in the middle of a batch."""
    (root / "running").unlink(missing_ok=True)
    writer = join.writeStream.format("parquet").option("path", root / "out")
    query = writer.option("checkpointLocation", root / "checkpoint").start()
    while not (root / "running").exists():
        assert query.isActive
        time.sleep(0.05)
    return query


def endless(spark: SparkSession, root: Path) -> Join:
    """A join whose tasks do not end; they leave a mark."""
    use_this_python(spark)
    mark = root / "running"

    def never_ends(key):
        mark.touch()
        time.sleep(600)
        return key

    join = Join(spark)
    for name in "ab":
        rows = Feed(spark, root / "in").df(name)
        join = join.stream(name, rows.withColumn("k", F.udf(never_ends, "bigint")("k")), time="t")
    return join.on("a.k = b.k").select("a.id", "b.id")


def interrupted(query: JoinStreamingQuery) -> str:
    """What became of a query at a Ctrl-C that came while the program slept."""
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    begin = time.monotonic()
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        return f"{outcome(query)} {time.monotonic() - begin - 0.5:.1f}"
    return "not interrupted"


def interrupted_in_any(query: JoinStreamingQuery) -> str:
    """What became of a query at a Ctrl-C that came while the program waited for any query of the session."""
    spark = SparkSession.active()
    spark.streams.resetTerminated()
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    begin = time.monotonic()
    try:
        spark.streams.awaitAnyTermination()
    except KeyboardInterrupt:
        # The connection to the JVM still works.
        return f"{outcome(query)} {time.monotonic() - begin - 0.5:.1f}"
    return "not interrupted"


def outcome(query: JoinStreamingQuery) -> str:
    return f"{query.status['message']} {query.isActive} {query.exception()}"


def main(root: Path) -> None:
    logging.basicConfig()
    join = endless(make_session("local[2]", USERS_FILE_MANAGER), root)
    print("sleep:", interrupted(start(join, root)))
    print("any:", interrupted_in_any(start(join, root)))
    query = start(join, root)

    def end_in_the_middle_of_a_batch(kind, error, stack):
        sys.__excepthook__(kind, error, stack)
        start(join, root)

    sys.excepthook = end_in_the_middle_of_a_batch
    print("uncaught:", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

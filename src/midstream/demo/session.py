"""A Spark session for the demo: in this process, silent, and not reachable from other machines."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from midstream.errors import MidstreamError


@contextmanager
def spark_session(master: str, folder: Path) -> Iterator[SparkSession]:
    """A session that keeps its files and its log in ``folder``."""
    # Otherwise Spark listens on every interface. It is read when the JVM starts, not from the conf.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder.mkdir(parents=True)
    log = folder / "spark.log"
    # Py4J reports an interrupted call to the root logger, which would print it.
    logging.basicConfig(filename=log)
    conf = SparkConf().setMaster(master).setAppName("midstream demo")
    # In a run of a minute the optimising compiler does not pay off: without it the JVM does half the work.
    conf.set("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    conf.set("spark.ui.enabled", "false")
    conf.set("spark.ui.showConsoleProgress", "false")
    conf.set("spark.log.level", "WARN")
    conf.set("spark.local.dir", str(folder / "scratch"))
    conf.set("spark.sql.warehouse.dir", str(folder / "warehouse"))
    conf.set("spark.sql.session.timeZone", "UTC")
    try:
        with log.open("ab") as sink, _uninterrupted():
            streams = {"stdout": sink, "stderr": sink}
            gateway = launch_gateway(conf, streams)  # type: ignore[no-untyped-call]  # PySpark's
    except PySparkRuntimeError:
        raise MidstreamError(
            "Spark must be able to start",
            got=_first_error(log),
            hint=f"it needs Java 17 or newer, on the path or in JAVA_HOME; all that it said is in {log}",
        ) from None
    session = SparkSession(SparkContext(conf=conf, gateway=gateway))
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C: a JVM whose parent dies while it starts never ends."""
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt


def _first_error(log: Path) -> str:
    """The first line of the log that is not one of the usual warnings."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in lines if line and not line.startswith(("WARNING", "Using"))), "silence")

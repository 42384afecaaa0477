"""The Spark sessions of the tests: one for most of them, and those of processes that are killed."""

from __future__ import annotations

import os
import tempfile
from unittest.mock import patch

from pyspark.sql import SparkSession

from tests.jvm_archive import jvm_archive
from tests.spark_home import spark_home

# Short queries gain nothing from a second compiler or a parallel collector. The code of all tests takes more
# room than the first compiler alone gets, and making room again and again takes an eighth of the JVM's time.
_JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn256m -XX:ReservedCodeCacheSize=240m"
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_FILE_MANAGERS = "org.apache.spark.sql.execution.streaming.checkpointing"
USERS_FILE_MANAGER = {_FILE_MANAGER: f"{_FILE_MANAGERS}.FileContextBasedCheckpointFileManager"}
"""For sessions that may die or pause while Spark writes files of its own, which it does as for users."""
_CONFIG = {
    # Where Hadoop's native library is missing, Spark's default starts 50 processes an epoch.
    _FILE_MANAGER: f"{_FILE_MANAGERS}.FileSystemBasedCheckpointFileManager",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # Until it kills the Python worker of a task that was cancelled, the task's thread in the JVM never rests.
    "spark.python.task.killTimeout": "100ms",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def make_session(master: str, config: dict[str, str], archive_option: str | None = None) -> SparkSession:
    """A session in a JVM that starts quickly: from the archive of classes, if not told otherwise."""
    jvm_options = f"{_JVM_OPTIONS} {archive_option or jvm_archive_option()}"
    given = {
        **_CONFIG,
        "spark.driver.extraJavaOptions": jvm_options,
        "spark.executor.extraJavaOptions": jvm_options,
        "spark.local.dir": tempfile.gettempdir(),
        **config,
    }
    builder = SparkSession.builder.master(master).appName("midstream tests")
    for name, value in given.items():
        builder = builder.config(name, value)
    with patch.dict(os.environ, SPARK_HOME=str(spark_home())):
        return builder.getOrCreate()


def jvm_archive_option() -> str:
    """What makes a JVM start from the archive of classes, if there is one."""
    archive = jvm_archive()
    return f"-XX:SharedArchiveFile={archive} -Xshare:auto" if archive and archive.exists() else ""

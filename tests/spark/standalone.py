"""The daemons of Spark's standalone clusters, for as long as a test needs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

from tests.jvm_archive import ensure_jvm_archive
from tests.spark_session import jvm_archive_option

SPARK_HOME = Path(pyspark.__file__).parent
_JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def jvm_options() -> str:
    """Options with which a JVM starts quickly: from the archive of classes, if there is one."""
    ensure_jvm_archive()
    return f"{_JVM_OPTIONS} {jvm_archive_option()}"


class Daemons:
    """Masters and workers that log to a folder."""

    def __init__(self, folder: Path, home: Path = SPARK_HOME) -> None:
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": jvm_options(),
        }
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start_master(self, host: str = "127.0.0.1", *, inside: Sequence[str] = ()) -> str:
        """Start a master, and return its address when it listens; ``inside`` is put before its command."""
        log = self._start("master.Master", *_at(host), inside=inside, environment={"SPARK_LOCAL_IP": host})
        return wait_for(log, r"Starting Spark master at (spark://\S+)")

    def start_worker(
        self,
        master: str,
        *arguments: str,
        host: str = "127.0.0.1",
        inside: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Path:
        """Start a worker, and return its log, without waiting for it."""
        own = {"SPARK_LOCAL_IP": host, **(environment or {})}
        work = ("--work-dir", str(self._folder / "work"), master)
        return self._start("worker.Worker", *_at(host), *arguments, *work, inside=inside, environment=own)

    def stop(self) -> None:
        for daemon in reversed(self._running):
            daemon.terminate()
        for daemon in self._running:
            daemon.wait(timeout=60)

    def _start(
        self, name: str, *arguments: str, inside: Sequence[str], environment: Mapping[str, str]
    ) -> Path:
        log = self._folder / f"{len(self._running)}-{name}.log"
        spark_class = Path(self.environment["SPARK_HOME"], "bin", "spark-class")
        command = [*inside, str(spark_class), f"org.apache.spark.deploy.{name}", *arguments]
        with log.open("wb") as output:
            own = {**self.environment, **environment}
            self._running.append(subprocess.Popen(command, env=own, stdout=output, stderr=output))
        return log


def wait_for_worker(log: Path) -> None:
    wait_for(log, r"Successfully registered with (master)")


def wait_for(log: Path, pattern: str) -> str:
    """What a log says sooner or later."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if match := re.search(pattern, log.read_text()):
            return match[1]
        time.sleep(0.2)
    raise TimeoutError(f"{pattern} is not in {log}:\n{log.read_text()}")


def _at(host: str) -> tuple[str, ...]:
    return ("--host", host, "--port", "0", "--webui-port", "0")

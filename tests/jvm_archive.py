"""The archive of classes from which JVMs of the tests start: Spark's are parsed and verified only once.

Some forty JVMs start during the tests, most of them to be killed. Starting from an archive takes one of
them 2 seconds of the processor less, and its first epochs another one. The archive is made when it is first
needed, which takes about as long as four starts, and kept with pytest's cache; a JVM that finds it does not
fit starts without it.

``python -m tests.jvm_archive FILE`` makes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

_ROOT = Path(__file__).parents[1]
_FOLDER = _ROOT / ".pytest_cache" / "d" / "jvm"


def jvm_archive() -> Path | None:
    """Where the archive is, or would be, for this JVM and these jars; None if no JVM is named."""
    home, jars = os.environ.get("JAVA_HOME"), Path(pyspark.__file__).parent / "jars"
    release = Path(home or "", "release")
    if home is None or not release.exists() or not jars.is_dir():
        return None
    known_by = f"{home} {release.read_text()} {jars} {jars.stat().st_mtime_ns}"
    return _FOLDER / f"{hashlib.sha256(known_by.encode()).hexdigest()[:16]}.jsa"


def ensure_jvm_archive() -> None:
    """Make the archive unless it is there, or somebody else is making it."""
    archive = jvm_archive()
    if archive is None or archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if not archive.exists():
            made = archive.with_suffix(".new")
            command = [sys.executable, "-m", "tests.jvm_archive", str(made)]
            subprocess.run(command, cwd=_ROOT, check=False, capture_output=True, timeout=300)
            if made.exists():
                made.rename(archive)


def jvm_environment() -> dict[str, str]:
    """For processes whose session is not the tests' own: their JVMs start from the archive all the same."""
    ensure_jvm_archive()
    archive = jvm_archive()
    if archive is None or not archive.exists():
        return {}
    return {"JAVA_TOOL_OPTIONS": f"-XX:SharedArchiveFile={archive} -Xshare:auto"}


def _make(archive: str) -> None:
    """Run a small query, and let the JVM write down all classes that it has loaded as it ends."""
    from tests.spark.killable_main import start
    from tests.spark.killable_query import KillableQuery
    from tests.spark_session import make_session

    spark = make_session("local[1]", {}, f"-XX:ArchiveClassesAtExit={archive}")
    with tempfile.TemporaryDirectory() as folder:
        query = KillableQuery(Path(folder), epochs=2, seed=1)
        start(spark, query.root).awaitTermination()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    # It ends when its standard input does.
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    _make(sys.argv[1])

"""A standalone master and worker, and programs that are submitted to them as users submit theirs."""

import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import midstream
from midstream.query.build import build_query
from midstream.testing import Shape, generate, stream
from midstream.values import Micros
from tests.docs.pages import ROOT, section
from tests.spark.feed import Feed
from tests.spark.runner import check
from tests.spark.standalone import SPARK_HOME, Daemons, jvm_options, wait_for_worker

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(600)]

# What a user writes; nothing in it knows where it runs.
PROGRAM = dedent(
    """
    import sys

    from pyspark.sql import SparkSession

    from midstream import Join

    root = sys.argv[1]
    spark = SparkSession.builder.appName("join").getOrCreate()


    def read(name):
        folder = f"{root}/in/{name}"
        return spark.readStream.schema(spark.read.parquet(folder).schema).parquet(folder)


    query = (
        Join(spark)
        .stream("a", read("a"), time="t", lateness="5 seconds")
        .stream("b", read("b"), time="t", lateness="5 seconds")
        .on("a.k = b.k")
        .within("15 seconds")
        .writeStream.format("parquet")
        .option("path", f"{root}/out")
        .option("checkpointLocation", f"{root}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("done at epoch", query.lastProgress["batchId"])
    """
)


class Cluster:
    """Where programs are submitted to."""

    def __init__(self, master: str, environment: dict[str, str]) -> None:
        self._master = master
        self._environment = environment

    def submit(self, folder: Path, *options: str):
        """Submit the program in a folder, as somebody would who works there."""
        quickly = jvm_options()
        config = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            "spark.executor.memory": "512m",
            "spark.driver.extraJavaOptions": quickly,
            "spark.executor.extraJavaOptions": quickly,
            "spark.sql.session.timeZone": "UTC",
        }
        given = [part for name, value in config.items() for part in ("--conf", f"{name}={value}")]
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self._master, *given, *options]
        return subprocess.run(
            [*command, "join.py", str(folder)],
            cwd=folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    """One master and one worker, on this machine only, for all tests of this module."""
    daemons = Daemons(tmp_path_factory.mktemp("cluster"))
    try:
        master = daemons.start_master()
        wait_for_worker(daemons.start_worker(master, "--cores", "2", "--memory", "1g"))
        yield Cluster(master, daemons.environment)
    finally:
        daemons.stop()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with the program and its input."""
    Feed(None, tmp_path / "in").add(*_epochs())
    (tmp_path / "join.py").write_text(PROGRAM)
    return tmp_path


def _epochs():
    return generate(dict.fromkeys("ab", Shape(rows=40)), epochs=2, seed=5)


def test_workers_without_the_packages_are_found_before_the_query_starts(cluster, program, tmp_path):
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    wheel = tmp_path / f"midstream-{midstream.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        source = Path(midstream.__file__).parent
        for path in source.rglob("*.py"):
            archive.write(path, path.relative_to(source.parent))
    python = str(bare / "bin" / "python")
    python_of = ("spark.pyspark.driver.python=python", f"spark.pyspark.python={python}")
    done = cluster.submit(program, "--conf", python_of[0], "--conf", python_of[1], "--py-files", str(wheel))
    assert done.returncode == 1
    (error,) = re.findall(r"^midstream\.errors\.WorkerError: (.*)$", done.stderr + done.stdout, re.MULTILINE)
    assert error.startswith("Spark's workers must have the packages that the tasks of a join import; got no ")
    assert "no midstream, no msgspec, no numpy, no pandas, no polars, no pyarrow on " in error
    assert f"{python}). Hint: install midstream for that Python, as the driver has it, or ship" in error
    assert "--py-files brings neither wheels nor packages with native code" in error
    assert not (tmp_path / "checkpoint").exists()
    assert not (tmp_path / "out").exists()


def test_a_program_that_is_submitted_with_its_environment_runs_to_its_end(cluster, program, tmp_path):
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    # As if everything were installed in it, without copying it all.
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "tests.pth").write_text(f"import site; site.addsitedir({_site_packages()!r})\n")
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as tar:
        tar.add(environment, ".")
    done = cluster.submit(program, *_options_in_the_guide())
    assert done.returncode == 0, done.stderr
    assert "done at epoch 0" in done.stdout
    query = build_query([stream(name) for name in "ab"], ["a.k = b.k"], default_window=Micros(15_000_000))
    got = pa.concat_tables(pq.read_table(path) for path in sorted((tmp_path / "out").glob("*.parquet")))
    both = {name: pa.concat_tables([epoch[name] for epoch in _epochs()]) for name in "ab"}
    assert check(query, [both], got).num_rows > 10


def _options_in_the_guide() -> list[str]:
    """What the guide's call of spark-submit has between the master and the program."""
    (command,) = re.findall(r"```bash\n(.*?)```", section(ROOT / "docs" / "guide.md", "submitted"), re.DOTALL)
    words = shlex.split(command.replace("\\\n", " "))
    assert (words[:2], words[-1]) == (["spark-submit", "--master"], "join.py")
    return words[3:-1]


def _site_packages() -> str:
    return str(SPARK_HOME.parent)

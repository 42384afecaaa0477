"""Sessions that this project starts listen on this machine's own address, and nowhere else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.spark

LOCAL = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}

DEMO = """
import json, sys
from pathlib import Path
from midstream.demo.session import spark_session
from tests.spark.test_sockets import addresses

with spark_session("local[1]", Path(sys.argv[1]) / "demo") as spark:
    # With a Python worker, which is spoken to through a socket too.
    spark.range(3).mapInArrow(lambda batches: batches, "id long").collect()
    print(json.dumps(sorted(addresses())))
"""


def addresses() -> set[str]:
    """Where this process and those that it started listen."""
    me = psutil.Process()
    found = [c for p in (me, *me.children(recursive=True)) for c in p.net_connections(kind="inet")]
    return {c.laddr.ip for c in found if c.status == psutil.CONN_LISTEN}


def test_the_session_of_the_demo_listens_only_here(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    done = subprocess.run(
        [sys.executable, "-c", DEMO, tmp_path],
        cwd=Path(__file__).parents[2],
        env={**environment, "PYTHONPATH": ".", "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = set(json.loads(done.stdout.splitlines()[-1]))
    assert found
    assert found <= LOCAL


def test_the_session_of_the_tests_listens_only_here(spark):
    assert spark.conf.get("spark.ui.enabled") == "false"
    # Others that run in this process, such as the tests' object store, must keep to it as well.
    assert addresses() <= LOCAL

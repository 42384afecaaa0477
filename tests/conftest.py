"""What all tests share: the profiles of Hypothesis, one Spark session, and an object store."""

import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from midstream.storage.remote import RemoteStore, store_at
from tests.garbage_collection import collect_all, collect_seldom
from tests.scratch import is_scratch, scratch_in_memory

# Assertions in what tests share say as much as those in tests.
pytest.register_assert_rewrite(
    "tests.spark.killable_query", "tests.spark.migration_scenario", "tests.spark.runner"
)

_COMMON = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", _COMMON, max_examples=60)
settings.register_profile("thorough", _COMMON, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Two processes run tests on two cores, one of them with Spark's workers besides: more threads only get
# in each other's way. Read when Polars is first imported, here or in a worker.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
# Read when the JVM starts: without it Spark listens on every interface of the machine.
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-counts", action="store_true", help="note what an epoch costs now")


_SCRATCH = pytest.StashKey[Path | None]()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    # The workers of a run get it from the process that starts them.
    if not hasattr(session.config, "workerinput"):
        session.config.stash[_SCRATCH] = scratch_in_memory()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    scratch = config.stash.get(_SCRATCH, None)
    if scratch and exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        shutil.rmtree(scratch, ignore_errors=True)
    elif scratch and scratch.exists():
        terminalreporter.write_line(f"What tests have written is in {scratch} until the next run")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests come first, so that none is left to the end; those that need a JVM go to one worker.

    Workers begin with equal shares of the list, in its order. Who is done takes from the end of another's: of
    tests that need a JVM only if no others are left.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    needs_jvm = [item for item in items if item.get_closest_marker("spark")]
    others = [item for item in items if not item.get_closest_marker("spark")]
    filled = max(0, len(items) // workers - len(needs_jvm))
    quick = others[len(others) - filled :]
    items[:] = [*needs_jvm, *quick, *others[: len(others) - filled]]


def pytest_collection_finish() -> None:
    collect_seldom()


def pytest_sessionfinish() -> None:
    collect_all()


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    from midstream.spark.worker_python import use_this_python
    from tests.jvm_archive import ensure_jvm_archive
    from tests.spark_session import make_session

    ensure_jvm_archive()
    config = {
        "spark.log.level": "ERROR",
        # Small epochs mostly wait for Python workers otherwise.
        "spark.python.unix.domain.socket.enabled": "true",
    }
    session = make_session("local[2]", config)
    # Any test may be the first of its process: a DataFrame of Python values keeps the Python it is made with.
    use_this_python(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def object_store():
    """The address of a server that speaks S3's protocol, on this machine."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    _, port = server.get_host_and_port()
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def on_disk(monkeypatch):
    """What is written is on a disk: in memory it would count against a limit of memory."""
    if is_scratch(Path(tempfile.gettempdir())):
        monkeypatch.delenv("TMPDIR")
        monkeypatch.setattr("tempfile.tempdir", None)


@pytest.fixture
def bucket(object_store, monkeypatch, tmp_path):
    """The name of a new bucket; the environment says where, as it would for a user."""
    import fsspec

    monkeypatch.setenv("AWS_ENDPOINT_URL", object_store)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    name = f"b{uuid.uuid4().hex}"
    fsspec.filesystem("s3").mkdir(name)
    return name


@pytest.fixture
def remote(bucket):
    store = store_at(f"s3://{bucket}/checkpoint")
    assert isinstance(store, RemoteStore)
    return store

"""Which workers are fit to run tasks, by what they say of their packages."""

import pytest

from midstream import __version__
from midstream.errors import WorkerError
from midstream.spark.worker_packages import Worker, check_versions, readable_failure, required_versions

FIT = {"midstream": __version__, "polars": "2.1.0", "pyarrow": "24.0.0"}


def _worker(host="h", **versions):
    return Worker(host, "Python 3.11.7, /p/python", {**FIT, **versions})


def test_what_workers_must_have_is_what_midstream_depends_on():
    required = required_versions()
    assert required["midstream"] == f"=={__version__}"
    assert {"msgspec", "numpy", "pandas", "polars", "pyarrow"} <= set(required)
    assert "duckdb" not in required, "that is for the tests of users"


@pytest.mark.parametrize(
    "versions", [{}, {"polars": "2.99.1rc1"}, {"pyarrow": "26.1"}, {"pandas": "2.2.0+x"}]
)
def test_workers_that_fit(versions):
    check_versions([_worker(**versions)] * 3, required_versions())


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ({"midstream": None, "polars": None}, "got no midstream, no polars on h (Python 3.11.7, /p/python)"),
        ({"midstream": "0.0.9"}, f"got midstream 0.0.9 instead of =={__version__} on h"),
        ({"polars": "1.30.0"}, "got polars 1.30.0 instead of <3,>=2.1 on h"),
        ({"polars": "2.0.9"}, "got polars 2.0.9 instead of "),
        ({"polars": "3.0.0"}, "got polars 3.0.0 instead of "),
    ],
)
def test_workers_that_do_not_fit(versions, told):
    with pytest.raises(WorkerError) as raised:
        check_versions([_worker("fine"), _worker(**versions)], required_versions())
    assert told in str(raised.value)
    assert "on fine" not in str(raised.value)


def test_of_many_hosts_some_are_named_once():
    workers = [_worker(f"h{number % 7}", polars=None) for number in range(20)]
    with pytest.raises(WorkerError, match=r"on h0 .*; no polars on h1 .* on h2 [^;]*; and on 4 more"):
        check_versions(workers, required_versions())


@pytest.mark.parametrize(
    ("text", "got"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in",
            "Python 3.12",
        ),
        (
            'java.io.IOException: Cannot run program "./env/bin/python": error=2',
            "no program ./env/bin/python",
        ),
        ("/usr/bin/python3: No module named pyspark", "a Python without pyspark"),
    ],
)
def test_a_python_that_cannot_run_tasks_is_told_plainly(text, got):
    error = readable_failure(RuntimeError(f"An error occurred\n{text}\n\tat org.apache"))
    assert isinstance(error, WorkerError)
    assert error.got == got


def test_any_other_failure_stays_what_it_is():
    failure = RuntimeError("Job aborted")
    assert readable_failure(failure) is failure

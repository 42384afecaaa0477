"""Errors of Spark when a query ends, and what its user gets instead."""

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException

from midstream.errors import StreamError
from midstream.spark.failures import failed_job, readable_error
from tests.plain_errors import assert_plain


@pytest.mark.parametrize(
    ("line", "must"),
    [
        ("MemoryError", "a task must get the memory"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 1 GiB", "a task must get the memory"),
        ("pyarrow.lib.ArrowMemoryError: malloc of size 64 failed", "a task must get the memory"),
        ("E: Python worker exited unexpectedly (crashed). Consider", "the Python worker of a task must"),
        (
            "OSError: [Errno 5] the object store at s3://b must do what it is asked; got E. Hint: look",
            "the object store of the checkpoint must do what it is asked; got 'E'. Hint: look whether",
        ),
        ("java.io.IOException: No space left on device", "must have space"),
        (
            "Error from python worker:\n  /usr/bin/python3: Error while finding module specification for "
            "'pyspark.daemon' (ModuleNotFoundError: No module named 'pyspark')\nPYTHONPATH was:",
            "in DataFrames run with must have PySpark; got '/usr/bin/python3'. Hint: set PYSPARK_PYTHON, or",
        ),
    ],
)
def test_a_known_failure_is_put_plainly_and_keeps_its_cause(line, must):
    spark = RuntimeError(f"[STREAM_FAILED] Query terminated\n  File ...\n{line}\n\tat org.apache.spark")
    error = readable_error(spark)
    assert isinstance(error, StreamError)
    assert must in str(error)
    assert error.__cause__ is spark


@pytest.mark.parametrize("line", ["RuntimeError: no", "java.lang.OutOfMemoryError: Java heap space"])
def test_an_unknown_failure_stays_what_it_is(line):
    spark = RuntimeError(f"[STREAM_FAILED] Query terminated\n{line}")
    assert readable_error(spark) is spark


class JavaError(Py4JJavaError):  # type: ignore[misc]  # Py4J ships no types
    """An exception of the JVM, with those that led to it."""

    def __init__(self, *messages: str | None) -> None:
        Exception.__init__(self, "calling collect")
        self.java_exception = _Throwable(*messages)

    def __str__(self) -> str:
        return f"calling collect: {self.java_exception.getMessage()}\n\tat org.apache.spark"


class _Throwable:
    def __init__(self, message: str | None, *causes: str | None) -> None:
        self._message = message
        self._cause = _Throwable(*causes) if causes else None

    def getMessage(self) -> str | None:  # noqa: N802  # Java's name
        return self._message

    def getCause(self) -> "_Throwable | None":  # noqa: N802  # Java's name
        return self._cause


READ = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/0.json. SQLSTATE: KD001"
TRACEBACK = (
    "An exception was thrown from the Python worker:\n"
    'Traceback (most recent call last):\n  File "/spark/worker.py", line 9, in run\n'
    '  File "/a/b/x.py", line 4, in f\nValueError: bad 17\n'
)


@pytest.mark.parametrize(
    ("error", "got"),
    [
        (JavaError(READ, "Malformed records"), f"{READ}: Malformed records"),
        (JavaError(f"Job aborted due to {READ}\nDriver stacktrace:", READ), f"Job aborted due to {READ}"),
        (
            JavaError(f"{READ}\n\tat org.apache.spark.X\n\tat y", None, "length is\ntoo low"),
            f"{READ}: length is too low",
        ),
        (JavaError("[CAST] malformed.\n== SQL (line 1) ==\ncast(x)\n^^^"), "[CAST] malformed"),
        (JavaError("x" * 999), f"{'x' * 400} ..."),
        (JavaError("1", "2", "3", "4"), "1: 2: 3"),
        (JavaError(None), None),
        (PythonException(TRACEBACK), "ValueError: bad 17 (x.py, line 4)"),
        (PySparkException("[X] no\n\nJVM stacktrace:\norg.apache"), "[X] no"),
    ],
)
def test_a_job_that_fails_is_told_by_what_made_it_fail(error, got):
    told = failed_job(error, 7)
    assert str(told).startswith("batch 7 must be read and joined")
    assert told.got == got
    assert told.__cause__ is error
    if got is None or "Error" not in got:
        assert_plain(told)


def test_a_job_that_fails_for_a_known_reason_is_told_so():
    told = failed_job(JavaError("E: Python worker exited unexpectedly (crashed)"), 7)
    assert "the Python worker of a task must live" in str(told)

"""Errors of Spark when a query ends, and what its user gets instead."""

import pytest

from midstream.errors import StreamError
from midstream.spark.failures import readable_error


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

"""Readable errors: Spark's errors are pages of text, in which one line matters."""

from __future__ import annotations

import re
from collections.abc import Iterator

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from midstream.errors import StreamError

_GO_ON = "then start the query again: it goes on after its last committed epoch"
_LESS = "give Python workers more memory, or take in less at once, for example with maxFilesPerTrigger"
_PATTERNS = (
    # Python's own, NumPy's and Arrow's; not the JVM's OutOfMemoryError.
    (
        re.compile(r"^(?:\w+\.)*_?(?:Array|Arrow)?MemoryError\b(?:: )?(?P<got>.*)", re.MULTILINE),
        "a task must get the memory that it asks for",
        f"{_LESS}; {_GO_ON}",
    ),
    (
        re.compile(r"Python worker exited unexpectedly \(crashed\)"),
        "the Python worker of a task must live until the task is done",
        f"most often the system kills one for want of memory: if so, {_LESS}; {_GO_ON}",
    ),
    (
        re.compile(
            r"the object store at \S+ must do what it is asked; got (?P<got>.*?)(?=\. Hint:|$)", re.MULTILINE
        ),
        "the object store of the checkpoint must do what it is asked",
        f"look whether it can be reached and what it allows, {_GO_ON}",
    ),
    (
        # Functions keep the Python that Spark would choose when they are made, before any join is started.
        re.compile(r"Error from python worker:\s+(?P<got>\S+): .*No module named '?pyspark\b"),
        "the Python that functions in DataFrames run with must have PySpark",
        "set PYSPARK_PYTHON, or spark.pyspark.python, to the path of this Python before the session is made; "
        f"{_GO_ON}",
    ),
    (
        re.compile(r"No space left on device"),
        "the disks of the checkpoint, the results and Spark's own files must have space",
        f"make space, {_GO_ON}",
    ),
)


def readable_error(error: Exception) -> Exception:
    """An error that says what to do, if its text is a known one; else the error itself."""
    text = str(error)
    for pattern, must, hint in _PATTERNS:
        if match := pattern.search(text):
            got = match.groupdict().get("got", match.group())
            readable = StreamError(must, got=f"'{got}'" if got else None, hint=hint)
            readable.__cause__ = error
            return readable
    return error


_PLACE = re.compile(r'File "(?:[^"]*[/\\])?([^"/\\]+)", line (\d+)')
"""The file and the line of an entry of a stack of Python's."""
_MOST_REASONS = 3
_LONGEST_REASON = 400


def failed_job(error: Py4JJavaError | PySparkException, batch: int) -> StreamError:
    """What to raise if the job of a batch fails: the reasons that Spark gives, each in one line.

    Spark itself would say that the function of ``foreachBatch`` has failed, also if there is none.
    """
    readable = readable_error(error)
    if isinstance(readable, StreamError):
        return readable
    # A reason is often repeated by what it has led to.
    reasons = [reason for reason in _reasons(error) if reason]
    distinct = [r for i, r in enumerate(reasons) if not any(r in other for other in reasons[:i])]
    failed = StreamError(
        f"batch {batch} must be read and joined",
        got=": ".join(distinct[:_MOST_REASONS]) or None,
        hint=f"repair the source, or the DataFrame of its stream, {_GO_ON}",
    )
    failed.__cause__ = error
    return failed


def _reasons(error: Py4JJavaError | PySparkException) -> Iterator[str]:
    if isinstance(error, PySparkException):
        yield _in_one_line(str(error))
        return
    cause = error.java_exception
    while cause is not None:
        yield _in_one_line(cause.getMessage() or "")
        cause = cause.getCause()


def _in_one_line(text: str) -> str:
    """The message of an exception without its stack; of a failure in Python, the line that names it."""
    text = re.split(r"\n\s*at |\nDriver stacktrace|\n\nJVM stacktrace|\n== SQL", text)[0].strip()
    if "Traceback (most recent call last)" in text:
        places = _PLACE.findall(text)
        text = text.splitlines()[-1] + (" ({}, line {})".format(*places[-1]) if places else "")
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]} ..."

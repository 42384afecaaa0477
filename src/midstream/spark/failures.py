"""Readable errors: Spark's errors are pages of text, in which one line matters."""

from __future__ import annotations

import re

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

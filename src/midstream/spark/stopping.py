"""A batch that ends because its query is stopped: quietly, and at once.

Spark cancels the jobs of a query that is stopped, and the batch that is running fails by that. Whether a
batch has failed by an error or because its query was stopped, Spark decides by the text that the callback has
failed with: the latter, if it says that the jobs of the query were cancelled. The text of the failure itself
would not do: it has the stack of the JVM in it, and is so long that the regular expression by which Spark
reads it overflows the stack.
"""

from __future__ import annotations

import logging

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from midstream.errors import FencedError


class BatchStopped(Exception):  # noqa: N818  # not an error, but the way to end a batch
    """Ends the batch of a query that is being stopped. No user sees it."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"org.apache.spark.SparkException: the jobs of {run_id} were cancelled")


def is_caused_by_stopping(error: BaseException) -> bool:
    """Whether an error in the batch of a query that is being stopped may follow from that.

    Calls of the JVM fail because jobs are cancelled and threads interrupted, commits because the lease was
    given back. Any other error would have come anyway.
    """
    causes: list[BaseException] = [error]
    for cause in causes:
        causes += [next_ for next_ in (cause.__cause__, cause.__context__) if next_ and next_ not in causes]
    return any(isinstance(cause, Py4JError | PySparkException | FencedError) for cause in causes)


def _is_worth_logging(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not isinstance(record.exc_info[1], BatchStopped)


# Py4J logs whatever a callback raises.
logging.getLogger("py4j.clientserver").addFilter(_is_worth_logging)

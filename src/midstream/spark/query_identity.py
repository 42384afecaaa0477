"""The query that a micro-batch belongs to: its ids, and Spark's objects for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from midstream.errors import InternalError, OptionError

if TYPE_CHECKING:
    from midstream.protocol.progress import QueryIdentity


def query_id(batch: DataFrame) -> str:
    """The id of Spark's streaming query; Spark's half of the checkpoint has it, too."""
    return str(batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))


def stream_execution(session: SparkSession, query_id: str) -> Any:
    """Spark's own object for a running query, by its id; ``session`` is the one that it runs in."""
    running = session._jsparkSession.streams().get(query_id)
    if running is None:
        raise InternalError("a micro-batch must be of a running query", got=query_id)
    return running.streamingQuery()


def running_query(session: SparkSession, batch: DataFrame) -> StreamingQuery:
    """Spark's query; ``session`` is the one that it runs in.

    It is looked up in each batch: Spark may run the first one before ``start`` has returned it.
    """
    running = session.streams.get(query_id(batch))
    if running is None:
        raise InternalError("a micro-batch must be of a running query", got=query_id(batch))
    return running


def check_name_is_free(session: SparkSession, name: str | None) -> None:
    """Refuse the name of a query that runs: a view of that name is of the results of that one."""
    if name is not None and any(running.name == name for running in session.streams.active):
        raise OptionError(
            "the name of a query must be that of no other that runs",
            got=repr(name),
            hint="stop that one first, with query.stop(), or give another .queryName(...)",
        )


def identity_of(running: StreamingQuery) -> QueryIdentity:
    """The ids of a query and of its run."""
    # Tasks import this module, and need no more of it.
    from midstream.protocol.progress import QueryIdentity  # noqa: PLC0415

    return QueryIdentity(running.id, running.runId, running.name)

"""The query that a micro-batch belongs to: its ids, and Spark's object for it."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from midstream.errors import InternalError
from midstream.protocol.progress import QueryIdentity


def query_id(batch: DataFrame) -> str:
    """The id of Spark's streaming query; Spark's half of the checkpoint has it, too."""
    return str(batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))


def stream_execution(session: SparkSession, running_query: str) -> Any:
    """Spark's own object for a running query, by its id; ``session`` is the one that it runs in."""
    running = session._jsparkSession.streams().get(running_query)
    if running is None:
        raise InternalError("a micro-batch must be of a running query", got=running_query)
    return running.streamingQuery()


def identity_of(session: SparkSession, batch: DataFrame) -> QueryIdentity:
    """The ids of the query and of this run; ``session`` is the one that it runs in.

    They are read in each batch: Spark may run the first one before ``start`` has returned them.
    """
    running = session.streams.get(query_id(batch))
    if running is None:
        raise InternalError("a micro-batch must be of a running query", got=query_id(batch))
    return QueryIdentity(running.id, running.runId, running.name)

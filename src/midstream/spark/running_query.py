"""The query that a micro-batch belongs to, as Spark knows it."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from midstream.errors import InternalError
from midstream.protocol.progress import QueryIdentity


def query_id(batch: DataFrame) -> str:
    """The id under which Spark counts its batches; Spark's half of the checkpoint has it too."""
    return str(batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))


def identity_of(session: SparkSession, batch: DataFrame) -> QueryIdentity:
    """What tells apart the query and this run of it, by Spark's names; ``session`` is what it runs in.

    Spark chooses the ids when it starts the query, and may run the first batch before anybody has been told.
    """
    running = session.streams.get(query_id(batch))
    if running is None:
        raise InternalError("a micro-batch must be of a running query", got=query_id(batch))
    return QueryIdentity(running.id, running.runId, running.name)

"""Options that a query was not given, from the settings of the session, by the same rules as in Spark."""

from __future__ import annotations

import uuid
from dataclasses import replace

from pyspark.sql import SparkSession

from midstream.spark.option_readers import CODECS, choice, folder_or_object_store
from midstream.spark.options import QueryOptions

_CHECKPOINT = "spark.sql.streaming.checkpointLocation"
_CODEC = "spark.sql.parquet.compression.codec"


def with_session_defaults(options: QueryOptions, spark: SparkSession, query_name: str | None) -> QueryOptions:
    """The options, with what the session says where they say nothing."""
    if options.checkpoint_location is None and (root := spark.conf.get(_CHECKPOINT, None)):
        # A query without a name gets a folder that no other has, so it never goes on from an earlier run.
        location = f"{root.rstrip('/')}/{query_name or uuid.uuid4()}"
        options = replace(options, checkpoint_location=folder_or_object_store(_CHECKPOINT, location))
    if options.compression is None:
        codec = str(spark.conf.get(_CODEC))
        options = replace(options, compression=choice(CODECS)(_CODEC, codec))
    return options

"""Settings of the session: options that a query was not given come from them, by the same rules as in Spark.

What Spark's own sink would do by a setting and Midstream's does not do is refused, not ignored.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace

from pyspark.sql import SparkSession

from midstream.errors import OptionError
from midstream.spark.option_readers import CODECS, choice, folder_or_object_store
from midstream.spark.options import QueryOptions

_CHECKPOINT = "spark.sql.streaming.checkpointLocation"
_CODEC = "spark.sql.parquet.compression.codec"

PARQUET_SETTINGS: Mapping[str, Callable[[str], bool]] = {
    "spark.sql.files.maxRecordsPerFile": lambda value: int(value) <= 0,
    "spark.sql.parquet.writeLegacyFormat": lambda value: value.lower() == "false",
    "spark.sql.parquet.outputTimestampType": lambda value: value.upper() != "TIMESTAMP_MILLIS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": lambda value: value.upper() != "LEGACY",
}
"""Settings by which Spark's Parquet sink writes other files, each with the values for which it does not."""


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


def check_session_settings(settings: Mapping[str, Callable[[str], bool]], spark: SparkSession) -> None:
    """Refuse a session that asks for something which the sink does not do."""
    for name, changes_nothing in settings.items():
        value = spark.conf.get(name, None)
        if value is not None and not changes_nothing(value):
            raise OptionError(
                f"{name} must be left as it is by default: the parquet sink does not follow it",
                got=value,
                hint=f"write spark.conf.unset('{name}'), or write the files in a function of foreachBatch",
            )

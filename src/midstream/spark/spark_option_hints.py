"""Options of Spark's that a join does not take: where to say what they are for."""

from __future__ import annotations

_SOURCE = "it is for reading: set it where the stream is read, spark.readStream.option({name!r}, ...)"
_FILES = "leave it out: Midstream writes the files itself; in a function of foreachBatch, Spark does"

_OF_SOURCES = (
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "startingOffsets",
    "startingTimestamp",
    "failOnDataLoss",
    "subscribe",
    "subscribePattern",
    "latestFirst",
    "maxFileAge",
    "cleanSource",
    "pathGlobFilter",
    "recursiveFileLookup",
    "rowsPerSecond",
)
_OF_FILES = ("mergeSchema", "maxRecordsPerFile", "header", "sep", "mode", "overwriteSchema")
_METHODS = {
    "queryName": "write .queryName('results')",
    "outputMode": "write .outputMode('update'), or leave it out: the default is 'append'",
    "partitionBy": "write .partitionBy('day')",
    "trigger": "write .trigger(processingTime='10 seconds')",
    "processingTime": "write .trigger(processingTime='10 seconds')",
    "availableNow": "write .trigger(availableNow=True)",
    "format": "write .format('parquet')",
}
_HINTS = {
    **{name.lower(): _SOURCE.format(name=name) for name in _OF_SOURCES},
    **{name.lower(): _FILES for name in _OF_FILES},
    **{name.lower(): hint for name, hint in _METHODS.items()},
}


def hint_for(name: str) -> str | None:
    """Where to say what an option of Spark's is for; None if it is none that is known."""
    text = name.lower()
    if text.startswith("kafka."):
        return _SOURCE.format(name=name)
    if text.startswith("parquet."):
        return _FILES
    return _HINTS.get(text)

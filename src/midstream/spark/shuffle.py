"""The shuffle of messages: ``RDD.partitionBy``, but every message is a record of its own.

Spark's own puts some twenty messages together and sends none before it has them: records of many
megabytes, which fill up the JVM's heap, and which wait while the next ones are made.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from pyspark import RDD

from midstream.errors import InternalError
from midstream.spark.messages import Addressed


def shuffle(messages: RDD[Addressed], partitions: int) -> RDD[Addressed]:
    """The messages, in the partitions that they are addressed to."""
    context = messages.context
    if context._jvm is None:
        raise InternalError("a query must have a running Spark context", got="none")
    serializer = context._unbatched_serializer

    def records(_origin: int, messages: Iterable[Addressed]) -> Iterator[bytes]:
        for partition, message in messages:
            yield struct.pack("!q", partition)
            yield serializer.dumps((partition, message))  # type: ignore[no-untyped-call]

    keyed = messages.mapPartitionsWithIndex(records, preservesPartitioning=True)
    # The records are bytes already: a number, then a message, and so on.
    keyed._bypass_serializer = True  # type: ignore[attr-defined]
    pairs = context._jvm.PairwiseRDD(keyed._jrdd.rdd()).asJavaPairRDD()
    shuffled = pairs.partitionBy(context._jvm.PythonPartitioner(partitions, 0))
    return RDD(context._jvm.PythonRDD.valueOfPair(shuffled), context, serializer)

"""The shuffle of messages: like ``RDD.partitionBy``, but every message is a record of its own.

PySpark batches about twenty messages into a record: records of many megabytes, which fill the JVM's heap and
are sent only when they are complete.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from pyspark import RDD

from midstream.errors import InternalError
from midstream.spark.messages import AddressedMessage


def shuffle(messages: RDD[AddressedMessage], partitions: int) -> RDD[AddressedMessage]:
    """The messages, in the partitions that they are addressed to."""
    context = messages.context
    if context._jvm is None:
        raise InternalError("a query must have a running Spark context", got="none")
    serializer = context._unbatched_serializer

    def records(_origin: int, messages: Iterable[AddressedMessage]) -> Iterator[bytes]:
        for partition, message in messages:
            yield struct.pack("!q", partition)
            yield serializer.dumps((partition, message))  # type: ignore[no-untyped-call]

    keyed = messages.mapPartitionsWithIndex(records, preservesPartitioning=True)
    # The records are serialized already: partition and message alternate.
    keyed._bypass_serializer = True  # type: ignore[attr-defined]
    pairs = context._jvm.PairwiseRDD(keyed._jrdd.rdd()).asJavaPairRDD()
    shuffled = pairs.partitionBy(context._jvm.PythonPartitioner(partitions, 0))
    return RDD(context._jvm.PythonRDD.valueOfPair(shuffled), context, serializer)

"""The shuffle of messages: like ``RDD.partitionBy``, but every message is a record of its own.

PySpark batches about twenty messages into a record: records of many megabytes, which fill the JVM's heap and
are sent only when they are complete.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

from pyspark import RDD, SparkContext

from midstream.errors import InternalError
from midstream.spark.messages import AddressedMessage

# Spark warns of tasks that are sent more than 1000 KiB.
_DRIVER_TASK_BYTES = 500_000


def shuffle(
    sources: Sequence[RDD[AddressedMessage]], tasks: int, from_driver: Sequence[AddressedMessage] = ()
) -> RDD[AddressedMessage]:
    """The messages of tasks and of the driver, at the tasks that they are addressed to.

    What several sources send is put together in the JVM: a union of them would send all of it through a
    second Python worker.
    """
    context = sources[0].context
    serializer = context._unbatched_serializer

    def records(_origin: int, messages: Iterable[AddressedMessage]) -> Iterator[bytes]:
        for task, message in messages:
            yield struct.pack("!q", task)
            yield serializer.dumps((task, message))  # type: ignore[no-untyped-call]

    keyed = [source.mapPartitionsWithIndex(records, preservesPartitioning=True) for source in sources]
    for rdd in keyed:
        # The records are serialized already: task and message alternate.
        rdd._bypass_serializer = True  # type: ignore[attr-defined]
    sent = [rdd._jrdd for rdd in keyed]
    if from_driver:
        groups = [list(records(0, [message])) for message in from_driver]
        sent.append(_parallelize(context, groups, keyed[0]._jrdd_deserializer))
    jvm = _jvm(context)
    pairs = [jvm.PairwiseRDD(rdd.rdd()).asJavaPairRDD() for rdd in sent]
    shuffled = reduce(lambda one, other: one.union(other), pairs).partitionBy(jvm.PythonPartitioner(tasks, 0))
    return RDD(jvm.PythonRDD.valueOfPair(shuffled), context, serializer)


def _parallelize(context: SparkContext, groups: Sequence[Sequence[bytes]], serializer: Any) -> Any:
    """Groups of records as an RDD of the JVM, without a Python worker; a group stays in one partition.

    All groups are of the same length, and the serializer leaves their records as they are. The rest is what
    ``SparkContext.parallelize`` does.
    """
    size = sum(len(record) for group in groups for record in group)
    # Spark cuts the records into parts of the same length: a group is not cut if the parts are whole groups.
    parts = min(len(groups), 1 + size // _DRIVER_TASK_BYTES)
    while len(groups) % parts:
        parts += 1
    jvm = _jvm(context)
    return context._serialize_to_jvm(
        (record for group in groups for record in group),
        serializer,
        lambda path: jvm.PythonRDD.readRDDFromFile(context._jsc, path, parts),
        lambda: jvm.PythonParallelizeServer(context._jsc.sc(), parts),
    )


def _jvm(context: SparkContext) -> Any:
    if context._jvm is None:
        raise InternalError("a query must have a running Spark context", got="none")
    return context._jvm

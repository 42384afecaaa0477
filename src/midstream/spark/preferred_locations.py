"""RDDs whose partitions Spark prefers to compute at given places.

Spark takes preferences only for an RDD of values of the driver. Of its operators that bring two RDDs
together, the Cartesian product needs no function of the JVM, and passes records on one by one: with one value
in each partition of the one RDD it has the records of the other as they are, and prefers the places of the
values. Of the product of all partitions with all, some are wanted, one for each partition of the other RDD.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeVar

from pyspark import RDD

from midstream.errors import InternalError

T = TypeVar("T")


def with_preferred_locations(rdd: RDD[T], places: Sequence[Sequence[str]]) -> RDD[T]:
    """The same partitions, each with places that Spark prefers: hosts, or executors as ``executor_HOST_ID``.

    What a partition is computed from within its stage is computed there too. Those without places are where
    Spark likes. The RDD must be one of the driver's values, or what ``spark/shuffle.py`` returns: sources of
    the JVM may have preferences themselves, which would be added; and what functions of Python have computed
    would go through the JVM on its way to others. It costs least if neighbours have the same places.
    """
    context, source = rdd.context, rdd._jrdd
    partitions = source.getNumPartitions()
    if len(places) != partitions:
        raise InternalError("every partition must have its places", got=f"{len(places)} of {partitions}")
    jvm: Any = context._jvm
    sequence, values, wanted = jvm.PythonUtils.toSeq, [], jvm.scala.collection.immutable.HashSet()
    begin = 0
    for number, (at, run) in enumerate(groupby(map(tuple, places))):
        end = begin + len(list(run))
        values.append(jvm.scala.Tuple2(number, sequence(list(at))))
        # The product has all partitions of the RDD for the first value, then all for the second.
        first, last = number * partitions + begin, number * partitions + end
        wanted = wanted.union(jvm.scala.collection.immutable.Range.Exclusive(first, last, 1).toSet())
        begin = end
    placed = context._jsc.sc().makeRDD(sequence(values), jvm.scala.reflect.ClassTag.AnyRef()).toJavaRDD()
    product = placed.cartesian(source)
    pruned = jvm.org.apache.spark.rdd.PartitionPruningRDD.create(product.rdd(), wanted)
    pairs = jvm.org.apache.spark.api.java.JavaPairRDD(pruned, product.kClassTag(), product.vClassTag())
    return RDD(jvm.PythonRDD.valueOfPair(pairs), context, rdd._jrdd_deserializer)

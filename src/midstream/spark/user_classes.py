"""Classes of user-defined aggregates, which Spark has to send to its workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark import SparkContext

from midstream.errors import QueryError
from midstream.query.query import Query


def check_user_classes(context: SparkContext, query: Query) -> None:
    """Refuse a class that cannot be sent: the first batch would end with a long error of Spark's."""
    aggregates = query.aggregation.aggregates if query.aggregation is not None else ()
    for user_class in {each.user_class: None for each in aggregates if each.user_class is not None}:
        try:
            # No job runs: PySpark makes the bytes of a function when asked for what is behind the RDD.
            _ = context.parallelize([], 1).mapPartitions(_with(user_class))._jrdd
        except Exception as error:  # whatever the objects of the user raise
            reason = " ".join(str(error).rpartition("Could not serialize object: ")[2].split())
            raise QueryError(
                "the class of an aggregate must be one that can be copied to Spark's workers",
                got=f"{user_class.__name__}, with {reason}",
                hint="let its methods make what cannot be copied, such as locks and connections",
            ) from None


def _with(user_class: type) -> Callable[[Iterable[int]], Iterable[object]]:
    """A function that needs the class."""
    return lambda _rows: (user_class,)

"""Refusing DataFrames that have state of Spark's own.

Spark drops rows that come after the watermark of a stateful operator, and nobody would count them: results
would be missing that a batch join has. Operators without state, and a join with a static table, work row by
row and lose nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from midstream.errors import QueryError
from midstream.spark.logical_plan import elements, kind_of, nodes_of

_UNIQUE = "join all rows, and drop duplicates of the results: in foreachBatch, or where they are read"
_OWN_QUERY = "let a query of its own write that to a folder, and join a stream of the folder"
_LIMIT = "leave it out; how many rows a batch has is an option of the source, e.g. maxFilesPerTrigger"
_JOIN = "add both of its streams to this join, with .stream(...)"


@dataclass(frozen=True)
class _Operator:
    """A stateful operator, as users write it, and what to do instead."""

    shown: str
    hint: str


_OPERATORS: dict[str, _Operator] = {
    "Deduplicate": _Operator("dropDuplicates or distinct", _UNIQUE),
    "DeduplicateWithinWatermark": _Operator("dropDuplicatesWithinWatermark", _UNIQUE),
    "Distinct": _Operator("DISTINCT", _UNIQUE),
    "Intersect": _Operator("intersect", _UNIQUE),
    "Except": _Operator("subtract or exceptAll", _UNIQUE),
    "Aggregate": _Operator("an aggregation", _OWN_QUERY),
    "Window": _Operator("a window function", _OWN_QUERY),
    "Sort": _Operator("a sort", "leave it out: rows are joined in any order"),
    "GlobalLimit": _Operator("limit", _LIMIT),
    "LocalLimit": _Operator("limit", _LIMIT),
    "Offset": _Operator("offset", _LIMIT),
    "Tail": _Operator("tail", _LIMIT),
    "FlatMapGroupsWithState": _Operator("a function with state", _OWN_QUERY),
    "FlatMapGroupsInPandasWithState": _Operator("applyInPandasWithState", _OWN_QUERY),
    "TransformWithState": _Operator("transformWithState", _OWN_QUERY),
    "TransformWithStateInPySpark": _Operator("transformWithState", _OWN_QUERY),
}
"""By the node of Spark's plan that an operator becomes. It has state if its input is a stream."""
_STREAM_JOIN = _Operator("a join of two streams", _JOIN)


def check_stateless(stream: str, df: DataFrame) -> None:
    """Refuse a DataFrame of which Spark would keep state, and by that lose rows."""
    for node in nodes_of(df):
        operator = _stateful_operator(node)
        if operator is not None:
            raise QueryError(
                f"stream {stream!r} must have no state of Spark's own, by which late rows are lost",
                got=operator.shown,
                hint=operator.hint,
            )


def _stateful_operator(node: Any) -> _Operator | None:
    if not node.isStreaming():
        return None
    operator = _OPERATORS.get(kind_of(node))
    if operator is not None:
        return operator
    joins = kind_of(node) == "Join" and all(side.isStreaming() for side in elements(node.children()))
    return _STREAM_JOIN if joins else None

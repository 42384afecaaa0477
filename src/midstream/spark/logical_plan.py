"""Walking through Spark's plan of a DataFrame.

The nodes are objects of the JVM. What is asked of them here, their class and their children, is what Spark
offers to those who extend it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame

WATERMARK_NODE = "EventTimeWatermark"
"""The node of Spark's plans that declares a watermark; its rows are those of its child."""

_FILES = "StreamingRelation"
"""The node that reads a stream of files."""

_STREAMS = (_FILES, "StreamingRelationV2")
"""The nodes that read streams, of the two interfaces that Spark's sources have."""


def nodes_of(df: DataFrame) -> Iterator[Any]:
    """The nodes of the plan of a DataFrame."""
    return nodes_below(df._jdf.queryExecution().analyzed())


def nodes_below(plan: Any) -> Iterator[Any]:
    """The nodes of a plan, from the top; what is read first comes first."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(list(elements(node.children())))


def is_source(node: Any) -> bool:
    """Whether a node reads a stream."""
    return kind_of(node) in _STREAMS


def source_folders(frames: Mapping[str, DataFrame]) -> dict[str, list[str]]:
    """The local folders that each stream reads files from."""
    return {
        name: [folder for node in nodes_of(df) if kind_of(node) == _FILES for folder in _folders(node)]
        for name, df in frames.items()
    }


def _folders(relation: Any) -> Iterator[str]:
    given = relation.dataSource().options().get("path")
    if given.isDefined():
        url = urlsplit(str(given.get()))
        if url.scheme in ("", "file"):
            yield unquote(url.path) if url.scheme else str(given.get())


def kind_of(node: Any) -> str:
    """What kind of node it is: the name of its class."""
    return str(node.getClass().getSimpleName())


def elements(sequence: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala's."""
    return (sequence.apply(i) for i in range(sequence.size()))

"""What stands for Spark where a query is described and not started."""

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from midstream.spark.join import Join
from midstream.spark.writer import JoinStreamWriter
from tests.helpers import make_query, make_stream


class _Settings:
    """The settings of a session that has none of its own."""

    def get(self, key: str, default: str | None = "snappy") -> str | None:
        return default


class _Context:
    """Stands for what Spark runs in."""

    _jsc: object = "is there"


class _Session:
    """Stands for Spark, which is not needed before a query starts."""

    sparkContext = _Context()  # noqa: N815  # Spark's name
    conf = _Settings()


def new_writer() -> JoinStreamWriter:
    return JoinStreamWriter(_Session(), make_query("ab", ["a.i = b.i"]), dict.fromkeys("ab"))  # type: ignore[arg-type]


class SessionByType(SparkSession):
    """Stands for Spark where only its type is asked for."""

    def __init__(self) -> None:
        self._sc: Any = _Context()

    @property
    def conf(self) -> Any:
        return _Settings()


class FrameOfConnect(DataFrame):
    """Stands for a DataFrame that is not of a classic session."""

    def __new__(cls) -> "FrameOfConnect":
        return object.__new__(cls)


def new_join() -> Join:
    return Join(SessionByType())


def join_of_two(**more: Any) -> Join:
    """A join of two streams, which has everything but DataFrames."""
    streams = tuple(make_stream(name) for name in "ab")
    return Join(SessionByType(), _streams=streams, _frames=dict.fromkeys("ab"), **more)  # type: ignore[arg-type]


def stream_schema() -> pa.Schema:
    return make_stream("a").schema

"""Mistakes that users make, some four hundred of them: every message is in their words."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.user_function import udaf
from midstream.aggregate.window import Window, window
from midstream.cli.main import app
from midstream.errors import CheckpointError, MidstreamError, OptionError, QueryError
from midstream.inline import InlineJoin
from midstream.plan.tree import parse_plan
from midstream.protocol.settings import check_same_definition
from midstream.query.build import build_query
from midstream.query.stream import check_name, resolve_path
from midstream.spark.failures import readable_error
from midstream.spark.join import Join
from midstream.spark.join_arguments import name_parts
from midstream.spark.options import OPTIONS, QueryOptions
from midstream.spark.worker_packages import Worker, check_versions, readable_failure
from midstream.spark.writer import JoinStreamWriter
from midstream.storage.checkpoint_folder import check_not_foreign, explain_unusable
from midstream.storage.fsck import check as fsck
from midstream.storage.lease import seize_lease
from midstream.storage.local import LocalStore
from midstream.storage.memory_store import MemoryStore
from midstream.storage.output_table import OutputTable
from midstream.values import duration
from tests.golden.case import EPOCHS, QUERY, SETTINGS
from tests.helpers import COLUMNS, make_query, make_stream, small_query
from tests.messages import assert_plain

_PREDICATES = """
a.x|a.i =|a.i = = b.i|a.i == b|i = b.i|z.i = b.i|a.q = b.i|a.s.q = b.i|a.i.q = b.i|a.arr.q = b.i
a.s = b.s|a.arr = b.arr|a.i = b.n|a.d = b.n|a.t = b.n|a.t < b.day|a.t = b.i|a.f = b.i|a.s.k = b.n
a.i + b.i|a.i + b.n > 3|a.n + b.n = 'x'|a.i AND b.i|a.n|a.t - b.t|a.d|NOT (a.i)|lower(a.i) = b.n
sqrt(a.n) = b.x|abs(a.n) > b.i|-a.n > b.i|a.i LIKE 'x'|a.n LIKE b.n|foo(a.i, b.i)|foo(a.i) = b.i
my_udf(a.i, b.i) > 3|concat(a.n, b.n) = 'x'|cast(a.i as string) = b.n|a.i::string = b.n|a.n RLIKE b.n
a.n ILIKE 'x' OR b.f|a.i IN (SELECT 1)|EXISTS (SELECT 1)|(SELECT max(x) FROM t) = a.i|SELECT 1
a.i = b.i; DROP TABLE x|DROP TABLE x|a.arr[0] = b.i|array_contains(a.arr, b.i)|a.s.k > b.arr
explode(a.arr) = b.i|a.i = b.i WHERE 1|count(a.i) > b.i|sum(a.i) OVER () > b.i|x -> x + 1|a.* = b.i|*
transform(a.arr, x -> x) = b.arr|map(1, a.i) = b.i|named_struct('x', a.i) = b.s|a.i = :p|a.i = ?
a.b LIKE 'x' OR b.f|a.i = 99999999999999999999|a.i = 1.5L AND b.i > 1|a.i > 1|1 = 1|true|null|'x'
a.i = a.l|a.t < '2026-01-01' OR b.f|a.t < DATE '2024-13-01' OR b.f|a.t < TIMESTAMP 'yesterday' OR b.f
a.t < b.t + INTERVAL 1 MONTH|a.t - b.t < 5|a.t < b.t + INTERVAL '3:60' MINUTE TO SECOND
a.t < b.t + INTERVAL '1-2' YEAR TO MONTH|a.t < b.t + INTERVAL 5 APPLES|a.t < b.t + INTERVAL 'x' SECOND
a.t < b.t + INTERVAL a.i SECONDS|a.t < b.t + INTERVAL 999999999999999 DAYS
a.t < b.t + INTERVAL '1 day 2'|a.t < b.t + INTERVAL '' DAY|a.t < b.t + 5|a.day + 1 > b.day|a.d / b.d > 1
a.day + INTERVAL 1 DAY > b.t|a.d % b.i = 0|a.i BETWEEN b.n AND b.i|coalesce(a.i, b.n) = 1|a.i IN (b.n)
a.i IN ()|CASE WHEN a.i THEN b.i END = 1|CASE WHEN a.f THEN b.i ELSE 'x' END = 1|if(a.i, b.i, 1) = 1
`a.i` = b.i|a.b = b.n|a.odd name = b.i|a.b.c.d = b.i|a.order = b.i|a.i = b.i AND|(a.i = b.i|a.i = b.i)
'unclosed|a.i = "x|a.i @ b.i|a.i & b.i = 1|a.i DIV b.i > 1|current_timestamp() > a.t|now() > b.t
to_date(a.n) = b.day|rand() > a.x|X'1F' = a.b OR b.f|a.n IS DISTINCT FROM b.n|a.i IS b.i
a.f IS TRUE OR b.i|a.n COLLATE UNICODE = b.n|a.i = ANY (b.arr)|a.i = b.i AS x|/* x|
"""
PREDICATES = _PREDICATES.strip().replace("\n", "|").split("|")
SELECTS: list[Any] = [
    "",
    "a",
    "a.q",
    "z.i",
    "a.i +",
    "a.i + 1",
    "*",
    "z.*",
    "a.s.*",
    "count(a.i)",
    "a.i, b.i",
    3,
    None,
    "a.*AS x",
    "SELECT 1",
    "lower(a.n) AS n",
    "a.i; a.l",
]
DURATIONS: list[Any] = [
    "",
    "5",
    "soon",
    "5 apples",
    "-5 seconds",
    "1 month",
    5,
    None,
    ["5 s"],
    timedelta(seconds=-1),
    timedelta(days=99_999_999),
    "99999999999999999999 days",
    "5 seconds and more",
]
PLANS: list[Any] = [
    "",
    "a",
    "a b",
    "(a b",
    "a b) c",
    "a b c d",
    "a a b c",
    "a, b, c",
    "()",
    "((a b) c) ()",
    "a -> b",
    5,
    None,
]
STREAMS: list[Any] = ["", "a b", "1a", "A", None, 3, "ä", "a.b"]


def _mistakes() -> dict[str, Callable[[], object]]:
    """Everything that can be got wrong without any file or Spark, by a name."""
    mistakes: dict[str, Callable[[], object]] = {}
    for predicate in PREDICATES:
        mistakes[f"on {predicate}"] = partial(make_query, "ab", ["a.i = b.i", predicate])
    for item in SELECTS:
        mistakes[f"select {item}"] = partial(make_query, "ab", ["a.i = b.i"], select=[item])
    for text in DURATIONS:
        mistakes[f"duration {text}"] = partial(duration, text, "a window")
    for plan in PLANS:
        mistakes[f"plan {plan}"] = partial(parse_plan, plan, "abc")
    for name in STREAMS:
        mistakes[f"stream {name}"] = partial(check_name, name, ["a"])
    for option in OPTIONS:
        words = [] if option.name in ("path", "checkpointLocation", "lateRows") else ["no such thing", -1]
        for value in (None, "", [1], "hdfs://host/x", "a\0b", *words):
            if option.name != "plan" or value in (None, ""):
                set_option = partial(QueryOptions().with_option, option.name, value)
                mistakes[f"option {option.name} {value}"] = set_option
    return {**mistakes, **_OTHERS, **_IN_WRITERS, **_IN_MIGRATIONS}


def _join(**more) -> InlineJoin:
    return InlineJoin(small_query(["a.k = b.k", "b.k = c.k"], "abc", **more), "(a b) c")


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


def _writer() -> JoinStreamWriter:
    return JoinStreamWriter(_Session(), make_query("ab", ["a.i = b.i"]), dict.fromkeys("ab"))  # type: ignore[arg-type]


class _SparkSession(SparkSession):
    """Stands for Spark where only its type is asked for."""

    def __init__(self) -> None:
        self._sc: Any = _Context()

    @property
    def conf(self) -> Any:
        return _Settings()


class _Frame(DataFrame):
    """Stands for a DataFrame that is not of a classic session."""

    def __new__(cls) -> "_Frame":
        return object.__new__(cls)


def _new_join() -> Join:
    return Join(_SparkSession())


def _join_of_two(**more: Any) -> Join:
    """A join of two streams, which has everything but DataFrames."""
    streams = tuple(make_stream(name) for name in "ab")
    return Join(_SparkSession(), _streams=streams, _frames=dict.fromkeys("ab"), **more)  # type: ignore[arg-type]


def _group(window: Window, aggregate: str = "count(*) AS n") -> object:
    return read_aggregation(["a.i", window], [aggregate], [make_stream(name) for name in "ab"])


class _Uncomparable:
    """Refuses to be compared, as a Column of Spark's does."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("cannot convert column into bool")

    __hash__ = None  # type: ignore[assignment]  # as with a Column


class _Longest:
    """A user-defined aggregate."""

    def add(self, batch: object) -> None: ...

    def merge(self, other: object) -> None: ...

    def result(self) -> None: ...

    def dump(self) -> bytes:
        return b""

    @classmethod
    def load(cls, state: object) -> "_Longest":
        return cls()


def _struct() -> pa.Schema:
    return make_stream("a").schema


_OTHERS: dict[str, Callable[[], object]] = {
    "no streams": lambda: make_query("", []),
    "one stream": lambda: make_query("a", []),
    "unconnected": lambda: make_query("abc", ["a.i = b.i"]),
    "an equality of expressions": lambda: make_query("ab", ["a.i = b.i + 1"]),
    "equalities of other types": lambda: make_query("abc", ["a.i = b.d", "b.d = c.d", "a.i = c.n"]),
    "nested too deep": lambda: make_query("ab", ["(" * 900 + "a.i > b.i" + ")" * 900]),
    "a predicate that is no text": lambda: make_query("ab", [object()]),  # type: ignore[list-item]
    "two outputs of a name": lambda: make_query("ab", ["a.i = b.i"], select=["a.i AS x", "b.i AS X"]),
    "no such time": lambda: resolve_path("a", _struct(), ("when",)),
    "no such field": lambda: resolve_path("a", _struct(), ("s", "Deep", "x")),
    "a list for a stream": lambda: _new_join().stream("a", [1, 2], time="t"),  # type: ignore[arg-type]
    "a column for a predicate": lambda: _new_join().on(object()),  # type: ignore[arg-type]
    "a window for one": lambda: _new_join().within("5 s", "a"),
    "a window for others": lambda: _new_join().within("5 s", "a", "b"),
    "a window for numbers": lambda: _new_join().within("5 s", 1, 2),  # type: ignore[arg-type]
    "an unknown option": lambda: QueryOptions().with_option("colour", "red"),
    "an option by a number": lambda: QueryOptions().with_option(5, "red"),  # type: ignore[arg-type]
    "a password in an address": lambda: QueryOptions().with_option("path", "s3://me:secret@host/x"),
    "workers without packages": lambda: check_versions(
        [Worker("h", "Python 3.11, /p", {"midstream": None})], {}
    ),
    "workers with another Python": lambda: _raise(
        readable_failure(
            RuntimeError("Python in worker has different version: 3.12 than that in driver: 3.11")
        )
    ),
    "workers without a Python": lambda: _raise(
        readable_failure(RuntimeError('java.io.IOException: Cannot run program "python9": error=2'))
    ),
    "too little memory": lambda: _raise(
        readable_error(RuntimeError("x\npyarrow.lib.ArrowMemoryError: malloc"))
    ),
    "too little memory, no details": lambda: _raise(readable_error(RuntimeError("x\nMemoryError\n"))),
    "a worker that crashed": lambda: _raise(
        readable_error(RuntimeError("E: Python worker exited unexpectedly (crashed). Consider"))
    ),
}
_IN_WRITERS: dict[str, Callable[[], object]] = {
    "another format": lambda: _writer().format("delta"),
    "a format that is no text": lambda: _writer().format(3),  # type: ignore[arg-type]
    "no function": lambda: _writer().foreachBatch("print"),  # type: ignore[arg-type]
    "an object for a function": lambda: _writer().foreachBatch(object()),  # type: ignore[arg-type]
    "another mode": lambda: _writer().outputMode("complete"),
    "updates of results": lambda: _writer().outputMode("update").format("console").start(),
    "no name": lambda: _writer().queryName(""),
    "no trigger": lambda: _writer().trigger(),
    "two triggers": lambda: _writer().trigger(once=True, availableNow=True),
    "no sink": lambda: _writer().start(),
    "two sinks": lambda: _writer().format("console").foreachBatch(print).start(),
    "no path": lambda: _writer().format("parquet").start(),
    "no checkpoint": lambda: _writer().format("parquet").start("out"),
    "no view": lambda: _writer().format("memory").start(),
    "an odd view": lambda: _writer().format("memory").queryName("my view").start(),
    "a sink in a checkpoint on S3": lambda: (
        _writer().format("console").option("checkpointLocation", "s3://bucket/x").start()
    ),
}
_IN_MIGRATIONS: dict[str, Callable[[], object]] = {
    "to no plan": lambda: _join().migrate("a b"),
    "to a number": lambda: _join().migrate(5),  # type: ignore[arg-type]
    "by no strategy": lambda: _join().migrate("a (b c)", "magic"),
    "by an object": lambda: _join().migrate("a (b c)", object()),  # type: ignore[arg-type]
    "with background": lambda: _join().migrate("a (b c)", background="yes"),  # type: ignore[arg-type]
    "with a list": lambda: _join().migrate("a (b c)", background=[]),  # type: ignore[arg-type]
    "without a window": lambda: _join().migrate("a (b c)", "parallel_track"),
    "isolated": lambda: _join().migrate("a (b c)", "moving_state", isolated=True),
    "no listener": lambda: _join().addListener(5),  # type: ignore[arg-type]
}


# Mistakes, and the part of the message that helps.
_HINTS: dict[str, tuple[Callable[[], object], str]] = {
    "no session": (lambda: Join(None), "got None. Hint: write Join(spark)"),  # type: ignore[arg-type]
    "a name for a session": (lambda: Join("x"), "a join must have a classic Spark session; got 'x'"),  # type: ignore[arg-type]
    "no DataFrame": (
        lambda: _new_join().stream("a", None, time="t"),  # type: ignore[arg-type]
        "stream 'a' must be a DataFrame; got None. Hint: read it with spark.readStream",
    ),
    "a table": (
        lambda: _new_join().stream("a", "t1", time="t"),  # type: ignore[arg-type]
        "Hint: read it with spark.readStream.table('t1')",
    ),
    "swapped": (
        lambda: _new_join().stream(_Frame(), "a", time="t"),  # type: ignore[arg-type]
        "got them in the other order. Hint: write .stream('orders', orders, time='at')",
    ),
    "Spark Connect": (
        lambda: _new_join().stream("a", _Frame(), time="t"),
        "got one of Spark Connect. Hint: Spark Connect sessions cannot",
    ),
    "an empty time": (lambda: name_parts("", _struct()), "by its name; got ''. Hint: the columns are t, i"),
    "a dot": (lambda: name_parts(".", _struct()), "by its name; got '.'"),
    "a predicate in a list": (
        lambda: _join_of_two().on(["a.i = b.i"]),
        "Hint: write a predicate without the list: on('a.i = b.i')",
    ),
    "left": (lambda: _new_join().on("a.i = b.i", "left"), "a join must be 'inner'; got 'left'"),
    "left outer": (lambda: _new_join().on("a.i = b.i", "left_outer"), "got 'left_outer'"),
    "an empty predicate": (lambda: _new_join().on(""), "got ''. Hint: write on('a.x = b.y')"),
    "an empty item": (lambda: _new_join().select(["a.x", " "]), "Hint: write select('a.x'"),
    "all": (
        lambda: make_query("ab", ["a.i = b.i"], select=["*"]),
        "got '*'. Hint: leave select out for all columns, or write a.*, b.*",
    ),
    "all by a name": (
        lambda: make_query("ab", ["a.i = b.i"], select=["a.* as x"]),
        "'*' must have no name: it stands for several columns",
    ),
    "or": (
        lambda: make_query("ab", ["a.i = b.i OR a.l = b.l"]),
        "rows meet by plain equalities, and a.i = b.i OR a.l = b.l only filters",
    ),
    "null-safe": (
        lambda: make_query("ab", ["a.i <=> b.i"]),
        "not by <=>: write a.i = b.i; null equals nothing",
    ),
    "never": (
        lambda: QueryOptions().with_option("maxEventTimeAhead", "never"),
        "'1 hour 30 minutes'; or 'off'",
    ),
    "no checkpoint's folder": (
        lambda: QueryOptions().with_option("checkpointLocation", ""),
        "checkpointLocation must be a folder; got ''. Hint: leave the option out",
    ),
    "an empty plan": (lambda: QueryOptions().with_option("plan", " "), "plan must be a plan, such as"),
    "an empty name": (lambda: _writer().queryName(""), "Hint: write .queryName('results')"),
    "a window for three": (lambda: _new_join().within("5 s", "a", "b", "c"), "Hint: write within("),
    "back in time": (lambda: duration(timedelta(-1), "a window"), "Hint: write it without the minus"),
    "a trigger now and then": (
        lambda: _writer().trigger(processingTime="often"),
        "processingTime must be a duration; got 'often'. Hint: write a number and a unit",
    ),
    "a trigger of 5": (
        lambda: _writer().trigger(processingTime=5),  # type: ignore[arg-type]
        "processingTime must be a duration; got 5",
    ),
    "an empty trigger": (lambda: _writer().trigger(processingTime=""), "must be a duration; got ''"),
    "a monthly trigger": (
        lambda: _writer().trigger(processingTime="1 month"),
        "got '1 month'. Hint: months and years have no fixed length: write days or weeks",
    ),
    "a window before the streams": (
        lambda: _new_join().within("5 s", "a", "b"),
        "got 'a', 'b'. Hint: add the streams first, with .stream(",
    ),
    "several items in a text": (
        lambda: make_query("ab", ["a.i = b.i"], select=["a.i, b.i"]),
        "line 1, column 4. Hint: write several as several arguments",
    ),
    "several predicates in a text": (
        lambda: make_query("ab", ["a.i = b.i, a.l = b.l"]),
        "Hint: write several as several arguments, each in quotes of its own",
    ),
    "a predicate that is cut off": (
        lambda: make_query("ab", ["a.i = b.i AND"]),
        "cannot be read at 'AND', line 1, column 13. Hint: write what comes after it",
    ),
    "an open parenthesis": (
        lambda: make_query("ab", ["(a.i = b.i"]),
        "Hint: close each parenthesis that is opened",
    ),
    "a name that is a word of SQL": (lambda: make_query("ab", ["a.odd name = b.i"]), "goes in back-quotes"),
    "a duration in text": (
        lambda: make_query("ab", ["a.i = b.i", "a.t < b.t + '3 minutes'"]),
        "Hint: add or subtract an interval, e.g. INTERVAL 5 MINUTES",
    ),
    "Spark's window": (
        lambda: _group(window(_Uncomparable(), "10 minutes")),  # type: ignore[arg-type]
        "must begin with its length; got a value of type _Uncomparable. "
        "Hint: the time comes last, by its name: window('10 minutes', time='a.t')",
    ),
    "Spark's window of a column's name": (
        lambda: _group(window("t", "10 minutes")),
        "must begin with its length; got 't'. Hint: the time comes last",
    ),
    "a window that is no duration": (
        lambda: _group(window("soon")),
        "a window of results must be a duration; got 'soon'",
    ),
    "an aggregate of aggregates": (
        lambda: _group(window("1 hour"), "sum(a.i) / count(*) AS x"),
        "one function, and then its name; got '/ count(*) AS x' after 'sum(a.i)'. Hint: give each function",
    ),
    "an aggregate of some rows": (
        lambda: _group(window("1 hour"), "count(*) FILTER (WHERE a.i > 3) AS x"),
        "got 'FILTER (WHERE a.i > 3) AS x' after 'count(*)'. Hint: aggregate a column of the Data",
    ),
    "an aggregate without a name": (
        lambda: _group(window("1 hour"), "count(*) AS"),
        "an aggregate must have one name; got 'count(*) AS'. Hint: write 'count(*) AS a_name'",
    ),
    "a sum of text": (
        lambda: _group(window("1 hour"), "sum(a.n) AS x"),
        "of at most 28 digits; got a.n of type string. Hint: cast it, or choose a field",
    ),
    "a sum of two": (
        lambda: _group(window("1 hour"), "sum(a.i, a.l) AS x"),
        "sum must have one argument; got 'sum(a.i, a.l) AS x'. Hint: write an aggregate for each column",
    ),
    "a function without its type": (
        lambda: udaf(_Longest),
        "must be given the type of the results; got the class _Longest itself. "
        "Hint: write @udaf('double') before class _Longest",
    ),
    "a home": (
        lambda: QueryOptions().with_option("path", "~/out"),
        "path must not begin with '~', which is no home here; got '~/out'. Hint: write the",
    ),
    "an option of the source": (
        lambda: QueryOptions().with_option("maxfilespertrigger", 1),
        "Hint: it is for reading: set it where the stream is read, spark.readStream.option('maxFiles",
    ),
    "an option of Kafka's": (
        lambda: QueryOptions().with_option("kafka.bootstrap.servers", "x"),
        "set it where the stream is read, spark.readStream.option('kafka.bootstrap.servers'",
    ),
    "an option of Spark's files": (
        lambda: QueryOptions().with_option("parquet.block.size", 1),
        "Hint: leave it out: Midstream writes the files itself",
    ),
    "a name by an option": (
        lambda: QueryOptions().with_option("queryName", "x"),
        "Hint: write .queryName('results')",
    ),
    "a mode by an option": (
        lambda: QueryOptions().with_option("outputMode", "update"),
        "Hint: write .outputMode('update'), or leave it out: the default is 'append'",
    ),
    "folders by a column": (lambda: _writer().partitionBy(3), "Hint: write .partitionBy('day')"),  # type: ignore[arg-type]
    "an option with a wrong letter": (
        lambda: QueryOptions().with_option("chekpointLocation", "x"),
        "got 'chekpointLocation'. Hint: perhaps you mean checkpointLocation; the options are path",
    ),
    "not once": (lambda: _writer().trigger(once=False), "once must be True; got False. Hint: leave once out"),
    "not now": (lambda: _writer().trigger(availableNow=False), "availableNow must be True; got False"),
    "a continuous trigger": (lambda: _writer().trigger(continuous="1 s"), "got continuous='1 s'"),
    "to None": (lambda: _join().migrate(None), "names and parentheses; got None"),  # type: ignore[arg-type]
    "clusters": (lambda: _writer().clusterBy("i"), "Hint: write .partitionBy('day'), or cluster a table"),
    "a function of one": (
        lambda: _writer().foreachBatch(lambda batch: None),  # type: ignore[arg-type,misc]
        "must have a function of two arguments; got one that takes batch",
    ),
    "a path for a view": (
        lambda: _writer().format("memory").queryName("v").start("out"),
        "path must be used with the parquet sink only; got the memory sink. Hint: leave path out",
    ),
    "a path for a function": (
        lambda: _writer().foreachBatch(print).start("out"),
        "got the foreachBatch sink",
    ),
    "rows to show in files": (
        lambda: _writer().format("parquet").option("numRows", 5).start("out"),
        "numRows must be used with the console sink only",
    ),
    "explain by a number": (
        lambda: _join_of_two(_predicates=("a.i = b.i",)).explanation(5),  # type: ignore[arg-type]
        "True, 'simple' or 'extended'; got 5. Hint: write explain() or",
    ),
    "explain by two": (lambda: _new_join().explain(True, mode="simple"), "got True and 'simple'"),
    **{
        method: (
            partial(getattr, _new_join(), method),
            f"which is not a DataFrame; got {method}. Hint: {hint}",
        )
        for method, hint in {
            "filter": "give a condition over several streams to .on(",
            "where": "give a condition",
            "withColumn": "choose columns with .select(",
            "selectExpr": "choose columns with .select(",
            "join": "add a stream with .stream(",
            "agg": "say of which groups",
            "orderBy": "do it with the results",
            "show": "write it to a sink",
            "trigger": "write .writeStream before it",
            "dropna": "choose columns with .select(",
        }.items()
    },
    **{
        f"{method} of groups": (
            partial(getattr, _join_of_two().groupBy("a.i"), method),
            f"a join that was grouped; got {method}. Hint: {hint}",
        )
        for method, hint in {
            "within": "say first what is computed",
            "explain": "say first what is computed",
            "sum": "name the column and the result",
            "pivot": "do it with the results",
        }.items()
    },
}


@pytest.mark.parametrize("name", _HINTS)
def test_a_mistake_that_newcomers_make_is_told_with_what_to_do(name):
    mistake, told = _HINTS[name]
    with pytest.raises(MidstreamError) as raised:
        mistake()
    assert_plain(raised.value)
    assert told in str(raised.value)


def test_a_session_that_was_stopped_is_named():
    join = _join_of_two(_predicates=("a.i = b.i",))
    assert join.query().names == ("a", "b")
    join.spark._sc._jsc = None  # as Spark does
    with pytest.raises(
        QueryError, match=r"a session that runs; got one that was stopped. Hint: make a new"
    ) as raised:
        _ = join.writeStream
    assert_plain(raised.value)


def test_a_method_that_joins_do_not_have_is_missing_as_python_expects_it():
    join = _new_join()
    assert not hasattr(join, "show")
    assert getattr(join, "colour", None) is None
    with pytest.raises(AttributeError, match="'Join' object has no attribute 'colour'") as raised:
        _ = join.colour  # type: ignore[attr-defined]
    # From these Python makes its "Did you mean".
    assert (raised.value.name, raised.value.obj) == ("colour", join)
    groups = join.groupBy("a.i")
    with pytest.raises(AttributeError, match="'GroupedJoin' object has no attribute 'ag'") as raised:
        _ = groups.ag  # type: ignore[attr-defined]
    assert (raised.value.name, raised.value.obj) == ("ag", groups)
    assert copy(join) == join


class _Saver:
    def save(self, batch: object, batch_id: int, mode: str = "append") -> None: ...

    def __call__(self, batch: object, batch_id: int) -> None: ...


@pytest.mark.parametrize(
    "function", [print, _Saver().save, _Saver(), lambda *batch: None, partial(print, "x"), min]
)
def test_functions_that_take_a_batch_and_its_id_are_taken(function):
    assert repr(_writer().foreachBatch(function)) == "<JoinStreamWriter a, b to foreachBatch>"


def test_what_spark_takes_in_any_case_is_taken_in_any_case():
    writer = _writer().outputMode("Append").format("PARQUET")
    assert repr(writer) == "<JoinStreamWriter a, b to parquet>"
    assert repr(_writer()) == "<JoinStreamWriter a, b to no sink yet>"
    join = _new_join()
    assert join.on("a.x = b.y", "INNER") == join.on("a.x = b.y", how="inner") == join.on("a.x = b.y")
    assert join.select(["a.x", "b.y"], "a.z") == join.select("a.x", "b.y", "a.z")


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("mistake", (mistakes := _mistakes()).values(), ids=mistakes)
def test_a_mistake_is_told_in_the_words_of_whoever_made_it(mistake):
    with pytest.raises(MidstreamError) as raised:
        mistake()
    assert_plain(raised.value)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A checkpoint of a few epochs."""
    folder = tmp_path_factory.mktemp("made")
    query = InlineJoin(QUERY, settings=SETTINGS, store=LocalStore(str(folder)))
    for epoch in EPOCHS[:3]:
        query.run_epoch(epoch)
    query.migrate("a (b c)", "moving_state")
    # So that nobody waits for this process to give the lease back.
    seize_lease(LocalStore(str(folder)), "test").release()
    return folder


@pytest.fixture
def checkpoint(made, tmp_path):
    return shutil.copytree(made, tmp_path / "checkpoint")


def _resume(checkpoint: Path, query=QUERY, settings=SETTINGS) -> None:
    """Continue, and open every slice."""
    InlineJoin(query, settings=settings, store=LocalStore(str(checkpoint))).run_epoch(EPOCHS[3])


NESTED = {**COLUMNS, "s": pa.struct([("k", pa.int32())])}
OTHER_QUERIES = {
    "fewer streams": small_query(["a.k = b.k"]),
    "other columns": small_query(["a.k = b.k", "b.k = c.k"], "abc"),
    "other settings": QUERY,
}


@pytest.mark.parametrize("name", OTHER_QUERIES)
def test_another_query_than_that_of_the_checkpoint(checkpoint, name):
    settings = SETTINGS if name != "other settings" else replace(SETTINGS, groups=SETTINGS.groups + 1)
    with pytest.raises(MidstreamError) as raised:
        _resume(checkpoint, OTHER_QUERIES[name], settings)
    assert_plain(raised.value)


def test_a_nested_column_of_another_type_is_shown_in_the_words_of_spark():
    store = MemoryStore()
    query = build_query([make_stream(n) for n in "ab"], ["a.i = b.i"], select=["a.s"])
    join = InlineJoin(query, store=store)
    join.run_epoch({})
    other = build_query([make_stream(n, NESTED) for n in "ab"], ["a.i = b.i"], select=["a.s"])
    with pytest.raises(CheckpointError) as raised:
        InlineJoin(other, store=store)
    assert_plain(raised.value)
    assert raised.value.must.endswith("streams.a.columns.s was 'struct<k:bigint,Deep:struct<er:string>>'")
    assert raised.value.got == "'struct<k:int>'"


def test_a_checkpoint_whose_nested_types_are_written_in_the_words_of_arrow_still_opens():
    store = MemoryStore()
    query = build_query([make_stream(n) for n in "ab"], ["a.i = b.i"], select=["a.s", "a.arr"])
    join = InlineJoin(query, store=store)
    definition = {**join.manifest.definition}
    earlier = json.loads(
        json.dumps(definition)
        .replace("struct<k:bigint,Deep:struct<er:string>>", str(COLUMNS["s"]))
        .replace("array<bigint>", str(COLUMNS["arr"]))
    )
    assert earlier != definition
    check_same_definition(
        structs.replace(join.manifest, definition=earlier), query, join.coordinator.settings
    )


DAMAGE = {
    "empty": b"",
    "no JSON": b"x" * 50,
    "no text": b"\xff\xfe" * 50,
    "other JSON": b"[]",
    "unsealed": b'{"a": 1}',
    "another digest": b'{"sha256":"0","manifest":{},"intent":{},"publication":{}}',
    "nested": b"[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("folder", ["manifests", "leases", "intents", "published", "requests", "slices"])
def test_files_that_are_damaged(checkpoint, folder, damage):
    files = [path for path in (checkpoint / folder).iterdir() if path.suffix not in (".beat", ".released")]
    if folder == "intents":
        files.append(checkpoint / folder / f"{3:012d}.json")
    for path in files:
        path.write_bytes(DAMAGE[damage])
    try:
        if folder == "leases":
            seize_lease(LocalStore(str(checkpoint)), "test", wait=True)
        _resume(checkpoint)
    except MidstreamError as error:
        assert_plain(error)
    else:
        # An empty note says that all is published; the others are read only if publishing was cut off.
        assert folder == "published", "nobody has noticed"
    for problem in fsck(LocalStore(str(checkpoint))).problems:
        assert problem.what
        assert "Error" not in problem.what


SPARK_CHECKPOINT = ("metadata", "offsets/0", "commits/0", "sources/0/0")


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (SPARK_CHECKPOINT, "the checkpoint of a query of Spark's own (commits, metadata, offsets, sources)"),
        (("notes.txt",), "a folder with other things in it (notes.txt)"),
        (("1.csv", "2.csv", "3.csv", "4.csv"), "(1.csv, 2.csv, 3.csv, ...)"),
        (("manifests/v1.json", "blobs/x"), "a folder with other things in it (blobs, manifests)"),
    ],
)
def test_a_checkpoint_of_somebody_else_is_refused_by_name(tmp_path, files, told):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CheckpointError) as raised:
        check_not_foreign(str(tmp_path), LocalStore(str(tmp_path)))
    assert_plain(raised.value)
    assert told in str(raised.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_checkpoint_inside_of_another_is_refused(checkpoint, tmp_path):
    """The other one would delete its files, which are none of its own."""
    (tmp_path / "link").symlink_to(checkpoint / "slices")
    for folder in (checkpoint / "slices" / "x", tmp_path / "link" / "x" / "y"):
        with pytest.raises(CheckpointError) as raised:
            check_not_foreign(str(folder), LocalStore(str(folder)))
        assert_plain(raised.value)
        assert f"got {folder}, inside of {checkpoint}. Hint: give the join a folder beside" in str(
            raised.value
        )
    moved = shutil.copytree(checkpoint, checkpoint / "inside")
    check_not_foreign(str(moved), LocalStore(str(moved)))  # one that is there already is not taken away


def test_checkpoints_of_joins_and_empty_folders_are_not_refused(checkpoint, tmp_path):
    (tmp_path / "new" / "lost+found").mkdir(parents=True)
    (tmp_path / "new" / ".hidden").touch()
    (tmp_path / "begun" / "temporary").mkdir(parents=True)
    (tmp_path / "leased" / "leases").mkdir(parents=True)
    (tmp_path / "leased" / "leases" / "000000000001.beat").touch()
    for folder in (checkpoint, tmp_path / "none", *(tmp_path / n for n in ("new", "begun", "leased"))):
        check_not_foreign(str(folder), LocalStore(str(folder)))


@pytest.fixture
def read_only(tmp_path) -> Iterator[Path]:
    """A folder on a disk that is mounted for reading only."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounting is not permitted here: {getattr(error, 'stderr', error)}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def _must_be_unusable(location: Path, reason: str) -> None:
    with pytest.raises(CheckpointError) as raised, explain_unusable("x", str(location), CheckpointError):
        seize_lease(LocalStore(str(location)), "test")
    assert_plain(raised.value)
    assert f"got {location}" in str(raised.value)
    assert reason in str(raised.value)


def test_folders_that_cannot_be_used_are_named_with_the_reason(tmp_path, read_only):
    (tmp_path / "file").touch()
    _must_be_unusable(tmp_path / "file", f"where {tmp_path / 'file'} is a file")
    _must_be_unusable(tmp_path / "file" / "below", f"where {tmp_path / 'file'} is a file")
    _must_be_unusable(read_only / "checkpoint", "Read-only file system")
    table = OutputTable(table="results", path=str(read_only / "out"), query="q")
    with pytest.raises(OptionError) as raised, explain_unusable("path", table.path, OptionError):
        table.identified()
    assert_plain(raised.value)


COMMANDS = {
    "fsck": ["fsck", "{none}"],
    "fsck --json": ["fsck", "{none}", "--json"],
    "gc": ["gc", "{none}"],
    "watermark": ["watermark", "{none}"],
    "fsck of something else": ["fsck", "{other}"],
    "fsck of a file": ["fsck", "{other}/file"],
    "a stream without a time": ["watermark", "{made}", "--stream", "a"],
    "a time without a stream": ["watermark", "{made}", "--to", "2026-01-01T00:00:00Z"],
    "no time": ["watermark", "{made}", "--stream", "a", "--to", "yesterday"],
    "no stream": ["watermark", "{made}", "--stream", "z", "--to", "2020-01-01T00:00:00Z"],
    "forward": ["watermark", "{made}", "--stream", "a", "--to", "2030-01-01T00:00:00Z"],
    "too far back": ["watermark", "{made}", "--stream", "a", "--to", "1980-01-01T00:00:00Z"],
    "a folder for the demo": ["demo", "--output", "{other}"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_say_what_is_wrong_in_a_line(checkpoint, tmp_path, name):
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    places = {"none": tmp_path / "none", "other": other, "made": checkpoint}
    arguments = [argument.format(**places) for argument in COMMANDS[name]]
    done = CliRunner().invoke(app, arguments, env={"NO_COLOR": "1", "FORCE_COLOR": None})
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    must, _, rest = done.stderr.removeprefix("error: ").strip().partition("; got ")
    got, _, hint = rest.partition(". Hint: ")
    assert_plain(MidstreamError(must, got=got or None, hint=hint or None))
    missing = name in (
        "fsck",
        "fsck --json",
        "gc",
        "watermark",
        "fsck of something else",
        "fsck of a password",
    )
    assert done.exit_code == (7 if missing else 4 if name == "fsck of a file" else 3)
    if "--json" in arguments:
        told = json.loads(done.stdout)
        assert (told["version"], told["error"]["kind"]) == (1, "NoCheckpointError")
        assert told["error"]["got"] == f"{tmp_path / 'none'}, where there is nothing"


def test_a_checkpoint_without_a_committed_epoch_is_one(tmp_path):
    seize_lease(LocalStore(str(tmp_path)), "test").release()
    done = CliRunner().invoke(app, ["fsck", str(tmp_path)])
    assert (done.exit_code, "no epoch is committed" in done.stdout) == (0, True)

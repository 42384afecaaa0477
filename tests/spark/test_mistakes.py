"""Mistakes in what PySpark programs call: every message is in the words of whoever made it."""

from collections.abc import Callable
from copy import copy
from functools import partial

import pytest

from midstream.errors import QueryError
from midstream.spark.failures import readable_error
from midstream.spark.join import Join
from midstream.spark.join_arguments import name_parts
from midstream.spark.options import OPTIONS, QueryOptions
from midstream.spark.worker_packages import Worker, check_versions, readable_failure
from tests.plain_errors import assert_plain, told_of
from tests.spark.without_spark import FrameOfConnect, join_of_two, new_join, new_writer, stream_schema


def _mistakes() -> dict[str, Callable[[], object]]:
    """Every option with values that none takes, and what else can be got wrong without a session."""
    mistakes: dict[str, Callable[[], object]] = {}
    for option in OPTIONS:
        words = [] if option.name in ("path", "checkpointLocation", "lateRows") else ["no such thing", -1]
        for value in (None, "", [1], "hdfs://host/x", "a\0b", *words):
            if option.name != "plan" or value in (None, ""):
                set_option = partial(QueryOptions().with_option, option.name, value)
                mistakes[f"option {option.name} {value}"] = set_option
    return {**mistakes, **_OTHERS, **_IN_WRITERS}


_OTHERS: dict[str, Callable[[], object]] = {
    "a list for a stream": lambda: new_join().stream("a", [1, 2], time="t"),  # type: ignore[arg-type]
    "a column for a predicate": lambda: new_join().on(object()),  # type: ignore[arg-type]
    "a window for one": lambda: new_join().within("5 s", "a"),
    "a window for others": lambda: new_join().within("5 s", "a", "b"),
    "a window for numbers": lambda: new_join().within("5 s", 1, 2),  # type: ignore[arg-type]
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
    "another format": lambda: new_writer().format("delta"),
    "a format that is no text": lambda: new_writer().format(3),  # type: ignore[arg-type]
    "no function": lambda: new_writer().foreachBatch("print"),  # type: ignore[arg-type]
    "an object for a function": lambda: new_writer().foreachBatch(object()),  # type: ignore[arg-type]
    "another mode": lambda: new_writer().outputMode("complete"),
    "updates of results": lambda: new_writer().outputMode("update").format("console").start(),
    "no name": lambda: new_writer().queryName(""),
    "no trigger": lambda: new_writer().trigger(),
    "two triggers": lambda: new_writer().trigger(once=True, availableNow=True),
    "no sink": lambda: new_writer().start(),
    "two sinks": lambda: new_writer().format("console").foreachBatch(print).start(),
    "no path": lambda: new_writer().format("parquet").start(),
    "no checkpoint": lambda: new_writer().format("parquet").start("out"),
    "no view": lambda: new_writer().format("memory").start(),
    "an odd view": lambda: new_writer().format("memory").queryName("my view").start(),
    "a sink in a checkpoint on S3": lambda: (
        new_writer().format("console").option("checkpointLocation", "s3://bucket/x").start()
    ),
}


# Mistakes, and the part of the message that helps.
_HINTS: dict[str, tuple[Callable[[], object], str]] = {
    "no session": (lambda: Join(None), "got None. Hint: write Join(spark)"),  # type: ignore[arg-type]
    "a name for a session": (lambda: Join("x"), "a join must have a classic Spark session; got 'x'"),  # type: ignore[arg-type]
    "no DataFrame": (
        lambda: new_join().stream("a", None, time="t"),  # type: ignore[arg-type]
        "stream 'a' must be a DataFrame; got None. Hint: read it with spark.readStream",
    ),
    "a table": (
        lambda: new_join().stream("a", "t1", time="t"),  # type: ignore[arg-type]
        "Hint: read it with spark.readStream.table('t1')",
    ),
    "swapped": (
        lambda: new_join().stream(FrameOfConnect(), "a", time="t"),  # type: ignore[arg-type]
        "got them in the other order. Hint: write .stream('orders', orders, time='at')",
    ),
    "Spark Connect": (
        lambda: new_join().stream("a", FrameOfConnect(), time="t"),
        "got one of Spark Connect. Hint: Spark Connect sessions cannot",
    ),
    "an empty time": (
        lambda: name_parts("", stream_schema()),
        "by its name; got ''. Hint: the columns are t, i",
    ),
    "a dot": (lambda: name_parts(".", stream_schema()), "by its name; got '.'"),
    "a predicate in a list": (
        lambda: join_of_two().on(["a.i = b.i"]),
        "Hint: write a predicate without the list: on('a.i = b.i')",
    ),
    "left": (lambda: new_join().on("a.i = b.i", "left"), "a join must be 'inner'; got 'left'"),
    "left outer": (lambda: new_join().on("a.i = b.i", "left_outer"), "got 'left_outer'"),
    "an empty predicate": (lambda: new_join().on(""), "got ''. Hint: write on('a.x = b.y')"),
    "an empty item": (lambda: new_join().select(["a.x", " "]), "Hint: write select('a.x'"),
    "never": (
        lambda: QueryOptions().with_option("maxEventTimeAhead", "never"),
        "'1 hour 30 minutes'; or 'off'",
    ),
    "no checkpoint's folder": (
        lambda: QueryOptions().with_option("checkpointLocation", ""),
        "checkpointLocation must be a folder; got ''. Hint: leave the option out",
    ),
    "an empty plan": (lambda: QueryOptions().with_option("plan", " "), "plan must be a plan, such as"),
    "an empty name": (lambda: new_writer().queryName(""), "Hint: write .queryName('results')"),
    "a window for three": (lambda: new_join().within("5 s", "a", "b", "c"), "Hint: write within("),
    "a trigger now and then": (
        lambda: new_writer().trigger(processingTime="often"),
        "processingTime must be a duration; got 'often'. Hint: write a number and a unit",
    ),
    "a trigger of 5": (
        lambda: new_writer().trigger(processingTime=5),  # type: ignore[arg-type]
        "processingTime must be a duration; got 5",
    ),
    "an empty trigger": (lambda: new_writer().trigger(processingTime=""), "must be a duration; got ''"),
    "a monthly trigger": (
        lambda: new_writer().trigger(processingTime="1 month"),
        "got '1 month'. Hint: months and years have no fixed length: write days or weeks",
    ),
    "a window before the streams": (
        lambda: new_join().within("5 s", "a", "b"),
        "got 'a', 'b'. Hint: add the streams first, with .stream(",
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
    "folders by a column": (lambda: new_writer().partitionBy(3), "Hint: write .partitionBy('day')"),  # type: ignore[arg-type]
    "an option with a wrong letter": (
        lambda: QueryOptions().with_option("chekpointLocation", "x"),
        "got 'chekpointLocation'. Hint: perhaps you mean checkpointLocation; the options are path",
    ),
    "not once": (
        lambda: new_writer().trigger(once=False),
        "once must be True; got False. Hint: leave once out",
    ),
    "not now": (lambda: new_writer().trigger(availableNow=False), "availableNow must be True; got False"),
    "a continuous trigger": (lambda: new_writer().trigger(continuous="1 s"), "got continuous='1 s'"),
    "clusters": (lambda: new_writer().clusterBy("i"), "Hint: write .partitionBy('day'), or cluster a table"),
    "a function of one": (
        lambda: new_writer().foreachBatch(lambda batch: None),  # type: ignore[arg-type,misc]
        "must have a function of two arguments; got one that takes batch",
    ),
    "a path for a view": (
        lambda: new_writer().format("memory").queryName("v").start("out"),
        "path must be used with the parquet sink only; got the memory sink. Hint: leave path out",
    ),
    "a path for a function": (
        lambda: new_writer().foreachBatch(print).start("out"),
        "got the foreachBatch sink",
    ),
    "rows to show in files": (
        lambda: new_writer().format("parquet").option("numRows", 5).start("out"),
        "numRows must be used with the console sink only",
    ),
    "explain by a number": (
        lambda: join_of_two(_predicates=("a.i = b.i",)).explanation(5),  # type: ignore[arg-type]
        "True, 'simple' or 'extended'; got 5. Hint: write explain() or",
    ),
    "explain by two": (lambda: new_join().explain(True, mode="simple"), "got True and 'simple'"),
    **{
        method: (
            partial(getattr, new_join(), method),
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
            partial(getattr, join_of_two().groupBy("a.i"), method),
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
    assert told in told_of(mistake)


def test_a_session_that_was_stopped_is_named():
    join = join_of_two(_predicates=("a.i = b.i",))
    assert join.query().names == ("a", "b")
    join.spark._sc._jsc = None  # as Spark does
    with pytest.raises(
        QueryError, match=r"a session that runs; got one that was stopped. Hint: make a new"
    ) as raised:
        _ = join.writeStream
    assert_plain(raised.value)


def test_a_method_that_joins_do_not_have_is_missing_as_python_expects_it():
    join = new_join()
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


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("mistake", (mistakes := _mistakes()).values(), ids=mistakes)
def test_a_mistake_is_told_in_the_words_of_whoever_made_it(mistake):
    assert told_of(mistake)

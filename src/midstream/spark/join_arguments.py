"""Arguments of a join's methods, as those who know PySpark write them: taken, or refused at that call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from midstream.aggregate.user_function import UserCall
from midstream.aggregate.window import Window
from midstream.errors import QueryError, show_value
from midstream.query.sql import split_name
from midstream.query.stream import Stream, resolve_path
from midstream.spark.logical_plan import kind_of
from midstream.spark.schema import result_type

_REGROUP = "name all columns in one groupBy; aggregate what was aggregated where the results are read"
Predicate = TypeVar("Predicate")
# Spark's names of joins, without underscores.
_SIDES = ("left", "right", "full")
_JOIN_TYPES = {"inner", "cross", "outer", "semi", "anti", "leftsemi", "leftanti", *_SIDES} | {
    f"{side}outer" for side in _SIDES
}


def check_texts(what: str, items: Iterable[object], *, hint: str) -> None:
    """Refuse what is not text. A ``Column`` does not say which stream of the join it is of."""
    for item in items:
        if not isinstance(item, str) or not item.strip():
            raise QueryError(f"{what} must be text", got=_show(item), hint=hint)


def check_groups(groups: Iterable[object], *, selected: bool, grouped: bool) -> tuple[str | Window, ...]:
    """What results are grouped by: texts of columns, and windows, also in lists."""
    if grouped:
        raise QueryError("results must be grouped once", got="groupBy twice", hint=_REGROUP)
    if selected:
        hint = "leave out select: the results have the columns of groupBy and agg"
        raise QueryError("results that are grouped must not be selected from", got="select", hint=hint)
    items: list[Any] = [item for group in groups for item in (group if isinstance(group, list) else [group])]
    check_texts(
        "what results are grouped by",
        [item for item in items if not isinstance(item, Window)],
        hint="write groupBy('orders.region', window('10 minutes')), with the window of midstream",
    )
    return tuple(items)


def check_aggregates(items: Iterable[object]) -> tuple[str | UserCall, ...]:
    """What is computed of groups: texts, and user-defined aggregates, with their types in Arrow's words."""
    given: list[Any] = list(items)
    check_texts(
        "an aggregate",
        [item for item in given if not isinstance(item, UserCall)],
        hint="write agg('count(*) AS n', 'sum(payments.amount) AS total'), or call what udaf has made",
    )
    return tuple(_with_type(item) if isinstance(item, UserCall) else item for item in given)


def _with_type(call: UserCall) -> UserCall:
    function = call.function
    return replace(call, function=replace(function, type=result_type(function.name, function.type)))


def check_not_grouped(grouped: bool) -> None:
    """Refuse to select from results that are grouped."""
    if grouped:
        hint = "leave out select: the results have the columns of groupBy and agg"
        raise QueryError("results that are grouped must not be selected from", got="select", hint=hint)


def check_session(spark: object) -> None:
    """Refuse what is not a session that runs in this process."""
    if not isinstance(spark, SparkSession):
        raise QueryError(
            "a join must have a classic Spark session",
            got=show_value(spark),
            hint="write Join(spark), where spark = SparkSession.builder.getOrCreate(); a session of Spark "
            "Connect cannot run foreachBatch in this process",
        )


def check_session_runs(spark: SparkSession) -> None:
    """Refuse a session that was stopped, which a notebook may still have."""
    if not session_runs(spark):
        raise QueryError(
            "a join must have a session that runs",
            got="one that was stopped",
            hint="make a new one with SparkSession.builder.getOrCreate(), then the DataFrames and the join",
        )


def session_runs(spark: SparkSession) -> bool:
    """Whether a session was not stopped yet."""
    return spark.sparkContext._jsc is not None


NO_FRAME: Any = object()
"""What stands for a DataFrame that was left out."""


def check_frame(name: object, df: object) -> None:
    """Refuse what is not a streaming DataFrame of a session that runs in this process."""
    if isinstance(name, DataFrame) or df is NO_FRAME:
        got = "them in the other order" if isinstance(df, str) else "a DataFrame for its name"
        raise QueryError(
            "a stream must have a name, and then a DataFrame",
            got=got if isinstance(name, DataFrame) else "no DataFrame",
            hint="write .stream('orders', orders, time='at')",
        )
    if not isinstance(df, ClassicDataFrame):
        is_connect = isinstance(df, DataFrame)
        kind = " of a classic Spark session" if is_connect else ""
        read = f"spark.readStream.table({df!r})" if isinstance(df, str) and df.strip() else "spark.readStream"
        raise QueryError(
            f"stream {name!r} must be a DataFrame{kind}"
            if isinstance(name, str)
            else "a stream must be a DataFrame",
            got="one of Spark Connect" if is_connect else _show_no_frame(df),
            hint="Spark Connect sessions cannot run foreachBatch in this process; use a classic one"
            if is_connect
            else f"read it with {read}",
        )
    if not df.isStreaming:
        raise QueryError(
            f"stream {name!r} must be a streaming DataFrame",
            got="a static one",
            hint="read it with spark.readStream",
        )


def _show_no_frame(value: object) -> str:
    """What was given instead of a DataFrame of Spark; other libraries have types of that name."""
    kind = type(value)
    of_library = f" of {kind.__module__.partition('.')[0]}" if kind.__name__ == DataFrame.__name__ else ""
    return show_value(value) + of_library


def without_how(predicates: Iterable[Predicate]) -> list[Predicate]:
    """Predicates without a type of the join, which is the second argument of Spark's own ``join``."""
    kept: list[Predicate] = []
    for predicate in predicates:
        if isinstance(predicate, str) and predicate.lower().replace("_", "") in _JOIN_TYPES:
            check_inner(predicate)
        else:
            kept.append(predicate)
    return kept


def check_no_names(predicates: Iterable[str], streams: Sequence[Stream]) -> None:
    """Refuse the name of a column that streams have, as Spark's own ``join`` takes it."""
    for text in predicates:
        if any(text.strip() in stream.schema.names for stream in streams):
            raise QueryError(
                "a predicate must compare columns of several streams",
                got=f"the name of a column, {text.strip()!r}",
                hint=f"for columns of this name to be equal in all streams, write .on([{text.strip()!r}])",
            )


def check_inner(how: str) -> None:
    """Refuse anything but an inner join."""
    if not isinstance(how, str) or how.lower() != "inner":
        raise QueryError(
            "a join must be 'inner'",
            got=show_value(how),
            hint="outer joins are not there yet; for all combinations of rows write .cross()",
        )


def equalities(names: Sequence[str], streams: Sequence[Stream]) -> list[str]:
    """Predicates that make columns of some names equal in all streams, as a list of names in Spark's join."""
    check_texts("the name of a column", names, hint="write on(['id']), or on('a.x = b.y')")
    if len(streams) < 2:
        raise QueryError(
            "a list of columns must come after the streams that have them",
            got=f"{list(names)} after {len(streams)} of them",
            hint="call .stream(...) first, or write on('a.x = b.y')",
        )
    texts: list[str] = []
    for name in names:
        if set(name) & set("=<>") and all(name not in stream.schema.names for stream in streams):
            raise QueryError(
                "a list must have names of columns that all streams have",
                got=repr(name),
                hint=f"write a predicate without the list: on({name!r})",
            )
        first, *others = (resolve_path(s.name, s.schema, name_parts(name, s.schema)) for s in streams)
        texts += [f"{first} = {other}" for other in others]
    return texts


def name_parts(column: str | Column, schema: pa.Schema) -> tuple[str, ...]:
    """The name of a column, or of a field inside one, by its text or by a ``Column`` that is just a name."""
    if isinstance(column, str):
        parts = (column,) if column in schema.names else split_name(column)
    else:
        parts = _column_parts(column) if isinstance(column, ClassicColumn) else ()
    if parts:
        return parts
    raise QueryError(
        "a column must be given by its name",
        got=_show(column),
        hint=f"the columns are {', '.join(schema.names)}"
        if isinstance(column, str)
        else "add what is computed to the DataFrame, with withColumn, and give the name",
    )


def _column_parts(column: ClassicColumn) -> tuple[str, ...]:
    """The name of a ``Column`` that is just a column: ``F.col("at")``, ``df.at`` or ``df["at"]``."""
    node = column._jc.node()
    if kind_of(node) == "UnresolvedAttribute":
        return tuple(node.nameParts().mkString("\0").split("\0"))
    if kind_of(node) == "ExpressionColumnNode" and kind_of(node.expression()) == "AttributeReference":
        return (str(node.expression().name()),)
    return ()


def _show(item: object) -> str:
    """What a user gave; a ``Column`` says itself what it is."""
    return repr(item) if isinstance(item, Column) else show_value(item)

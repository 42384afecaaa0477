"""Methods of DataFrames that a join does not have: what to write instead.

A join is not a DataFrame: its results exist only where they are written.
"""

from __future__ import annotations

from midstream.errors import NoSuchMethodError

_BEFORE = "do it with the DataFrames of the streams, before .stream(...)"
_AFTER = "do it with the results, in a function of foreachBatch or where they are read"
_FILTER = f"give a condition over several streams to .on('a.x < b.y'); on one stream, {_BEFORE}"
_COMPUTE = f"choose columns with .select('a.x AS y'); to compute new ones, {_BEFORE}, or {_AFTER}"
_VIEW = "write it to a view: join.writeStream.format('memory').queryName('results').start()"
_START = "write it to a sink: join.writeStream.format('console').start()"
_KEPT = (
    "leave it out: a join keeps what it needs in its own state, and its results are where they are written"
)
_WRITER = "write .writeStream before it, as in join.writeStream.format('console').start()"


def _each(names: str, hint: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), hint)


_INSTEAD: dict[str, str] = {
    **_each("filter where", _FILTER),
    **_each("withColumn withColumns selectExpr drop withColumnRenamed alias toDF", _COMPUTE),
    **_each("fillna dropna na replace", _COMPUTE),
    **_each("join crossJoin union unionByName", "add a stream with .stream(name, df, time=...)"),
    "agg": "say of which groups: join.groupBy('orders.region', window('10 minutes')).agg(...)",
    **_each("rollup cube distinct dropDuplicates orderBy sort limit count sample", _AFTER),
    **_each("intersect subtract exceptAll", _AFTER),
    **_each("withWatermark repartition coalesce hint transform", _BEFORE),
    **_each("cache persist unpersist checkpoint localCheckpoint", _KEPT),
    **_each("show collect toPandas toArrow take first head tail isEmpty", _START),
    **_each("write writeTo foreach rdd", _START),
    **_each("format option options trigger outputMode queryName foreachBatch toTable", _WRITER),
    "start": "say where the results go: join.writeStream.format('console').start()",
    **_each("createTempView createOrReplaceTempView", _VIEW),
}

_BATCH = "foreachBatch(lambda rows, id: rows.write.mode('append').{}(...))"
_INSTEAD_OF_WRITER: dict[str, str] = {
    **{name: f"write .{_BATCH.format('saveAsTable')}" for name in ("table", "saveAsTable")},
    **{
        name: f"write .{_BATCH.format(name)}" for name in ("insertInto", "jdbc", "orc", "text", "json", "csv")
    },
    "parquet": "write .format('parquet').option('path', ...).start()",
    "save": "write .start(path)",
    "mode": "leave it out: results are appended",
    "sortBy": _AFTER,
    "bucketBy": _AFTER,
    **_each("select on within groupBy stream cross", "say it of the join, before .writeStream"),
    **_each("awaitTermination stop processAllAvailable", "start the query first: query = writer.start()"),
}

_AGG_FIRST = "say first what is computed of each group: .agg('count(*) AS n')"
_INSTEAD_OF_GROUPS: dict[str, str] = {
    **{
        name: f"name the column and the result: .agg('{name}(payments.amount) AS a_name')"
        for name in ("sum", "avg", "mean", "min", "max")
    },
    **_each("pivot apply applyInPandas applyInArrow", _AFTER),
    **dict.fromkeys(_INSTEAD, _AGG_FIRST),
    **_each("writeStream select stream on within cross query", _AGG_FIRST),
    **_each("explain explanation schema printSchema columns dtypes", _AGG_FIRST),
}


def missing_attribute(name: str, join: object) -> AttributeError:
    """The error for an attribute that a join does not have."""
    hint = _INSTEAD.get(name)
    if hint is None:
        # Given the object, Python says which attribute may have been meant.
        return AttributeError(f"'Join' object has no attribute {name!r}", name=name, obj=join)
    return NoSuchMethodError("a method must be one of a join, which is not a DataFrame", got=name, hint=hint)


def missing_attribute_of_groups(name: str, groups: object) -> AttributeError:
    """The error for an attribute that a join which was grouped does not have."""
    hint = _INSTEAD_OF_GROUPS.get(name)
    if hint is None:
        return AttributeError(f"'GroupedJoin' object has no attribute {name!r}", name=name, obj=groups)
    return NoSuchMethodError("a method must be one of a join that was grouped", got=name, hint=hint)


def missing_attribute_of_writer(name: str, writer: object) -> AttributeError:
    """The error for an attribute that the writer of a join does not have."""
    hint = _INSTEAD_OF_WRITER.get(name)
    if hint is None:
        return AttributeError(f"'JoinStreamWriter' object has no attribute {name!r}", name=name, obj=writer)
    return NoSuchMethodError("a method must be one of the writer of a join", got=name, hint=hint)

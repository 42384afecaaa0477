"""The table of sinks: what each requires of a query's options, and how it is built.

A sink is added by an entry here and a class in :mod:`midstream.spark.sinks`. No other module knows which
sinks there are.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import SparkSession

from midstream.errors import OptionError, show_value
from midstream.query.types import show_type
from midstream.spark.options import QueryOptions
from midstream.spark.output_tables import QueryTables
from midstream.spark.session_defaults import PARQUET_SETTINGS
from midstream.spark.sinks import BatchFunction, ForeachBatchSink, MemorySink, ParquetSink, Sink, show_batch
from midstream.storage.partition_folders import can_be_folder
from midstream.storage.remote import is_remote

FOREACH_BATCH = "foreachBatch"
_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, kw_only=True)
class SinkContext:
    """What a sink is built from."""

    spark: SparkSession
    schema: pa.Schema
    """The columns of the results."""
    tables: QueryTables
    options: QueryOptions
    query_name: str | None


@dataclass(frozen=True, kw_only=True)
class SinkFormat:
    """One kind of sink."""

    name: str
    check: Callable[[QueryOptions, str | None], None]
    """Raises if the options, or the name of the query, are not what this sink needs."""
    build: Callable[[SinkContext], Sink]
    """Called once the checkpoint is open, after :attr:`check`."""
    takes_updates: bool = True
    """Whether it can take a group again that has changed."""
    has_folders: bool = False
    """Whether its files may be in folders by the values of columns."""
    session_settings: Mapping[str, Callable[[str], bool]] = field(default_factory=dict)
    """Settings of the session that it does not follow, each with the values that ask for nothing."""


@dataclass(frozen=True)
class SinkRequest:
    """Where the results of a query are to go."""

    format: SinkFormat
    partition_by: tuple[str, ...] = ()

    def partition_columns(self, schema: pa.Schema) -> tuple[str, ...]:
        """The columns of the results that ``partitionBy`` names; an error if there are none such."""
        if self.partition_by and not self.format.has_folders:
            raise OptionError(
                "partitionBy must be used with the parquet sink only",
                got=f"the {self.format.name} sink",
                hint="in a function of foreachBatch, write df.write.partitionBy(...)",
            )
        columns = tuple(_partition_column(name, schema) for name in self.partition_by)
        if len(set(columns)) < len(columns):
            must, hint = "partitionBy must name each column once", "leave the repetition out"
            raise OptionError(must, got=", ".join(columns), hint=hint)
        if columns and len(columns) == len(schema):
            raise OptionError(
                "partitionBy must leave a column for the files",
                got=f"all columns of the results: {', '.join(columns)}",
                hint="leave one column out of partitionBy",
            )
        return columns


def _partition_column(name: str, schema: pa.Schema) -> str:
    matches = [name] if name in schema.names else [n for n in schema.names if n.lower() == name.lower()]
    if len(matches) != 1:
        raise OptionError(
            "partitionBy must name columns of the results",
            got=repr(name),
            hint=f"the columns are {', '.join(schema.names)}",
        )
    kind = schema.field(matches[0]).type
    if not can_be_folder(kind):
        raise OptionError(
            "a column of partitionBy must be text, an integer, a boolean or a date",
            got=f"{matches[0]} of type {show_type(kind)}",
            hint="add one to the DataFrame of a stream, e.g. withColumn('day', to_date('at'))",
        )
    return matches[0]


def check_batch_function(function: object) -> None:
    """Refuse what cannot be called with the results of a batch and its id."""
    if not callable(function):
        got = show_value(function)
    elif _takes_two(function):
        return
    else:
        got = f"one that takes {' and '.join(inspect.signature(function).parameters) or 'none'}"
    raise OptionError(
        "foreachBatch must have a function of two arguments",
        got=got,
        hint="write .foreachBatch(save), where save(batch, batch_id) takes the results of a batch",
    )


def _takes_two(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind(None, 0)
    except TypeError:
        return False
    except ValueError:
        return True  # it does not say what it takes, as some functions of C do not
    return True


def foreach_batch(function: BatchFunction) -> SinkFormat:
    """A function of the user's as a sink. Results reach it through files in the checkpoint."""
    return SinkFormat(
        name=FOREACH_BATCH,
        check=lambda options, _: _check_local_checkpoint(FOREACH_BATCH, options),
        build=lambda context: _foreach_batch_sink(context, function),
    )


def _foreach_batch_sink(context: SinkContext, function: BatchFunction) -> Sink:
    return ForeachBatchSink(context.tables.results_in_checkpoint(), function)


def _check_parquet(options: QueryOptions, _query_name: str | None) -> None:
    _path(options)
    if options.checkpoint_location is None:
        raise OptionError(
            "the parquet sink must have a checkpointLocation",
            got="none",
            hint="write .option('checkpointLocation', folder), or set spark.sql.streaming.checkpointLocation;"
            " without it nothing survives a restart",
        )


def _build_parquet(context: SinkContext) -> Sink:
    return ParquetSink(context.tables.results_in(_path(context.options)))


def _path(options: QueryOptions) -> str:
    if options.path is None:
        hint = "write .option('path', folder)"
        raise OptionError("the parquet sink must have a path", got="none", hint=hint)
    return options.path


def _check_memory(options: QueryOptions, query_name: str | None) -> None:
    _view(query_name)
    _check_local_checkpoint("memory", options)


def _build_memory(context: SinkContext) -> Sink:
    table = context.tables.results_in_checkpoint()
    return MemorySink(table, context.spark, _view(context.query_name), context.schema)


def _view(query_name: str | None) -> str:
    if query_name is None or not _VIEW.match(query_name):
        raise OptionError(
            "the memory sink must have a name that a view can have: letters, digits and underscores",
            got=repr(query_name),
            hint="write .queryName('results')",
        )
    return query_name


def _build_console(context: SinkContext) -> Sink:
    options = context.options
    return _foreach_batch_sink(context, show_batch(options.num_rows, truncate=options.truncate))


def _check_local_checkpoint(sink: str, options: QueryOptions) -> None:
    """Refuse an object store: this sink has files in the checkpoint that Spark reads as a folder."""
    location = options.checkpoint_location
    if location is not None and is_remote(location):
        raise OptionError(
            f"the checkpointLocation of a query with the {sink} sink must be a folder",
            got=location,
            hint="use a folder that all machines of the cluster see",
        )


FORMATS: dict[str, SinkFormat] = {
    sink.name: sink
    for sink in (
        SinkFormat(
            name="parquet",
            check=_check_parquet,
            build=_build_parquet,
            takes_updates=False,
            has_folders=True,
            session_settings=PARQUET_SETTINGS,
        ),
        SinkFormat(name="memory", check=_check_memory, build=_build_memory),
        SinkFormat(
            name="console",
            check=lambda options, _: _check_local_checkpoint("console", options),
            build=_build_console,
        ),
    )
}
"""The sinks that ``format`` takes; a function becomes one by :func:`foreach_batch`."""

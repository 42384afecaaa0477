"""Writing a join: the same calls as Spark's ``DataStreamWriter``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql import DataFrame, SparkSession

from midstream.errors import OptionError, show_value
from midstream.query.query import Query
from midstream.runtime.listeners import Listener, check_listener
from midstream.spark.missing_methods import missing_attribute_of_writer
from midstream.spark.options import QueryOptions
from midstream.spark.output_mode import in_update_mode, reads_as_updates
from midstream.spark.query import JoinStreamingQuery
from midstream.spark.sink_formats import (
    FORMATS,
    SinkFormat,
    SinkRequest,
    check_batch_function,
    foreach_batch,
)
from midstream.spark.start_query import StartRequest, start_query
from midstream.spark.trigger import Trigger, read_trigger


class JoinStreamWriter:
    """Collects where results go and how the query runs. Methods change the writer and return it."""

    def __init__(self, spark: SparkSession, query: Query, frames: dict[str, DataFrame]) -> None:
        self._spark = spark
        self._query = query
        self._frames = frames
        self._format: SinkFormat | None = None
        self._foreach_batch: SinkFormat | None = None
        self._options = QueryOptions()
        self._trigger = Trigger()
        self._name: str | None = None
        self._partition_by: tuple[str, ...] = ()
        self._updates = False
        self._listeners: list[Listener] = []

    def format(self, source: str) -> JoinStreamWriter:
        """Choose the sink: ``parquet``, ``memory`` or ``console``. For your own, see ``foreachBatch``."""
        name = source.lower() if isinstance(source, str) else source  # Spark ignores case, too
        if name not in FORMATS:
            raise OptionError(
                f"the format must be one of {', '.join(FORMATS)}",
                got=show_value(source),
                hint="write any other format with foreachBatch(lambda df, id: df.write...)",
            )
        self._format = FORMATS[name]
        return self

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> JoinStreamWriter:  # noqa: N802
        """Call ``func(df, batch_id)`` with the results of each batch.

        It may be called again for the same batch after a crash, with the same rows and the same id.
        """
        check_batch_function(func)
        self._foreach_batch = foreach_batch(func)
        return self

    def option(self, key: str, value: Any) -> JoinStreamWriter:
        """Set an option; the guide lists them with their defaults."""
        self._options = self._options.with_option(key, value)
        return self

    def options(self, **options: Any) -> JoinStreamWriter:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def partitionBy(self, *cols: str | list[str]) -> JoinStreamWriter:  # noqa: N802  # Spark's name
        """Let the Parquet sink put files into folders by the values of columns: ``day=2026-03-01/``."""
        names = [name for col in cols for name in (col if isinstance(col, list | tuple) else [col])]
        for name in names:
            if not isinstance(name, str):
                raise OptionError(
                    "partitionBy must have names of columns",
                    got=show_value(name),
                    hint="write .partitionBy('day')",
                )
        self._partition_by = tuple(names)
        return self

    def foreach(self, f: object) -> NoReturn:
        """Not there: results come in batches, see ``foreachBatch``."""
        raise _other_sink("foreach", "foreachBatch(lambda rows, id: rows.foreach(function))")

    def toTable(self, tableName: str, *_: object, **__: object) -> NoReturn:  # noqa: N802, N803  # Spark's names
        """Not there: results go to files, or to ``foreachBatch``."""
        table = f"foreachBatch(lambda rows, id: rows.write.mode('append').saveAsTable({tableName!r}))"
        raise _other_sink("toTable", table)

    def clusterBy(self, *_: object) -> NoReturn:  # noqa: N802  # Spark's name
        """Not there: files may be in folders by columns, see ``partitionBy``."""
        raise OptionError(
            "the files of results must be in folders by columns, or in none",
            got="clusterBy",
            hint="write .partitionBy('day'), or cluster a table in a function of foreachBatch",
        )

    def outputMode(self, outputMode: str) -> JoinStreamWriter:  # noqa: N802, N803  # Spark's names
        """Say how what changes comes out: ``append``, the default, or ``update``.

        Results of a join never change. A group of aggregates comes out once in append mode, when it is
        complete, and in update mode with each batch that has changed it, as it then is.
        """
        self._updates = reads_as_updates(outputMode)
        return self

    def queryName(self, queryName: str) -> JoinStreamWriter:  # noqa: N802, N803  # Spark's names
        """Name the query; the memory sink's view has this name."""
        if not isinstance(queryName, str) or not queryName.strip():
            hint = "write .queryName('results'), or leave it out"
            raise OptionError("the name of a query must be text", got=show_value(queryName), hint=hint)
        self._name = queryName
        return self

    def trigger(
        self,
        *given: object,
        processingTime: str | None = None,  # noqa: N803  # Spark's name
        availableNow: bool | None = None,  # noqa: N803  # Spark's name
        once: bool | None = None,
        continuous: str | None = None,
        realTime: str | None = None,  # noqa: N803  # Spark's name
    ) -> JoinStreamWriter:
        """When batches run: every ``processingTime``, or over all input that is available, and then stop."""
        if given:
            interval = given[0] if isinstance(given[0], str) else "10 seconds"
            raise OptionError(
                "a trigger must be given by its name",
                got=", ".join(map(show_value, given)),
                hint=f"write .trigger(processingTime={interval!r})",
            )
        self._trigger = read_trigger(
            processingTime=processingTime,
            availableNow=availableNow,
            once=once,
            continuous=continuous,
            realTime=realTime,
        )
        return self

    def addListener(self, listener: Listener) -> JoinStreamWriter:  # noqa: N802  # Spark's name
        """Call ``listener(event)`` after each epoch, from the very first on.

        That of the running query is the same, but may come after the first epochs.
        """
        check_listener(listener)
        self._listeners.append(listener)
        return self

    def start(
        self,
        path: str | None = None,
        format: str | None = None,  # noqa: A002  # Spark's name
        outputMode: str | None = None,  # noqa: N803  # Spark's name
        partitionBy: str | list[str] | None = None,  # noqa: N803  # Spark's name
        queryName: str | None = None,  # noqa: N803  # Spark's name
        **options: Any,
    ) -> JoinStreamingQuery:
        """Check everything, then start the query in the background.

        The arguments are those of Spark: each is the same as a call of the method of its name, or ``option``.
        """
        given: tuple[tuple[Callable[[Any], object], Any], ...] = (
            (partial(self.option, "path"), path),
            (self.format, format),
            (self.outputMode, outputMode),
            (self.partitionBy, partitionBy),
            (self.queryName, queryName),
        )
        for method, value in given:
            if value is not None:
                method(value)
        self.options(**options)
        sinks = [sink for sink in (self._format, self._foreach_batch) if sink is not None]
        if len(sinks) != 1:
            raise OptionError(
                "the results must go to one sink",
                got=" and ".join(sink.name for sink in sinks) or "none",
                hint="write .format('parquet').option('path', ...) or .foreachBatch(function)",
            )
        request = StartRequest(
            options=self._options,
            sink=SinkRequest(sinks[0], self._partition_by),
            trigger=self._trigger,
            name=self._name,
            listeners=tuple(self._listeners),
        )
        query = in_update_mode(self._query, sinks[0]) if self._updates else self._query
        return start_query(self._spark, query, self._frames, request)

    if not TYPE_CHECKING:  # a type checker must not believe that there are any others

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_attribute_of_writer(name, self)

    def __repr__(self) -> str:
        sink = self._format or self._foreach_batch
        return f"<JoinStreamWriter {', '.join(self._frames)} to {sink.name if sink else 'no sink yet'}>"


def _other_sink(method: str, instead: str) -> OptionError:
    return OptionError(
        f"results must go to {', '.join(FORMATS)} or foreachBatch", got=method, hint=f"write .{instead}"
    )

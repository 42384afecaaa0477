"""Sinks: what happens to the results of an epoch before its commit, and after it.

Tasks stage results as files for every sink. ``prepare`` runs before the commit and may run again for the same
epoch after a crash; ``publish`` runs after it, and again on restart if it was interrupted.

| sink           | prepare                  | publish                       |
| -------------- | ------------------------ | ----------------------------- |
| `parquet`      | nothing                  | rename into the user's folder |
| `memory`       | nothing                  | rename, refresh the view      |
| `foreachBatch` | call the user's function | nothing                       |
| `console`      | print                    | nothing                       |

So the first two deliver results exactly once, the others at least once. Which sinks there are, and what each
requires of the options, is in :mod:`midstream.spark.sink_formats`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from midstream.protocol.coordinator import EPOCHS_KEPT
from midstream.spark.schema import spark_schema
from midstream.state.manifest import OutputFile
from midstream.storage.output_table import OutputTable

BatchFunction = Callable[[DataFrame, int], None]


class Sink(Protocol):
    """Where results go. Called by the driver, between the step and the end of an epoch."""

    table: OutputTable

    def prepare(
        self, session: SparkSession, epoch: int, outputs: Sequence[OutputFile], schema: pa.Schema
    ) -> None:
        """Before the commit: hand results, of this schema, to a receiver that is not a folder of files."""

    def publish(self, epoch: int, outputs: Sequence[OutputFile]) -> None:
        """After the commit: make results visible. May be repeated, always with the same outputs."""


class ParquetSink:
    """A folder of Parquet files."""

    def __init__(self, table: OutputTable) -> None:
        self.table = table

    def prepare(
        self, session: SparkSession, epoch: int, outputs: Sequence[OutputFile], schema: pa.Schema
    ) -> None:
        """Nothing: staged files wait for the commit."""

    def publish(self, epoch: int, outputs: Sequence[OutputFile]) -> None:
        """Rename the staged files to where readers look."""
        self.table.publish(outputs)


class MemorySink:
    """A temporary view over all results so far."""

    def __init__(self, table: OutputTable, spark: SparkSession, view: str, schema: pa.Schema) -> None:
        self.table = table
        self._spark = spark
        self._view = view
        self._schema = spark_schema(schema)
        self._refresh()

    def prepare(
        self, session: SparkSession, epoch: int, outputs: Sequence[OutputFile], schema: pa.Schema
    ) -> None:
        """Nothing: staged files wait for the commit."""

    def publish(self, epoch: int, outputs: Sequence[OutputFile]) -> None:
        """Rename the staged files and let the view see them."""
        self.table.publish(outputs)
        if outputs:
            self._refresh()

    def _refresh(self) -> None:
        files = self.table.published()
        reader = self._spark.read.schema(self._schema)
        rows = reader.parquet(*files) if files else self._spark.createDataFrame([], self._schema)
        rows.createOrReplaceTempView(self._view)


class ForeachBatchSink:
    """A function that is called with the results of each epoch and its number."""

    def __init__(self, table: OutputTable, function: BatchFunction) -> None:
        self.table = table
        self._function = function

    def prepare(
        self, session: SparkSession, epoch: int, outputs: Sequence[OutputFile], schema: pa.Schema
    ) -> None:
        """Call the function with a DataFrame over the staged files."""
        files = [self.table.staged_url(output) for output in outputs if output.rows]
        columns = spark_schema(schema)
        reader = session.read.schema(columns)
        rows = reader.parquet(*files) if files else session.createDataFrame([], columns)
        self._function(rows, epoch)

    def publish(self, epoch: int, outputs: Sequence[OutputFile]) -> None:
        """Remove files that are old enough; a DataFrame that the user kept may still read newer ones."""
        # If the query had another sink before, files that were staged for it must not be lost.
        self.table.check_present(outputs)
        self.table.prune(epoch - EPOCHS_KEPT)


def show_batch(rows: int, *, truncate: bool) -> BatchFunction:
    """The function behind the console sink; it prints as Spark's does."""

    def show(batch: DataFrame, epoch: int) -> None:
        line = "-" * 43
        print(f"{line}\nBatch: {epoch}\n{line}", flush=True)
        batch.show(rows, truncate)

    return show

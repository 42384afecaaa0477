"""Where the results of a query go on Spark; while a replacement runs, those of each definition.

Results of a new definition go where those of the old one do, unless they have another schema: then they have
a folder of their own, which is that of the query once the old box is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace as replace_struct
from pyspark.sql import SparkSession

from midstream.engine.program import Program
from midstream.errors import CheckpointError, OptionError
from midstream.spark.sinks import ParquetSink, Sink
from midstream.state.manifest import EndedReplacement, OutputFile, Replacement
from midstream.state.replacement import ReplacementRequest
from midstream.storage.late_rows import late_columns
from midstream.storage.output_table import OutputTable, ParquetWriter

OpenTable = Callable[[str], OutputTable]
"""Opens the table in a folder of the user's."""
CheckPath = Callable[[str], None]
"""Refuses a folder that is the checkpoint's, that of late rows, or one that a stream reads."""
CheckColumns = Callable[[pa.Schema], object]
"""Refuses results that cannot be in folders by the columns that the user wants."""


class Outputs:
    """The sinks of a query, and the writers of their tables; also publishes what is committed."""

    def __init__(
        self,
        sink: Sink,
        late_table: OutputTable | None,
        writer: ParquetWriter,
        *,
        path: str | None,
        open_table: OpenTable,
        check_path: CheckPath,
        check_columns: CheckColumns,
    ) -> None:
        """``path`` is that of the Parquet sink, if it is one."""
        self._sink = sink
        self._late_table = late_table
        self._writer = writer
        self._path = path
        self._open_table = open_table
        self._check_path = check_path
        self._check_columns = check_columns
        self._successor: ParquetSink | None = None

    @property
    def keeps_late_rows(self) -> bool:
        """Whether late rows are written; they then need all their columns."""
        return self._late_table is not None

    def check_path(self, path: str, schema: pa.Schema, ended: EndedReplacement | None) -> None:
        """Refuse a folder that results of another definition cannot go to; none is always fine.

        ``schema`` is that of the results, which are in folders by the same columns as the current ones.
        ``ended`` is the replacement that the last epoch has ended; its results may not be published yet.
        """
        if not path:
            return
        if self._path is None:
            raise OptionError(
                "results of another schema must be those of a query with the parquet sink",
                got="another sink",
                hint="start a new query, or select the same columns with the same names",
            )
        self._check_path(path)
        self._check_columns(schema)
        if Path(path).resolve() == Path(self._own_path(ended) or "").resolve():
            raise OptionError(
                "results of another definition must have a folder of their own, if a path is given",
                got=f"that of the query, {path}",
                hint="leave path out if the columns stay the same, or give another one",
            )

    def with_paths(
        self, request: ReplacementRequest, schema: pa.Schema, ended: EndedReplacement | None
    ) -> ReplacementRequest:
        """A request with the folders of both definitions, which must be Parquet's if there are two."""
        self.check_path(request.path, schema, ended)
        if not request.path:
            return request
        self._open_table(request.path)  # now, as an error later would end the query
        return replace_struct(request, old_path=self._own_path(ended))

    def _own_path(self, ended: EndedReplacement | None) -> str | None:
        """The folder of the query, which is another one as soon as a replacement has ended."""
        if ended is not None and self._successor is not None and self._successor.table.path == ended.path:
            return ended.path
        return self._path

    def open_replacement_tables(
        self, replacement: Replacement | ReplacementRequest | None, *, of_new: bool
    ) -> None:
        """Before anything is published: open the folder of a new definition that has one, or will have.

        ``of_new`` if the query was started with that definition.
        """
        if replacement is None or not replacement.path:
            return
        which, path = ("new", replacement.path) if of_new else ("old", replacement.old_path)
        if self._path is None or Path(self._path).resolve() != Path(path).resolve():
            raise CheckpointError(
                f"the {which} definition must be started with its own path, {path}, until a replacement has "
                "ended",
                got=self._path,
                hint=f"results of the old one go to {replacement.old_path}, those of the new one to "
                f"{replacement.path}",
            )
        # The other one is not among the options, which are checked against each other.
        self._check_path(replacement.old_path if of_new else replacement.path)
        self._sink = ParquetSink(self._open_table(replacement.old_path))
        self._successor = ParquetSink(self._open_table(replacement.path))

    def writer(self, program: Program) -> ParquetWriter:
        """What the tasks of a box write results with."""
        query = program.query
        # An epoch that was begun before a restart may have had other outputs.
        writer = replace(self._writer, schema=query.output_schema, late_columns=late_columns(query))
        folders = tuple(name for name in writer.partition_by if name in query.output_schema.names)
        if program.output_table == "results":
            return replace(writer, results_table=self._sink.table, partition_by=folders)
        if self._successor is None:
            self._successor = ParquetSink(self._open_table(program.output_path))
        table = replace(self._successor.table, table="successor")
        return replace(writer, results_table=table, partition_by=folders)

    def prepare(self, session: SparkSession, program: Program, outputs: Sequence[OutputFile]) -> None:
        """Let the sink prepare the results of an epoch."""
        results = [output for output in outputs if output.table == "results"]
        self._sink.prepare(session, program.epoch, results, program.query.output_schema)

    def publish(self, epoch: int, outputs: Sequence[OutputFile]) -> None:
        """Make results and late rows visible."""
        by_table = {
            name: [output for output in outputs if output.table == name]
            for name in ("results", "late", "successor")
        }
        self._sink.publish(epoch, by_table["results"])
        # After a restart, the folder of the new definition may be the only one.
        (self._successor or self._sink).publish(epoch, by_table["successor"])
        if self._late_table is not None:
            self._late_table.publish(by_table["late"])
        elif by_table["late"]:
            raise CheckpointError(
                "late rows of a committed epoch must be published",
                got="no option lateRows",
                hint="start the query once more with the lateRows that it had",
            )

    def end_replacement(self, ended: EndedReplacement) -> None:
        """The old box is done, and all its results are published: a folder of the new one is the query's.

        May be repeated: an epoch that begins another replacement may have failed since.
        """
        if self._successor is not None and self._successor.table.path == ended.path:
            self._sink, self._path = self._successor, self._successor.table.path
            self._successor = None

    def sweep(self) -> None:
        """Remove staged files; those of a committed epoch have been published by now."""
        self._sink.table.sweep()
        if self._successor is not None:
            self._successor.table.sweep()
        if self._late_table is not None:
            self._late_table.sweep()

"""Files for readers: staged by tasks where no reader looks, published whole after the commit.

A staged file lies in a folder that Spark and others pass over, under a name without ``.parquet``, so that
no glob finds it either. Publishing is one rename, which may be repeated: a reader sees the file whole
or not at all, and only rows of committed epochs.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.errors import CheckpointError
from midstream.state.manifest import OutputFile
from midstream.storage.late import late_rows
from midstream.storage.local import sync_folder

STAGED = "_staged"


@dataclass(frozen=True)
class OutputTable:
    """A folder of Parquet files that one query adds to."""

    table: Literal["results", "late"]
    path: str
    query: str
    """A short id of the query, so that several may write into one folder."""

    def stage(self, epoch: int, place: str, rows: pa.Table) -> OutputFile:
        """Write rows where no reader looks; ``place`` tells apart what an epoch writes."""
        published = f"part-{epoch:010d}-{place}-{self.query}.parquet"
        staged = f"{self.query}-{epoch:010d}-{place}-{uuid.uuid4().hex}"
        folder = Path(self.path, STAGED)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / staged).open("xb") as file:
            pq.write_table(rows, file)
            file.flush()
            os.fsync(file.fileno())
        return OutputFile(self.table, staged, published, rows.num_rows)

    def staged_path(self, output: OutputFile) -> str:
        """Where a staged file is."""
        return str(Path(self.path, STAGED, output.staged))

    def staged_url(self, output: OutputFile) -> str:
        """Where Spark finds a staged file, whatever its default file system is."""
        return f"file://{self.staged_path(output)}"

    def publish(self, outputs: Iterable[OutputFile]) -> None:
        """Give staged files their names; those that have them already are left alone."""
        for output in outputs:
            staged, target = Path(self.staged_path(output)), Path(self.path, output.published)
            if staged.exists():
                staged.replace(target)
            elif not target.exists():
                raise CheckpointError(
                    "results of a committed epoch must be there to publish",
                    got=f"neither {staged} nor {target}",
                    hint="if the folder was moved, give its new path; otherwise restore it",
                )
        if Path(self.path).is_dir():
            sync_folder(Path(self.path))

    def published(self) -> list[str]:
        """Where Spark finds the files that this query has published."""
        files = Path(self.path).glob(f"part-*-{self.query}.parquet")
        return sorted(f"file://{path}" for path in files)

    def sweep(self) -> None:
        """Remove what attempts that were given up have left behind."""
        folder = Path(self.path, STAGED)
        for path in folder.glob(f"{self.query}-*") if folder.is_dir() else ():
            path.unlink(missing_ok=True)

    def prune(self, before: int) -> None:
        """Remove files of epochs before ``before``, staged or published."""
        for path in Path(self.path).rglob(f"*{self.query}*"):
            epoch = next((int(p) for p in path.name.split("-") if p.isdigit() and len(p) == 10), None)
            if epoch is not None and epoch < before:
                path.unlink(missing_ok=True)


@dataclass(frozen=True)
class ParquetWriter:
    """Stages results, and late rows if somebody wants them."""

    results_table: OutputTable
    late_table: OutputTable | None
    schema: pa.Schema
    late_columns: Mapping[str, Mapping[str, str]]
    """For each stream: the columns of a late row as they travel, and as the user knows them."""

    def results(self, epoch: int, partition: int, table: pa.Table | None) -> list[OutputFile]:
        """One file per partition that has results; the very first epoch leaves a file in any case.

        Without it a reader of a query that has found nothing yet would see a folder without a schema.
        """
        if table is None and (epoch, partition) == (0, 0):
            table = self.schema.empty_table()
        return [] if table is None else [self.results_table.stage(epoch, f"{partition:05d}", table)]

    def late(
        self, epoch: int, fragment: int, partition: int, rows: Mapping[str, pa.Table]
    ) -> list[OutputFile]:
        """One file for the late rows of all streams that enter a fragment."""
        if self.late_table is None:
            return []
        parts = [late_rows(epoch, name, part, self.late_columns[name]) for name, part in rows.items()]
        place = f"{partition:05d}-{fragment:03d}"
        return [self.late_table.stage(epoch, place, pa.concat_tables(parts))]

"""Output tables: Parquet files that tasks stage where no reader looks, published after the commit.

A staged file is in a folder that Spark and others skip, under a name without ``.parquet``, so that no glob
finds it either. Publishing is one rename, which may be repeated: a reader sees the file whole or not at all,
and only rows of committed epochs.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.errors import CheckpointError
from midstream.state.manifest import OutputFile, OutputTableName
from midstream.storage.durable_file import explain_full_disk, new_file
from midstream.storage.late_rows import late_rows
from midstream.storage.local import make_folder, sync_folder
from midstream.storage.partition_folders import by_folder, is_folder

STAGED = "_staged"
_FOLDER_ID = "folder-id"
_NAME = re.compile(r"\w[\w.-]*\Z", re.ASCII)
_LEASE_AND_EPOCH = re.compile(r"(?:(\d{12})-)?(\d{10})-")


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentRunId:
    """Which part of an epoch wrote a file: one fragment, in one engine partition."""

    epoch: int
    partition: int
    fragment: int

    def __str__(self) -> str:
        """The form that it has in the names of files, which then sort by epoch."""
        return f"{self.epoch:010d}-{self.partition:05d}-{self.fragment:03d}"


@dataclass(frozen=True)
class OutputTable:
    """A folder of Parquet files that one query adds to."""

    table: OutputTableName
    path: str
    query: str
    """A short id of the query, so that several may write into one folder."""
    private: bool = False
    """Whether only the owner may read it, as for a table inside the checkpoint."""
    lease: int = 0
    """The lease under which files are staged. It is in their names; files of later leases are not swept."""
    folder: str = ""
    """The id of the folder, see :meth:`identified`."""
    compression: str = "snappy"
    """The codec of its files, as Arrow calls it."""

    def __post_init__(self) -> None:
        # It comes from a manifest, and is part of the patterns by which files are found and deleted.
        _plain(self.query)
        for folder in (Path(self.path), Path(self.path, STAGED)) if self.private else ():
            if folder.is_symlink():
                got = f"a link {folder}"
                raise CheckpointError("a checkpoint must have plain files and folders", got=got)

    def identified(self) -> OutputTable:
        """The table with the id of its folder, which is made when the folder is first used.

        Publishing moves a staged file out of its folder. So a file that is gone was published, even if a
        reader has moved it away since; but only if this is the folder it was staged in. That cannot be known
        from its path, which may be a link.
        """
        with explain_full_disk(Path(self.path)):
            self._make_folders()
            name = Path(self.path, STAGED, _FOLDER_ID)
            if not name.exists():
                id_ = uuid.uuid4().hex
                unfinished = name.with_name(f"{_FOLDER_ID}-{id_}")
                with new_file(unfinished, 0o600 if self.private else 0o666) as file:
                    file.write(id_.encode())
                with suppress(FileExistsError):  # another query that writes here was first
                    name.hardlink_to(unfinished)
                unfinished.unlink()
                sync_folder(name.parent)
        return replace(self, folder=name.read_text())

    @property
    def _folder_mode(self) -> int:
        return 0o700 if self.private else 0o777

    def _make_folders(self) -> None:
        make_folder(Path(self.path, STAGED), self._folder_mode)

    def stage(self, task: FragmentRunId, rows: pa.Table, partition: str = "") -> OutputFile:
        """Write the rows of a task where no reader looks; ``partition`` is the folder they will be in."""
        published = f"{partition}/part-{task}-{self.query}.parquet".removeprefix("/")
        staged = f"{self.query}-{self.lease:012d}-{task}-{uuid.uuid4().hex}"
        folder = Path(self.path, STAGED)
        with explain_full_disk(Path(self.path)):
            self._make_folders()
            with new_file(folder / staged, 0o600 if self.private else 0o666) as file:
                # Dictionaries take as long as everything else, and save little as results rarely repeat.
                pq.write_table(rows, file, use_dictionary=False, compression=self.compression)
            # The manifest will name the file: if it were lost after the commit, it could not be restored.
            sync_folder(folder)
        return OutputFile(self.table, staged, published, rows.num_rows, self.folder)

    def staged_path(self, output: OutputFile) -> str:
        """Where a staged file is."""
        return str(Path(self.path, STAGED, _plain(output.staged)))

    def staged_url(self, output: OutputFile) -> str:
        """Where Spark finds a staged file, whatever its default file system is."""
        return f"file://{self.staged_path(output)}"

    def publish(self, outputs: Sequence[OutputFile]) -> None:
        """Give staged files their names; those that have them already are left alone."""
        self.check_present(outputs)
        for output in outputs:
            self._rename(Path(self.staged_path(output)), self._target(output))
        # In this order: a file that is no longer staged was published, even after a power cut in between.
        for folder in {Path(self.path), *(self._target(output).parent for output in outputs)}:
            sync_folder(folder)
        if outputs:
            sync_folder(Path(self.path, STAGED))

    def _rename(self, staged: Path, target: Path) -> None:
        while staged.exists():  # otherwise it was published before, perhaps just now by another driver
            make_folder(target.parent, self._folder_mode)
            with suppress(FileNotFoundError):  # as above, or a reader has just removed the folder
                staged.replace(target)

    def check_present(self, outputs: Iterable[OutputFile]) -> None:
        """Refuse to go on if files of a committed epoch were neither staged nor published here."""
        for output in outputs:
            staged, target = Path(self.staged_path(output)), self._target(output)
            staged_here = self.folder != "" and output.folder == self.folder
            if not (staged_here or staged.exists() or target.exists()):
                raise CheckpointError(
                    "results of a committed epoch must be there to publish",
                    got=f"neither {staged} nor {target}",
                    hint="start once more with the sink and the path that the query had, or restore them",
                )

    def _target(self, output: OutputFile) -> Path:
        *folders, name = output.published.split("/")
        if not all(map(is_folder, folders)):
            must = "the name of an output file must be a word, in folders of the values of its columns"
            raise CheckpointError(must, got=repr(output.published))
        return Path(self.path, *folders, _plain(name))

    def published(self) -> list[str]:
        """Where Spark finds the files that this query has published."""
        files = Path(self.path).glob(f"part-*-{self.query}.parquet")
        return sorted(f"file://{path}" for path in files)

    def sweep(self) -> None:
        """Remove what abandoned attempts have staged, but not what a later driver stages."""
        folder = Path(self.path, STAGED)
        for path in folder.glob(f"{self.query}-*") if folder.is_dir() else ():
            if _lease_and_epoch(path.name, self.query)[0] <= self.lease:
                path.unlink(missing_ok=True)

    def prune(self, before: int) -> None:
        """Remove staged files of epochs before ``before``; published files belong to readers."""
        for path in Path(self.path, STAGED).glob(f"{self.query}-*"):
            if _lease_and_epoch(path.name, self.query)[1] < before:
                path.unlink(missing_ok=True)


def _lease_and_epoch(name: str, query: str) -> tuple[int, float]:
    """The lease and the epoch in the name of a staged file; names of earlier formats have no lease."""
    match = _LEASE_AND_EPOCH.match(name.removeprefix(f"{query}-"))
    return (int(match[1] or 0), int(match[2])) if match else (0, math.inf)


def _plain(name: str) -> str:
    """A name from a manifest; an error unless it is of the form that Midstream gives."""
    if not _NAME.match(name):
        raise CheckpointError("the name of an output file must be a word", got=repr(name))
    return name


@dataclass(frozen=True)
class ParquetWriter:
    """Stages results, and late rows if there is a table for them."""

    results_table: OutputTable
    late_table: OutputTable | None
    schema: pa.Schema
    late_columns: Mapping[str, Mapping[str, str]]
    """For each stream: the names of a late row's columns, from those in the engine to those of the user."""
    partition_by: tuple[str, ...] = ()
    """The columns of the results by whose values their files are in folders."""

    @property
    def keeps_late_rows(self) -> bool:
        """Whether late rows are written; they then need all their columns."""
        return self.late_table is not None

    def results(self, task: FragmentRunId, rows: pa.Table | None) -> list[OutputFile]:
        """One file per partition that has results, or one per folder; the first epoch leaves one in any case.

        Without it a reader of a query that has no results yet would see a folder without a schema.
        """
        if rows is None and (task.epoch, task.partition) == (0, 0):
            rows = self.schema.empty_table()
        if rows is None:
            return []
        if not self.partition_by:
            return [self.results_table.stage(task, rows)]
        parts = by_folder(rows, self.partition_by)
        return [self.results_table.stage(task, part, folder) for folder, part in parts]

    def late(self, task: FragmentRunId, rows: Mapping[str, pa.Table]) -> list[OutputFile]:
        """One file for the late rows of all streams that enter a fragment."""
        if self.late_table is None:
            return []
        parts = [late_rows(task.epoch, name, part, self.late_columns[name]) for name, part in rows.items()]
        return [self.late_table.stage(task, pa.concat_tables(parts))]

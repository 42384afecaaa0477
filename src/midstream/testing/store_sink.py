"""A sink in a store, so that published files are subject to the same faults as the checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from midstream.errors import CheckpointError
from midstream.state.manifest import OutputFile
from midstream.state.manifest import OutputTableName as Table
from midstream.storage.output_table import FragmentRunId
from midstream.testing.faults import STAGED, FaultStore

_FOLDER = "the folder of the simulator"


@dataclass(frozen=True)
class StoreSink:
    """A table as files of a store: staged, then published under a name with their epoch."""

    store: FaultStore
    table: Table = "results"
    lease: int = 0
    """The lease under which files are staged; files of later leases are not swept."""
    staged: list[pa.Table] = field(default_factory=list)
    """The tables that were staged; callers may clear it."""

    def stage(self, task: FragmentRunId, rows: pa.Table) -> OutputFile:
        """Keep rows where no reader looks. Staged files are synced one by one, as on a disk."""
        published = str(task)
        staged = f"{self.table}-{self.lease:012d}-{published}-{self.store.random.getrandbits(64):016x}"
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_file(buffer, rows.schema) as writer:
            writer.write_table(rows)
        self.store.put(f"{STAGED}/{staged}", buffer.getvalue())
        self.store.sync(STAGED)
        self.staged.append(rows)
        return OutputFile(self.table, staged, published, rows.num_rows, _FOLDER)

    def publish(self, outputs: Sequence[OutputFile]) -> None:
        """Rename staged files; a file that is no longer staged was published."""
        for output in outputs:
            self.store.rename(f"{STAGED}/{output.staged}", f"{self.table}/{output.published}")
            if output.folder != _FOLDER:
                raise CheckpointError("results must be published where they were staged", got=output.folder)

    def sweep(self) -> None:
        """Remove what abandoned attempts have staged."""
        for name in self.store.list(STAGED):
            table, lease, *_ = name.removeprefix(f"{STAGED}/").split("-")
            if table == self.table and int(lease) <= self.lease:
                self.store.delete(name)

    def published(self, schema: pa.Schema, last: int) -> pa.Table:
        """What a reader sees of the epochs up to ``last``."""
        files = Reader(self.store, self.table).files()
        visible = [file for epoch, named in files.items() if epoch <= last for file in named.values()]
        return pa.concat_tables([schema.empty_table(), *map(read_rows, visible)])


@dataclass
class Reader:
    """A reader of a table, which may move its files away."""

    store: FaultStore
    table: Table
    moved: dict[str, pa.Buffer] = field(default_factory=dict)
    """The files that were moved away."""

    def move_away(self) -> None:
        """Move all published files away."""
        for name in self.store.inner.list(self.table):
            # If a file is published again, this reader has it twice.
            self.moved[f"{name} {len(self.moved)}"] = self.store.inner.read(name)
            self.store.inner.delete(name)

    def files(self) -> dict[int, dict[str, pa.Buffer]]:
        """All files that were ever published, by epoch and name."""
        present = {name: self.store.inner.read(name) for name in self.store.inner.list(self.table)}
        files: dict[int, dict[str, pa.Buffer]] = {}
        for name, data in {**self.moved, **present}.items():
            files.setdefault(int(name.rpartition("/")[2][:10]), {})[name] = data
        return files


def read_rows(file: pa.Buffer) -> pa.Table:
    """The rows of a published file."""
    return pa.ipc.open_file(file).read_all()

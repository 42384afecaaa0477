"""A sink that lives in a store, so that what readers see fails and lasts as the checkpoint does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from midstream.errors import CheckpointError
from midstream.state.manifest import OutputFile
from midstream.storage.output_table import TaskId
from midstream.testing.faults import STAGED, FaultStore

Table = Literal["results", "late"]
_FOLDER = "the folder of the simulator"


@dataclass(frozen=True)
class StoreSink:
    """A table as files of a store: staged, then published under a name that says which epoch they are of."""

    store: FaultStore
    table: Table = "results"
    lease: int = 0
    """The lease under which files are staged; none of a later one is swept."""
    staged: list[pa.Table] = field(default_factory=list)
    """What was staged since somebody last cleared this."""

    def stage(self, task: TaskId, rows: pa.Table) -> OutputFile:
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
        """Give staged files their names; a file that is staged no more was published."""
        for output in outputs:
            self.store.rename(f"{STAGED}/{output.staged}", f"{self.table}/{output.published}")
            if output.folder != _FOLDER:
                raise CheckpointError("results must be published where they were staged", got=output.folder)

    def sweep(self) -> None:
        """Remove what attempts that were given up have staged."""
        for name in self.store.list(STAGED):
            table, lease, *_ = name.removeprefix(f"{STAGED}/").split("-")
            if table == self.table and int(lease) <= self.lease:
                self.store.delete(name)

    def published(self, schema: pa.Schema, last: int) -> pa.Table:
        """What a reader sees of the epochs up to ``last``."""
        files = Reader(self.store, self.table).files()
        found = [file for epoch, named in files.items() if epoch <= last for file in named.values()]
        return pa.concat_tables([schema.empty_table(), *map(read_rows, found)])


@dataclass
class Reader:
    """Somebody who reads a table, and may move its files away once they are read."""

    store: FaultStore
    table: Table
    moved: dict[str, pa.Buffer] = field(default_factory=dict)
    """What was moved away, in whichever attempt it was published."""

    def move_away(self) -> None:
        """Take all files that are there."""
        for name in self.store.inner.list(self.table):
            # A file that is published once more is there twice for this reader.
            self.moved[f"{name} {len(self.moved)}"] = self.store.inner.read(name)
            self.store.inner.delete(name)

    def files(self) -> dict[int, dict[str, pa.Buffer]]:
        """All that was ever there to read, by epoch and name."""
        there = {name: self.store.inner.read(name) for name in self.store.inner.list(self.table)}
        found: dict[int, dict[str, pa.Buffer]] = {}
        for name, data in {**self.moved, **there}.items():
            found.setdefault(int(name.rpartition("/")[2][:10]), {})[name] = data
        return found


def read_rows(file: pa.Buffer) -> pa.Table:
    """The rows of a published file."""
    return pa.ipc.open_file(file).read_all()

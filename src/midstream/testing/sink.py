"""A sink that lives in a store, so that what readers see fails and lasts as the checkpoint does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from midstream.errors import CheckpointError
from midstream.state.manifest import OutputFile
from midstream.testing.faults import STAGED, FaultStore


@dataclass(frozen=True)
class StoreSink:
    """A table as files of a store: staged, then published under a name that says which epoch they are of."""

    store: FaultStore
    table: Literal["results", "late"] = "results"

    def stage(self, epoch: int, place: str, rows: pa.Table) -> OutputFile:
        """Keep rows where no reader looks. Staged files are synced one by one, as on a disk."""
        published = f"{epoch:010d}-{place}"
        staged = f"{self.table}-{published}-{self.store.random.getrandbits(64):016x}"
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_file(buffer, rows.schema) as writer:
            writer.write_table(rows)
        self.store.put(f"{STAGED}/{staged}", buffer.getvalue())
        self.store.sync(STAGED)
        return OutputFile(self.table, staged, published, rows.num_rows)

    def publish(self, outputs: Sequence[OutputFile]) -> None:
        """Give staged files their names. Whether a file is there is asked by name: listings may be late."""
        for output in outputs:
            staged, target = f"{STAGED}/{output.staged}", f"{self.table}/{output.published}"
            data = self._find(staged)
            if data is not None:
                self.store.put(target, data)
                self.store.sync(self.table)
                self.store.delete(staged)
            elif self._find(target) is None:
                raise CheckpointError("results of a committed epoch must be there", got=output.staged)

    def sweep(self) -> None:
        """Remove what attempts that were given up have staged."""
        for name in self.store.list(STAGED):
            if name.startswith(f"{STAGED}/{self.table}-"):
                self.store.delete(name)

    def published(self, schema: pa.Schema, last: int) -> pa.Table:
        """What a reader sees of the epochs up to ``last``."""
        files = [file for epoch, named in self.files().items() if epoch <= last for file in named.values()]
        return pa.concat_tables([schema.empty_table(), *map(read_rows, files)])

    def files(self) -> dict[int, dict[str, pa.Buffer]]:
        """What is published, by epoch and name, as a reader without faults sees it."""
        found: dict[int, dict[str, pa.Buffer]] = {}
        for name in self.store.inner.list(self.table):
            epoch = int(name.rpartition("/")[2][:10])
            found.setdefault(epoch, {})[name] = self.store.inner.read(name)
        return found

    def _find(self, name: str) -> pa.Buffer | None:
        try:
            return self.store.read(name)
        except CheckpointError:
            return None


def read_rows(file: pa.Buffer) -> pa.Table:
    """The rows of a published file."""
    return pa.ipc.open_file(file).read_all()

"""A store that fails, and a sink that lives in a store: what the simulator runs the real core over."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from midstream.errors import CheckpointError
from midstream.state.manifest import OutputFile
from midstream.storage.memory import MemoryStore


class SimulatedCrash(BaseException):
    """The process dies here. No handler for ordinary errors may survive it."""


@dataclass
class FaultStore:
    """Files in memory that fail as disks do.

    - An operation may raise *no space* or *I/O error*; a write may then have left nothing or a cut file
      under a temporary name, never under the real one.
    - Names that were put but not synced are lost when the machine goes down.
    """

    random: random.Random
    error_rate: float = 0.0
    inner: MemoryStore = field(default_factory=MemoryStore)
    unsynced: set[str] = field(default_factory=set)
    errors: int = 0

    def put(self, name: str, data: pa.Buffer | bytes) -> None:
        """Write a file; its name lasts only after :meth:`sync`."""
        self._may_fail(name)
        self.inner.put(name, data)
        self.unsynced.add(name)

    def sync(self, folder: str) -> None:
        """Make the names of a folder last."""
        self._may_fail(folder)
        self.unsynced = {name for name in self.unsynced if name.rpartition("/")[0] != folder}

    def put_if_absent(self, name: str, data: pa.Buffer | bytes) -> bool:
        """Write a file for good unless the name is taken."""
        self._may_fail(name)
        return self.inner.put_if_absent(name, data)

    def read(self, name: str) -> pa.Buffer:
        """The bytes of a name."""
        self._may_fail(name)
        return self.inner.read(name)

    def list(self, folder: str) -> list[str]:
        """The names in a folder."""
        self._may_fail(folder)
        return self.inner.list(folder)

    def delete(self, name: str) -> None:
        """Forget a name."""
        self._may_fail(name)
        self.inner.delete(name)
        self.unsynced.discard(name)

    def lose_power(self) -> None:
        """The machine goes down: what was not synced is gone, each name by itself."""
        for name in sorted(self.unsynced):
            if self.random.random() < 0.5:
                self.inner.delete(name)
        self.unsynced.clear()

    def rot(self) -> str:
        """Flip one bit of one file at rest; gives its name."""
        names = [n for n in sorted(self.inner.files) if n.startswith(("slices/", "manifests/"))]
        name = self.random.choice(names)
        data = bytearray(self.inner.files[name].to_pybytes())
        position = self.random.randrange(len(data))
        data[position] ^= 1 << self.random.randrange(8)
        self.inner.put(name, bytes(data))
        return name

    def _may_fail(self, name: str) -> None:
        if self.random.random() < self.error_rate:
            self.errors += 1
            code = self.random.choice((errno.ENOSPC, errno.EIO))
            raise OSError(code, "simulated", name)


@dataclass
class StoreSink:
    """Results as files of a store: staged, then published under a name that says which epoch they are of."""

    store: FaultStore

    def stage(self, epoch: int, place: str, rows: pa.Table) -> OutputFile:
        """Keep rows where no reader looks. Staged files are synced one by one, as on a disk."""
        staged = f"{epoch:010d}-{place}-{self.store.random.getrandbits(64):016x}"
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_file(buffer, rows.schema) as writer:
            writer.write_table(rows)
        self.store.put(f"staged/{staged}", buffer.getvalue())
        self.store.sync("staged")
        return OutputFile("results", staged, f"{epoch:010d}-{place}", rows.num_rows)

    def publish(self, outputs: Sequence[OutputFile]) -> None:
        """Give staged files their names."""
        staged = set(self.store.list("staged"))
        published = set(self.store.list("results"))
        for output in outputs:
            if f"staged/{output.staged}" in staged:
                self.store.put(f"results/{output.published}", self.store.read(f"staged/{output.staged}"))
                self.store.sync("results")
                self.store.delete(f"staged/{output.staged}")
            elif f"results/{output.published}" not in published:
                raise CheckpointError("results of a committed epoch must be there", got=output.staged)

    def sweep(self) -> None:
        """Remove what attempts that were given up have staged."""
        for name in self.store.list("staged"):
            self.store.delete(name)

    def published(self, schema: pa.Schema, last: int) -> pa.Table:
        """What a reader sees of the epochs up to ``last``."""
        files = [n for n in self.store.inner.list("results") if int(n[len("results/") :][:10]) <= last]
        tables = [pa.ipc.open_file(self.store.inner.read(name)).read_all() for name in files]
        return pa.concat_tables([schema.empty_table(), *tables])

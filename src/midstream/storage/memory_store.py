"""A store in memory, for the in-process runner and for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from midstream.errors import CheckpointError


@dataclass(frozen=True)
class MemoryStore:
    """Files as entries of a dictionary."""

    files: dict[str, pa.Buffer] = field(default_factory=dict)

    def put(self, name: str, data: pa.Buffer | bytes) -> None:
        """Keep the bytes."""
        self.files[name] = pa.py_buffer(data)

    def put_all(self, files: Mapping[str, pa.Buffer | bytes]) -> None:
        """Keep the bytes of each file."""
        for name, data in files.items():
            self.put(name, data)

    def sync(self, folder: str) -> None:
        """Nothing outlives this process."""

    def put_if_absent(self, name: str, data: pa.Buffer | bytes) -> bool:
        """Keep the bytes if the name is free."""
        if name in self.files:
            return False
        self.put(name, data)
        return True

    def read(self, name: str, *, sparsely: bool = False) -> pa.Buffer:  # all is in memory
        """The bytes of a name."""
        if name not in self.files:
            raise CheckpointError("a file that the checkpoint needs must be there", got=f"no {name}")
        return self.files[name]

    def list(self, folder: str) -> list[str]:
        """The names in a folder."""
        size = len(folder)
        return sorted(name for name in self.files if name.startswith(folder) and name.rfind("/") == size)

    def delete(self, name: str) -> None:
        """Forget a name."""
        self.files.pop(name, None)

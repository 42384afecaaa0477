"""The store interface: all operations that Midstream needs of a file system.

It is small so that any store can offer it, and so that tests can inject faults into each operation. Names
are relative, with forward slashes. Files are written once: either the name follows from the bytes (slices),
or only the first writer wins (manifests, intents, the publish log, leases, requests). Only heartbeats are
overwritten.

What a store must guarantee, to all processes on all machines:

- *Atomic writes.* A file has all the bytes of one write at any time, also after a crash of the machine. What
  an interrupted write leaves behind has another name, in :data:`TEMPORARY`.
- *Read after write.* Once a write has returned, every reader of the name gets these bytes.
- *One winner.* Of several ``put_if_absent`` of a name one writes the file, which is durable when the call
  returns. An error, or *False* for the one that did write it, is allowed: its response was lost.
- *Consistent listings* of manifests, intents, requests, leases and the publish log. A driver that missed the
  newest manifests would resume from an older one; one that saw none would begin a new query. S3 has had
  consistent listings since 2020, file systems always.

What a store need not guarantee:

- *Durability* before ``sync``. Until then a crash of the machine may undo a ``put`` or a ``delete``, of each
  name independently. So a manifest is committed after the folder of its slices was synced.
- *Consistent listings* of slices, temporary and staged files. They are listed only to clean up: a file that
  is missing from a listing is found the next time, and deleting a file twice is no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from midstream.errors import CheckpointError

TEMPORARY = "temporary"
"""The folder for files that do not have their name yet; files that stay there were abandoned."""


class Store(Protocol):
    """A place for immutable files."""

    def put(self, name: str, data: pa.Buffer | bytes) -> None:
        """Write a file: a reader sees all its bytes or no file. It is durable after :meth:`sync`."""

    def put_all(self, files: Mapping[str, pa.Buffer | bytes]) -> None:
        """Write many files, as :meth:`put` writes each, in less time; if that fails, some may be written."""

    def sync(self, folder: str) -> None:
        """Make the files that were put into a folder durable."""

    def put_if_absent(self, name: str, data: pa.Buffer | bytes) -> bool:
        """Write a file durably unless the name is taken; False if it was. Commits depend on this."""

    def read(self, name: str, *, sparsely: bool = False) -> pa.Buffer:
        """The bytes of a file, mapped into memory where that is possible.

        If it is read ``sparsely``, few of them will be used, and the others should not take up memory.
        """

    def list(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none if there is no such folder. See above on consistency."""

    def delete(self, name: str) -> None:
        """Delete a file; one that does not exist is no error."""


def parts_of(name: str) -> list[str]:
    """The parts of a name; an error if following them would lead out of the store."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
        raise CheckpointError("a name in a checkpoint must stay inside it", got=repr(name))
    return parts

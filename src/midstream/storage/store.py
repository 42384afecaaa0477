"""The storage seam: all that Midstream ever asks of a file system.

It is this small so that any store can offer it, and so that tests can put faults behind each operation.
Names are relative, with forward slashes. What others rest on is written once: either its bytes follow from
the name (slices), or only the first writer wins (manifests, intents, notes of what is published, leases,
requests). Beats are written again.

What a store must guarantee, to all processes on all machines:

- *Whole files.* A name has all the bytes of one write, at any time, also after a crash of the machine. What
  a write that was cut off leaves behind lies under another name, in :data:`TEMPORARY`.
- *Reading what was written.* Once a write has returned, whoever reads the name gets these bytes.
- *One winner.* Of several ``put_if_absent`` of a name one writes the file, and it lasts before that is
  answered. An error, or *False* to the one that did write it, is an answer that was lost: allowed.
- *Listings as they are* of manifests, intents, requests, leases and notes of what was published. A driver
  that missed the newest manifests would go on from an older one; one that saw none at all would begin
  anew. S3 has had such listings since 2020; a file system always had them.

What a store need not guarantee:

- *Names that last* before ``sync``. Until then a crash of the machine may undo a ``put`` or a ``delete``,
  of each name by itself. So a manifest is committed after the folder of its slices was synced.
- *Listings as they are* of slices, temporary and staged files. They are listed only to clean up: what a
  listing does not show yet is found the next time, and deleting what is gone already is no error.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from midstream.errors import CheckpointError

TEMPORARY = "temporary"
"""The folder for files that do not have their name yet; what stays there was given up."""


class Store(Protocol):
    """A place for immutable files."""

    def put(self, name: str, data: pa.Buffer | bytes) -> None:
        """Write a file whole: a reader sees all its bytes or no file. Lasting after :meth:`sync`."""

    def sync(self, folder: str) -> None:
        """Make what was put into a folder last, even if the machine stops."""

    def put_if_absent(self, name: str, data: pa.Buffer | bytes) -> bool:
        """Write a file for good unless the name is taken; False if it was. The commit rests on this."""

    def read(self, name: str) -> pa.Buffer:
        """The bytes of a file, mapped into memory where that is possible."""

    def list(self, folder: str) -> list[str]:
        """The names in a folder, in order; none if there is no such folder. See above on how new they are."""

    def delete(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""


def parts_of(name: str) -> list[str]:
    """The parts of a name; an error if following them would lead out of the store."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
        raise CheckpointError("a name in a checkpoint must stay inside it", got=repr(name))
    return parts

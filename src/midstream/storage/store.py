"""The storage seam: all that Midstream ever asks of a file system.

It is this small so that any store can offer it, and so that tests can put faults behind each operation.
Names are relative, with forward slashes. A name is written once: either its bytes follow from the name
(slices), or only the first writer wins (manifests).
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

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
        """The names in a folder, in order; none if there is no such folder."""

    def delete(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""

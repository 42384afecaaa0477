"""A store on a local or mounted file system.

Bytes go to a temporary file first, reach the disk, and then get their name in one operation. Only the
owner can read what is written: state holds the user's data.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from midstream.errors import CheckpointError
from midstream.storage.store import TEMPORARY

_FOLDER_MODE = 0o700
_FILE_MODE = 0o600


@dataclass(frozen=True)
class LocalStore:
    """Files below ``root``."""

    root: str

    def put(self, name: str, data: pa.Buffer | bytes) -> None:
        """Write to a temporary name, then rename."""
        path, temporary = self._write(name, data)
        temporary.replace(path)

    def sync(self, folder: str) -> None:
        """The bytes of a file reach the disk when it is written; this is for the names."""
        sync_folder(self._path(folder))

    def put_if_absent(self, name: str, data: pa.Buffer | bytes) -> bool:
        """Write to a temporary name, then link: a link never replaces."""
        path, temporary = self._write(name, data)
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        sync_folder(path.parent)
        return True

    def read(self, name: str) -> pa.Buffer:
        """Map the file into memory."""
        try:
            with pa.memory_map(str(self._path(name))) as mapped:
                return mapped.read_buffer()
        except FileNotFoundError:
            raise CheckpointError(
                "a file that the checkpoint needs must be there",
                got=f"no {name} in {self.root}",
                hint="restore it, or start a new query with another checkpointLocation",
            ) from None

    def list(self, folder: str) -> list[str]:
        """The files in a folder."""
        path = self._path(folder)
        return sorted(f"{folder}/{p.name}" for p in path.iterdir()) if path.is_dir() else []

    def delete(self, name: str) -> None:
        """Remove a file."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        parts = name.split("/")
        if any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
            raise CheckpointError("a name in a checkpoint must stay inside it", got=repr(name))
        return Path(self.root, *parts)

    def _write(self, name: str, data: pa.Buffer | bytes) -> tuple[Path, Path]:
        path = self._path(name)
        temporary = Path(self.root, TEMPORARY, uuid.uuid4().hex)
        _make_folder(path.parent)
        _make_folder(temporary.parent)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return path, temporary


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it; each that is made is the owner's alone."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last."""
    if not folder.is_dir():
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

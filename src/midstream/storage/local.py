"""A store on a local or mounted file system.

Bytes are written to a temporary file and synced; then the file gets its name in one operation. Only the owner
can read files: state holds the user's data.
"""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from midstream.errors import CheckpointError
from midstream.storage.durable_file import explain_full_disk, write_new_files
from midstream.storage.mapped_file import map_file
from midstream.storage.store import TEMPORARY, parts_of

_FOLDER_MODE = 0o700
_FILE_MODE = 0o600


@dataclass(frozen=True)
class LocalStore:
    """Files below ``root``."""

    root: str

    def put(self, name: str, data: pa.Buffer | bytes) -> None:
        """Write to a temporary name, then rename."""
        self.put_all({name: data})

    def put_all(self, files: Mapping[str, pa.Buffer | bytes]) -> None:
        """Write to temporary names, then rename; the files are synced at once."""
        for path, temporary in self._write(files).items():
            temporary.replace(path)

    def sync(self, folder: str) -> None:
        """Make the names durable; the bytes of a file are synced when it is written."""
        sync_folder(self._path(folder))

    def put_if_absent(self, name: str, data: pa.Buffer | bytes) -> bool:
        """Write to a temporary name, then link: a link never replaces."""
        ((path, temporary),) = self._write({name: data}).items()
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        sync_folder(path.parent)
        return True

    def read(self, name: str, *, sparsely: bool = False) -> pa.Buffer:
        """Map the file into memory."""
        path = self._path(name)
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                raise _not_plain(name)
            return map_file(path, sparsely=sparsely)
        except FileNotFoundError:
            raise CheckpointError(
                "a file that the checkpoint needs must be there",
                got=f"no {name} in {self.root}",
                hint="restore it, or start a new query with another checkpointLocation",
            ) from None

    def list(self, folder: str) -> list[str]:
        """The files in a folder."""
        path = self._path(f"{folder}/*").parent
        return sorted(f"{folder}/{p.name}" for p in path.iterdir()) if path.is_dir() else []

    def delete(self, name: str) -> None:
        """Remove a file."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        """The path of a name. A folder below the root must not be a link, which could lead out of it."""
        path = Path(self.root)
        *folders, last = parts_of(name)
        for folder in folders:
            path /= folder
            if path.is_symlink():
                raise _not_plain(name)
        return path / last

    def _write(self, files: Mapping[str, pa.Buffer | bytes]) -> dict[Path, Path]:
        """Write the bytes of files; gives the temporary path of each path."""
        folder = self._path(f"{TEMPORARY}/*").parent
        temporary = {self._path(name): folder / uuid.uuid4().hex for name in files}
        with explain_full_disk(Path(self.root)):
            for parent in {folder, *(path.parent for path in temporary)}:
                make_folder(parent, _FOLDER_MODE)
            write_new_files(dict(zip(temporary.values(), files.values(), strict=True)), _FILE_MODE)
        return temporary


def _not_plain(name: str) -> CheckpointError:
    return CheckpointError(
        "a checkpoint must have plain files and folders",
        got=f"{name} by a link, or as another kind of file",
        hint="put the file in its place; for another disk, mount it, or move the whole checkpoint",
    )


def make_folder(folder: Path, mode: int) -> None:
    """Make a folder and its parents, durably; each one that is made has this mode.

    If the name of a folder were lost, so would be all files that were synced into it.
    """
    if not folder.is_dir():
        make_folder(folder.parent, mode)
        folder.mkdir(mode=mode, exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    if not folder.is_dir():
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

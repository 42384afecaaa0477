"""Keeping apart the folders that a query writes to, by what they are rather than by what they are called.

Results and late rows have files of the same names: in one folder, one replaces the other. Files of a
checkpoint come and go, and nobody else's may be among them. A folder has many names, though: links lead to
it, it is mounted in two places, or its file system takes no notice of case.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from midstream.errors import OptionError
from midstream.storage.output_table import STAGED


@dataclass(frozen=True)
class _FolderIdentity:
    """Where a folder is: the nearest that exists, itself or one above it, and the way on from there."""

    device: int
    inode: int
    way: tuple[str, ...]


def refuse_overlapping_folders(path: str | None, late: str | None, checkpoint: str | None) -> None:
    """Refuse folders that would get into each other's way; None is one that is not used, or no folder.

    A checkpoint inside of ``path`` is usual with Spark, whose readers pass over it if its name begins with
    an underscore, and does no harm.
    """
    given = {"path": path, "lateRows": late}
    for name, folder in given.items():
        if folder is not None and checkpoint is not None and _is_in(folder, checkpoint):
            raise OptionError(
                f"{name} must be neither the checkpointLocation nor inside of it",
                got=f"{name} {folder} and checkpointLocation {checkpoint}",
                hint="give it a folder of its own; the other way round is fine, as in path/_checkpoint",
            )
    if path is None or late is None:
        return
    got = f"lateRows {late} and path {path}"
    if _identity(_real(late)) == _identity(_real(path)):
        raise OptionError("lateRows must be another folder than path", got=got)
    for inner, outer in (("lateRows", "path"), ("path", "lateRows")):
        if _is_in(str(given[inner]), f"{given[outer]}/{STAGED}"):
            raise OptionError(f"{inner} must not be inside of the folder {STAGED} of {outer}", got=got)


def _is_in(inner: str, outer: str) -> bool:
    """Whether a folder is another one, or anywhere below it."""
    place = _identity(_real(outer))
    return any(_identity(folder) == place for folder in _with_parents(_real(inner)))


def _real(path: str) -> Path:
    """A path without links, also those that lead to what does not exist yet."""
    return Path(os.path.realpath(path))  # Path.resolve raises if links lead in a circle


def _identity(folder: Path) -> _FolderIdentity:
    for here in _with_parents(folder):
        try:
            status = here.stat()
        except OSError:
            continue  # not there, or not for us to see
        way = folder.relative_to(here).parts
        return _FolderIdentity(
            status.st_dev, status.st_ino, tuple(map(_fold, way)) if _ignores_case(here) else way
        )
    return _FolderIdentity(0, 0, folder.parts)


def _ignores_case(folder: Path) -> bool:
    """Whether a file system takes no notice of case: then folders that exist answer to other names, too."""
    device = folder.stat().st_dev
    for here in _with_parents(folder):
        other = here.name.swapcase()
        if other == here.name:
            continue  # no letters in it
        try:
            return here.parent.stat().st_dev == device and here.samefile(here.with_name(other))
        except OSError:
            return False
    return False


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _with_parents(folder: Path) -> Iterator[Path]:
    yield folder
    yield from folder.parents

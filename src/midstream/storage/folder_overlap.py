"""Refusing folders of a query that overlap, whatever paths they are given by.

Results and late rows have files of the same names: in one folder, they would replace each other. Files of a
checkpoint are created and deleted all the time, and no others may be among them. A folder can have several
paths: by links, by a second mount, or because its file system ignores case.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from midstream.errors import OptionError
from midstream.storage.output_table import STAGED


@dataclass(frozen=True)
class _FolderIdentity:
    """Where a folder is: its nearest ancestor that exists, or itself, and the path from there."""

    device: int
    inode: int
    path: tuple[str, ...]


def check_folders(path: str | None, late: str | None, checkpoint: str | None) -> None:
    """Refuse folders whose files would mix; None is one that is not used, or no folder.

    A checkpoint inside of ``path`` is allowed: it is usual with Spark, whose readers skip it if its name
    begins with an underscore.
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
    got, hint = f"lateRows {late} and path {path}", "give each a folder of its own"
    if _identity(_real(late)) == _identity(_real(path)):
        raise OptionError("lateRows must be another folder than path", got=got, hint=hint)
    for inner, outer in (("lateRows", "path"), ("path", "lateRows")):
        if _is_in(str(given[inner]), f"{given[outer]}/{STAGED}"):
            must = f"{inner} must not be inside of the folder {STAGED} of {outer}"
            raise OptionError(must, got=got, hint=hint)


def check_not_sources(given: Mapping[str, str | None], sources: Mapping[str, Sequence[str]]) -> None:
    """Refuse a folder in which a stream looks for files: it would read what is written there.

    ``sources`` are the folders that each stream reads.
    """
    for name, folder in given.items():
        for stream, source in ((stream, one) for stream, folders in sources.items() for one in folders):
            if folder is not None and _is_in(folder, source):
                raise OptionError(
                    f"{name} must be neither a folder that a stream reads nor inside of one",
                    got=f"{folder}, and stream {stream} reads {source}",
                    hint="give it a folder of its own",
                )


def _is_in(inner: str, outer: str) -> bool:
    """Whether a folder is another one, or anywhere below it."""
    outer_identity = _identity(_real(outer))
    return any(_identity(folder) == outer_identity for folder in _with_parents(_real(inner)))


def _real(path: str) -> Path:
    """A path without links, also if their targets do not exist yet."""
    return Path(os.path.realpath(path))  # Path.resolve raises if links lead in a circle


def _identity(folder: Path) -> _FolderIdentity:
    for ancestor in _with_parents(folder):
        try:
            status = ancestor.stat()
        except OSError:
            continue  # it does not exist, or we may not see it
        path = folder.relative_to(ancestor).parts
        return _FolderIdentity(
            status.st_dev, status.st_ino, tuple(map(_fold, path)) if _ignores_case(ancestor) else path
        )
    return _FolderIdentity(0, 0, folder.parts)


def _ignores_case(folder: Path) -> bool:
    """Whether a file system ignores case: then an existing folder is also found by its name in other case."""
    device = folder.stat().st_dev
    for ancestor in _with_parents(folder):
        swapped = ancestor.name.swapcase()
        if swapped == ancestor.name:
            continue  # no letters in it
        try:
            return ancestor.parent.stat().st_dev == device and ancestor.samefile(ancestor.with_name(swapped))
        except OSError:
            return False
    return False


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _with_parents(folder: Path) -> Iterator[Path]:
    yield folder
    yield from folder.parents

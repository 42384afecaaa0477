"""Writing a new file: it reaches the disk whole or is removed, and a full disk is reported as such."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from midstream.errors import StreamError

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

# A disk that is asked to sync many files at once does so with few of the operations that it must wait for.
_SYNCED_AT_ONCE = 16


@contextmanager
def new_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write to, which must not exist yet; its bytes are on the disk when the block ends."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        # An unfinished file would take up space, which may be what is missing.
        path.unlink(missing_ok=True)
        raise


def write_new_files(files: Mapping[Path, pa.Buffer | bytes], mode: int) -> None:
    """Write files, which must not exist yet; the bytes of all of them are on the disk when this returns.

    All are written before the first is synced, and they are synced at once: syncing one after the other would
    take several times as long.
    """
    written: dict[Path, int] = {}
    try:
        for path, data in files.items():
            written[path] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(written[path], "wb", closefd=False) as file:
                file.write(data)
        _sync(list(written.values()))
    except BaseException:
        # Unfinished files would take up space, which may be what is missing.
        for path in written:
            path.unlink(missing_ok=True)
        raise
    finally:
        for descriptor in written.values():
            os.close(descriptor)


def _sync(descriptors: Sequence[int]) -> None:
    """Bring the bytes of open files to the disk."""
    if len(descriptors) > 1:
        try:
            with ThreadPoolExecutor(min(len(descriptors), _SYNCED_AT_ONCE)) as threads:
                list(threads.map(os.fsync, descriptors))
        except RuntimeError:
            # The system lets this process start no more threads, for want of memory or by a limit.
            pass
        else:
            return
    for descriptor in descriptors:
        os.fsync(descriptor)


@contextmanager
def explain_full_disk(folder: Path) -> Iterator[None]:
    """If the disk of a folder is full, raise an error that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        raise StreamError(
            "the disk must have space for what a query writes",
            got=f"no space left on that of {folder}",
            hint="make space, then start the query again: it goes on after its last committed epoch",
        ) from error

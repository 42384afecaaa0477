"""Writing a new file: it reaches the disk whole or is removed, and a full disk is reported as such."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from midstream.errors import StreamError

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


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

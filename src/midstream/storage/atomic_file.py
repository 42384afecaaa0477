"""Writing a new file: it reaches the disk whole or goes away again, and a full disk is called by its name."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from midstream.errors import StreamError

_FULL = (errno.ENOSPC, errno.EDQUOT)


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
        # Cut off, it would keep space that may be what is lacking.
        path.unlink(missing_ok=True)
        raise


@contextmanager
def space_in(folder: Path) -> Iterator[None]:
    """Tell whoever runs the query what to do if the disk of a folder is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise StreamError(
            "the disk must have space for what a query writes",
            got=f"no space left on that of {folder}",
            hint="make space, then start the query again: it goes on after its last committed epoch",
        ) from error

"""Mapping a file into memory so that only those of its pages are read that are used."""

from __future__ import annotations

import errno
import mmap
from pathlib import Path

import pyarrow as pa


def map_file(path: Path, *, sparsely: bool = False) -> pa.Buffer:
    """The bytes of a file, mapped into memory.

    Arrow asks the system to read what it maps beforehand, and the system reads ahead, up to megabytes for a
    single row. A file that is mapped ``sparsely`` is spared both. Such a mapping keeps the file open; if no
    more files may be open, it is mapped like others.
    """
    if sparsely:
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            mapped.madvise(mmap.MADV_RANDOM)
            return pa.py_buffer(mapped)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
    with pa.memory_map(str(path)) as whole:
        return whole.read_buffer()

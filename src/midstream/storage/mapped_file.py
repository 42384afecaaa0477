"""Mapping a file into memory so that only those of its pages are read that are used."""

from __future__ import annotations

import mmap
import resource
from pathlib import Path
from weakref import WeakSet

import pyarrow as pa

_SHARE_OF_OPEN_FILES = 0.5
"""How many of the files that a process may have open are mappings at most; others are left for all else."""

_open_mappings: WeakSet[mmap.mmap] = WeakSet()


def map_file(path: Path, *, sparsely: bool = False) -> pa.Buffer:
    """The bytes of a file, mapped into memory.

    Arrow asks the system to read what it maps beforehand, and the system reads ahead, up to megabytes for a
    single row. A file that is mapped ``sparsely`` is spared both. Such a mapping keeps the file open; if many
    are open already, it is mapped like others, and so is an empty file.
    """
    most = _SHARE_OF_OPEN_FILES * resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if sparsely and len(_open_mappings) < most and path.stat().st_size:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        mapped.madvise(mmap.MADV_RANDOM)
        _open_mappings.add(mapped)
        return pa.py_buffer(mapped)
    with pa.memory_map(str(path)) as whole:
        return whole.read_buffer()

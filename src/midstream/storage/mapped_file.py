"""Mapping a file into memory, so that its pages are read when they are used, and no others.

By the system's own calls. Arrow asks the system to read what it maps beforehand, which is what a budget of
memory must avoid, and a mapping of Python's own module keeps a file open: there may be thousands.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

_FAILED = ctypes.c_void_p(-1).value


def map_file(path: Path) -> pa.Buffer:
    """The bytes of a file. It is unmapped when nobody uses the buffer any more."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            return pa.py_buffer(b"")
        address = _system().mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == _FAILED:
            code = ctypes.get_errno()
            raise OSError(code, f"{os.strerror(code)}: mapping {size:,} bytes", str(path))
    finally:
        os.close(descriptor)
    owner = _Owner()
    weakref.finalize(owner, _system().munmap, address, size)
    return pa.foreign_buffer(address, size, owner)


def read_sparsely(data: pa.Buffer) -> None:
    """Let the system read only the pages of a mapped file that are used, and none around them.

    Otherwise it reads ahead, up to megabytes for a single row, and state that nobody uses takes the place of
    state that is used. For bytes that are no mapped file this does nothing.
    """
    if _system().madvise(data.address, data.size, mmap.MADV_RANDOM) and ctypes.get_errno() != errno.EINVAL:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class _Owner:
    """Keeps a mapping until nobody uses it."""


@lru_cache(maxsize=1)
def _system() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.mmap.restype = pointer
    library.mmap.argtypes = (pointer, size, number, number, number, ctypes.c_long)
    library.munmap.argtypes = (pointer, size)
    library.madvise.argtypes = (pointer, size, number)
    return library

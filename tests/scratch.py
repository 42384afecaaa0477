"""Where tests write: in memory, if there is enough of it, because on a disk they mostly wait for syncs.

Nothing that a test says depends on it: power cuts are simulated, and a process that is killed takes no memory
file system with it. Whoever sets ``TMPDIR`` decides instead.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

_MEMORY = Path("/dev/shm")  # noqa: S108  # the folder in it is made by mkdtemp
_PREFIX = "midstream-tests-"
_ENOUGH_BYTES = 2 << 30
"""A run of all tests writes some 400 MB, with what processes leave that are killed."""
_locks: list[IO[bytes]] = []
"""Held as long as this process lives: nobody else removes its folder."""


def scratch_in_memory() -> Path | None:
    """A new folder in memory that this process and those it starts use as their ``TMPDIR``, if possible.

    What earlier runs have left because a test failed, or because they were killed, is removed.
    """
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK):
        return None
    for lock in _MEMORY.glob(f"{_PREFIX}*/lock"):
        _remove_unless_used(lock)
    if shutil.disk_usage(_MEMORY).free < _ENOUGH_BYTES:
        return None
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_MEMORY))
    _locks.append((folder / "lock").open("wb"))
    fcntl.flock(_locks[-1], fcntl.LOCK_EX)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return folder


def is_scratch(folder: Path) -> bool:
    """Whether a folder is one that a run of the tests has made in memory."""
    return folder.parent == _MEMORY and folder.name.startswith(_PREFIX)


def _remove_unless_used(lock: Path) -> None:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
    except OSError:
        return  # somebody else's, or in use

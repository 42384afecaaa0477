"""Where tests write: in memory, if there is enough of it, because on a disk they mostly wait for syncs.

Nothing that a test says depends on it: power cuts are simulated, and a process that is killed takes no memory
file system with it. Whoever sets ``TMPDIR`` decides instead.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")  # noqa: S108  # the folder in it is made by mkdtemp
_ENOUGH_BYTES = 2 << 30
"""A run of all tests writes some 100 MB, and processes that are killed leave what they have shuffled."""


def scratch_in_memory() -> Path | None:
    """A new folder in memory that this process and those it starts use as their ``TMPDIR``, if possible."""
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK):
        return None
    if shutil.disk_usage(_MEMORY).free < _ENOUGH_BYTES:
        return None
    folder = tempfile.mkdtemp(prefix="midstream-tests-", dir=_MEMORY)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    return Path(folder)

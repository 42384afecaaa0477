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
_PREFIX = "midstream-tests-"
_ENOUGH_BYTES = 2 << 30
"""A run of all tests writes some 400 MB, with what processes leave that are killed."""


def scratch_in_memory() -> Path | None:
    """A new folder in memory that this process and those it starts use as their ``TMPDIR``, if possible.

    What earlier runs have left because a test failed, or because they were killed, is removed.
    """
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK):
        return None
    for folder in _MEMORY.glob(f"{_PREFIX}*"):
        if not Path("/proc", _process_of(folder)).exists():
            shutil.rmtree(folder, ignore_errors=True)
    if shutil.disk_usage(_MEMORY).free < _ENOUGH_BYTES:
        return None
    made = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=_MEMORY)
    os.environ["TMPDIR"] = tempfile.tempdir = made
    return Path(made)


def is_scratch(folder: Path) -> bool:
    """Whether a folder is one that a run of the tests has made in memory."""
    return folder.parent == _MEMORY and folder.name.startswith(_PREFIX)


def _process_of(scratch: Path) -> str:
    return scratch.name.removeprefix(_PREFIX).partition("-")[0]

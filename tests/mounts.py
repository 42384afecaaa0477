"""Folders that are mounted for a test, where that is permitted."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """A new folder with what ``mount`` puts there; the test is skipped where nobody may."""
    folder.mkdir()
    try:
        subprocess.run(["mount", *options, folder], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounting is not permitted here: {getattr(error, 'stderr', error)}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)

"""Mapping files into memory."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from midstream.storage.mapped_file import map_file


def _file(tmp_path: Path, size: int) -> Path:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(size))
    return path


@pytest.mark.parametrize("sparsely", [False, True])
@pytest.mark.parametrize("size", [0, 1, 4096, 100_001])
def test_a_mapping_has_the_bytes_of_the_file_after_it_was_deleted_too(tmp_path, size, sparsely):
    path = _file(tmp_path, size)
    expected = path.read_bytes()
    data = map_file(path, sparsely=sparsely)
    path.unlink()
    assert data.to_pybytes() == expected


@pytest.mark.parametrize("sparsely", [False, True])
def test_a_file_that_is_not_there_is_an_error(tmp_path, sparsely):
    with pytest.raises(FileNotFoundError):
        map_file(tmp_path / "none", sparsely=sparsely)


def test_where_many_files_are_open_others_can_still_be_opened(tmp_path):
    path, limits = _file(tmp_path, 5000), resource.getrlimit(resource.RLIMIT_NOFILE)
    # Other tests of the process may have left files open: there must be room for the share of mappings.
    most = 200 + 2 * max(int(file.name) for file in Path("/dev/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
    try:
        mapped = [map_file(path, sparsely=True) for _ in range(most + 100)]
        with path.open("rb") as file:
            assert file.read() == mapped[-1].to_pybytes()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

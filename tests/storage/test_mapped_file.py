"""Mapping files into memory."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pyarrow as pa
import pytest

from midstream.storage.mapped_file import map_file, read_sparsely

MAPS = Path("/proc/self/maps")


def _file(tmp_path: Path, size: int) -> Path:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(size))
    return path


@pytest.mark.parametrize("size", [0, 1, 4096, 100_001])
def test_a_mapping_has_the_bytes_of_the_file_after_it_was_deleted_too(tmp_path, size):
    path = _file(tmp_path, size)
    expected = path.read_bytes()
    data = map_file(path)
    read_sparsely(data)
    path.unlink()
    assert data.to_pybytes() == expected


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        map_file(tmp_path / "none")


def test_bytes_that_are_no_mapped_file_stay_as_they_are():
    data = pa.py_buffer(bytearray(b"midstream" * 10_000))
    read_sparsely(data)
    read_sparsely(pa.py_buffer(b""))
    assert data.to_pybytes() == b"midstream" * 10_000


@pytest.mark.skipif(not MAPS.exists(), reason="only Linux says what is mapped")
def test_a_file_is_unmapped_once_nobody_uses_it_and_never_kept_open(tmp_path):
    path = _file(tmp_path, 4096)
    data = map_file(path)
    part = data.slice(100, 10)
    del data
    gc.collect()
    assert str(path) in MAPS.read_text()
    assert not any(opened.resolve() == path for opened in Path("/proc/self/fd").iterdir())
    assert part.to_pybytes() == path.read_bytes()[100:110]
    del part
    gc.collect()
    assert str(path) not in MAPS.read_text()

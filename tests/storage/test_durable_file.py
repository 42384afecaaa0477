"""A new file is complete or removed, and a full disk is reported as such."""

import errno
import os

import pyarrow as pa
import pytest

from midstream.errors import StreamError
from midstream.storage.durable_file import new_file
from midstream.storage.local import LocalStore
from midstream.storage.output_table import OutputTable, TaskId


@pytest.fixture(params=["ENOSPC", "EDQUOT"])
def full(request, monkeypatch):
    def fsync(descriptor: int) -> None:
        raise OSError(getattr(errno, request.param), "the disk says no")

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_file_that_could_not_be_written_whole_is_gone(tmp_path):
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "x") as file:
        file.writelines(bytes([10 // left]) for left in (2, 1, 0))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_is_left_alone(tmp_path):
    (tmp_path / "x").write_bytes(b"theirs")
    with pytest.raises(FileExistsError), new_file(tmp_path / "x"):
        pass
    assert (tmp_path / "x").read_bytes() == b"theirs"


def test_a_store_on_a_full_disk_says_so_and_leaves_nothing(full, tmp_path):
    store = LocalStore(str(tmp_path))
    for write in (store.put, store.put_if_absent):
        with pytest.raises(StreamError, match=rf"must have space .* that of {tmp_path}\. Hint: make space"):
            write("slices/x", b"bytes")
    assert store.list("slices") == store.list("temporary") == []


def test_results_on_a_full_disk_say_so_and_leave_nothing(full, tmp_path):
    table = OutputTable("results", str(tmp_path), "query")
    with pytest.raises(StreamError, match=rf"must have space .* that of {tmp_path}\. Hint: make space"):
        table.stage(TaskId(epoch=0, partition=0, fragment=0), pa.table({"x": [1]}))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_other_troubles_of_a_disk_stay_what_they_are(tmp_path, monkeypatch):
    def fsync(descriptor: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="the disk is broken"):
        LocalStore(str(tmp_path)).put("slices/x", b"bytes")

"""A new file is complete or removed, and a full disk is reported as such."""

import errno
import os
import stat
import threading

import pyarrow as pa
import pytest

from midstream.errors import StreamError
from midstream.storage.durable_file import new_file, write_new_files
from midstream.storage.local import LocalStore
from midstream.storage.output_table import FragmentRunId, OutputTable


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

    def put_many(name, data):
        store.put_all({f"{name}{number}": data for number in range(20)})

    for write in (store.put, store.put_if_absent, put_many):
        with pytest.raises(StreamError, match=rf"must have space .* that of {tmp_path}\. Hint: make space"):
            write("slices/x", b"bytes")
    assert store.list("slices") == store.list("temporary") == []


def test_many_files_get_their_names_when_all_are_on_the_disk(tmp_path, monkeypatch):
    store, synced, real = LocalStore(str(tmp_path)), [], os.fsync

    def fsync(descriptor: int) -> None:
        assert store.list("slices") == []
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            synced.append(os.fstat(descriptor).st_size)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    store.put_all({f"slices/{number}": bytes(number) for number in range(20)})
    assert sorted(synced) == list(range(20))
    assert len(store.list("slices")) == 20


@pytest.mark.parametrize("threads", [0, 3])
def test_many_files_reach_the_disk_if_no_more_threads_can_be_started(tmp_path, monkeypatch, threads):
    synced: set[int] = set()
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def limited_start(thread: threading.Thread) -> None:
        if len(started) == threads:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    def fsync(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(threading.Thread, "start", limited_start)
    write_new_files({tmp_path / str(number): bytes(number) for number in range(20)}, 0o600)
    assert len(started) == threads
    assert synced == set(range(20))


def test_of_many_files_none_is_left_if_one_cannot_be_written(tmp_path, monkeypatch):
    taken = tmp_path / "2"
    taken.write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        write_new_files({tmp_path / name: b"ours" for name in "0123"}, 0o600)
    assert [path.name for path in tmp_path.iterdir()] == ["2"]
    assert taken.read_bytes() == b"theirs"


def test_results_on_a_full_disk_say_so_and_leave_nothing(full, tmp_path):
    table = OutputTable("results", str(tmp_path), "query")
    with pytest.raises(StreamError, match=rf"must have space .* that of {tmp_path}\. Hint: make space"):
        table.stage(FragmentRunId(epoch=0, partition=0, fragment=0), pa.table({"x": [1]}))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_other_troubles_of_a_disk_stay_what_they_are(tmp_path, monkeypatch):
    def fsync(descriptor: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="the disk is broken"):
        LocalStore(str(tmp_path)).put("slices/x", b"bytes")

import stat

import pytest

from midstream.errors import CheckpointError
from midstream.storage.local import LocalStore
from midstream.storage.memory_store import MemoryStore


@pytest.fixture(params=["memory", "local", "remote"])
def store(request, tmp_path):
    if request.param == "remote":
        return request.getfixturevalue("remote")
    return MemoryStore() if request.param == "memory" else LocalStore(str(tmp_path / "new" / "store"))


def test_what_is_put_is_read(store):
    store.put("folder/x", b"one")
    assert store.read("folder/x").to_pybytes() == b"one"
    store.put("folder/x", b"two")
    assert store.read("folder/x").to_pybytes() == b"two"
    store.put("folder/empty", b"")
    assert store.read("folder/empty").to_pybytes() == b""


def test_many_files_are_put_at_once(store):
    files = {f"slices/{number}": bytes([number]) * number for number in range(40)}
    store.put("slices/3", b"before")
    store.put_all(files)
    assert {name: store.read(name).to_pybytes() for name in store.list("slices")} == files
    store.put_all({})
    assert store.list("temporary") == []


def test_the_first_writer_wins(store):
    assert store.put_if_absent("m/1", b"one")
    assert not store.put_if_absent("m/1", b"two")
    assert store.read("m/1").to_pybytes() == b"one"
    assert store.list("m") == ["m/1"]


def test_names_are_listed_in_order_by_folder(store):
    assert store.list("m") == []
    for name in ("m/2", "m/1", "other/3", "m/10"):
        store.put(name, b"")
    assert store.list("m") == ["m/1", "m/10", "m/2"]


def test_deleting_what_is_not_there_is_no_error(store):
    store.put("m/1", b"")
    store.delete("m/1")
    store.delete("m/1")
    assert store.list("m") == []


def test_a_file_that_is_not_there_is_named(store):
    with pytest.raises(CheckpointError, match="needs must be there; got no m/1"):
        store.read("m/1")


@pytest.mark.parametrize(
    "name", ["../x", "m/../../x", "/etc/passwd", "m//x", "", ".", "m/.", "..", "m\\..\\x", "m/x\0", "m/"]
)
def test_no_name_leads_out_of_a_local_store(tmp_path, name):
    store = LocalStore(str(tmp_path / "store"))
    for operation in (
        store.read,
        store.delete,
        store.list,
        lambda n: store.put(n, b"x"),
        lambda n: store.put_all({"m/x": b"x", n: b"x"}),
        lambda n: store.put_if_absent(n, b"x"),
    ):
        with pytest.raises(CheckpointError, match="must stay inside it"):
            operation(name)
    assert list(tmp_path.iterdir()) == []


def test_only_the_owner_can_read_a_local_store(tmp_path):
    store = LocalStore(str(tmp_path / "store"))
    store.put("slices/x", b"")
    store.put_if_absent("manifests/1", b"")
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "store").rglob("*")}
    folders = dict.fromkeys(("slices", "manifests", "temporary"), 0o700)
    assert modes == {**folders, "x": 0o600, "1": 0o600}


def test_the_folder_of_a_local_store_is_private_too(tmp_path):
    LocalStore(str(tmp_path / "store")).put("slices/x", b"")
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700


def test_no_temporary_file_stays_or_shows(tmp_path):
    store = LocalStore(str(tmp_path))
    store.put("m/1", b"")
    store.put_if_absent("m/1", b"")
    assert store.list("m") == ["m/1"]
    assert store.list("temporary") == []


def test_a_mapped_file_can_be_deleted_while_it_is_read(tmp_path):
    store = LocalStore(str(tmp_path))
    store.put("m/1", b"bytes")
    data = store.read("m/1")
    store.delete("m/1")
    assert data.to_pybytes() == b"bytes"

"""Checkpoints that were tampered with, with matching digests: refused, and nothing outside is touched."""

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from midstream.errors import CheckpointError
from midstream.inline import InlineJoin
from midstream.protocol.coordinator import Coordinator
from midstream.state.manifest import OutputFile
from midstream.storage.fsck import check as fsck
from midstream.storage.lease import acquire_lease
from midstream.storage.local import LocalStore
from midstream.storage.memory_store import MemoryStore
from midstream.storage.output_table import OutputTable
from tests.golden.case import EPOCHS, QUERY, SETTINGS
from tests.storage.tampering import Change, deepen, far_offsets, go_on, in_a_process, replace_slices, tamper


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("sound")
    query = InlineJoin(QUERY, settings=SETTINGS, store=LocalStore(str(folder)))
    for epoch in EPOCHS[:3]:
        query.run_epoch(epoch)
    return folder


@pytest.fixture
def checkpoint(sound, tmp_path) -> Path:
    (tmp_path / "outside").write_text("mine")
    return Path(shutil.copytree(sound, tmp_path / "checkpoint"))


def _retire(name: str) -> Change:
    # Old enough to be deleted after the next commit.
    return lambda m: m["retired"].append({"name": name, "epoch": -7})


def _name(name: str) -> Change:
    return lambda m: [slice_.update(name=name) for slice_ in m["slices"]]


def _nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


MIGRATION = {
    "number": 1,
    "old_plan": "a b c",
    "new_plan": "a (b c)",
    "strategy": "hybrid",
    "background": True,
    "isolated": False,
    "start_epoch": 1,
    "state_ids": {},
    "handover": {},
    "latest_times": {},
}

TAMPERED: dict[str, Change] = {
    "a slice above": _name("../../outside"),
    "a slice elsewhere": _name("/etc/passwd"),
    "a slice with a zero": _name("x\0.arrow"),
    "a file to delete above": _retire("../../outside"),
    "a file to delete elsewhere": _retire("/etc/passwd"),
    "a slice of another stream": lambda m: m["slices"][0]["owner"].update(state="a,z"),
    "a slice of no partition": lambda m: m["slices"][0]["owner"].update(partition=99),
    "a slice with too few times": lambda m: m["slices"][0].update(latest=[]),
    "no streams": lambda m: m.update(streams={}),
    "another plan": lambda m: m.update(plan="(a b) (c z)"),
    "a plan that is none": lambda m: m.update(plan="__import__('os')"),
    "no options": lambda m: m["definition"].pop("options"),
    "too many partitions": lambda m: m["definition"]["options"].update(partitions=10**9, groups=10**9),
    "partitions as text": lambda m: m["definition"]["options"].update(partitions="2"),
    "a query that is none": lambda m: m.update(definition={}),
    "columns that are none": lambda m: m["definition"]["streams"]["a"].update(columns=[1]),
    "another epoch": lambda m: m.update(epoch=7),
    "a slice of an epoch to come": lambda m: m["slices"][0].update(last_epoch=m["epoch"] + 1),
    "a slice of an epoch far ahead": lambda m: m["slices"][0].update(last_epoch=10**6),
    "a slice that ends before it begins": lambda m: m["slices"][0].update(first_epoch=2, last_epoch=1),
    "a slice from before the first epoch": lambda m: m["slices"][0].update(first_epoch=-1),
    "a slice from long before": lambda m: m["slices"][0].update(first_epoch=-(2**63), last_epoch=-(2**62)),
    "a plan of ten thousand nodes": lambda m: m.update(plan="(" * 10_000 + "a" + " b)" * 10_000 + " c"),
    "a migration to ten thousand nodes": lambda m: m.update(
        migration={**MIGRATION, "new_plan": "(" * 10_000 + "a" + " b)" * 10_000 + " c"}
    ),
    "ten thousand parentheses": lambda m: m.update(plan="(" * 10_000),
    "a query that is nested deeply": lambda m: m["definition"].update(on=_nested(400)),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_tampered_manifest_is_refused(checkpoint, what):
    tamper(checkpoint, TAMPERED[what])
    # Without an earlier manifest that the query could go on from instead.
    for path in sorted((checkpoint / "manifests").glob("*.json"))[:-1]:
        path.unlink()
    with pytest.raises(CheckpointError):
        go_on(checkpoint)
    assert (checkpoint.parent / "outside").read_text() == "mine"
    assert sorted(path.name for path in checkpoint.parent.iterdir()) == ["checkpoint", "outside"]


@pytest.mark.parametrize("what", [what for what in TAMPERED if "delete" not in what])
def test_fsck_survives_a_tampered_manifest(checkpoint, what):
    tamper(checkpoint, TAMPERED[what])
    assert isinstance(fsck(LocalStore(str(checkpoint))).problems, tuple)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "..", "a/b", "a\\b", "", "x\0", ".x", "é"])
def test_a_name_of_an_output_file_does_not_lead_out_of_its_folder(tmp_path, name):
    outside = tmp_path / "outside"
    outside.write_text("mine")
    table = OutputTable("results", str(tmp_path / "out"), "0123abcd")
    (tmp_path / "out" / "_staged").mkdir(parents=True)
    (tmp_path / "out" / "_staged" / "good").touch()
    for output in (OutputFile("results", name, "good", 1), OutputFile("results", "good", name, 1)):
        with pytest.raises(CheckpointError, match="name of an output file must be a word"):
            table.publish([output])
    assert outside.read_text() == "mine"
    with pytest.raises(CheckpointError, match="must be a word"):
        OutputTable("results", str(tmp_path / "out"), name)


@pytest.mark.parametrize("name", ["slices", "manifests", "temporary", "leases", "published"])
def test_a_folder_that_is_a_link_is_refused_before_anything_in_it_is_deleted(checkpoint, name):
    elsewhere = checkpoint.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").touch()
    folder = checkpoint / name
    if folder.exists():
        folder.rename(checkpoint / "aside")
    folder.symlink_to(elsewhere, target_is_directory=True)
    store = LocalStore(str(checkpoint))
    for touch in (
        lambda: store.list(name),
        lambda: store.put(f"{name}/x", b""),
        lambda: store.put_if_absent(f"{name}/x", b""),
        lambda: store.read(f"{name}/mine"),
        lambda: store.delete(f"{name}/mine"),
    ):
        with pytest.raises(CheckpointError, match="plain files and folders"):
            touch()
    if name != "leases":
        with pytest.raises(CheckpointError, match="plain files and folders"):
            go_on(checkpoint)
    assert [path.name for path in elsewhere.iterdir()] == ["mine"]


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_slice_that_is_no_plain_file_is_refused(checkpoint, kind):
    for path in (checkpoint / "slices").iterdir():
        moved = path.rename(checkpoint.parent / path.name)
        if kind == "link":
            path.symlink_to(moved)
        else:
            os.mkfifo(path)
    with pytest.raises(CheckpointError, match="plain files and folders"):
        go_on(checkpoint)


class Bomb:
    """What runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.path,)


def test_a_pickle_is_never_loaded(tmp_path, checkpoint):
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"))
    for folder in ("slices", "manifests"):
        for path in (checkpoint / folder).iterdir():
            path.write_bytes(bomb)
        with pytest.raises(CheckpointError):
            go_on(checkpoint)
        assert fsck(LocalStore(str(checkpoint))).problems
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"host":1}', b"\xff"])
def test_a_lease_that_is_none_is_refused(data):
    store = MemoryStore()
    store.put("leases/000000000001.json", data)
    with pytest.raises(CheckpointError, match=r"lease leases/000000000001.json must be readable"):
        acquire_lease(store, "mine")


BRACKETS = b"[" * 200_000 + b"]" * 200_000
BRACES = b'{"a":' * 200_000 + b"1" + b"}" * 200_000


def _sealed(kind: str, body: bytes) -> bytes:
    return b'{"sha256":"%s","%s":%s}' % (hashlib.sha256(body).hexdigest().encode(), kind.encode(), body)


def _deep_files() -> Iterator[tuple[str, bytes]]:
    for deep in (BRACKETS, BRACES):
        for name in ("manifests/000000000001-000000000002.json", "manifests/000000000009-000000000002.json"):
            yield name, deep
            yield name, _sealed("manifest", deep)
            yield name, _sealed("manifest", b'{"format":5,"definition":%s}' % deep)
            yield name, _sealed("manifest", b'{"format":4,"query":%s}' % deep)
            yield name, _sealed("manifest", b'{"format":5,"unknown":%s}' % deep)
        yield "requests/000001", deep
        yield "requests/000001", b'{"plan":%s}' % deep
        yield "requests/000001", _sealed("request", b'{"plan":%s}' % deep)
        yield "leases/000000000001.json", deep
        yield "leases/000000000001.json", b'{"host":%s}' % deep
        yield "intents/000000000003.json", deep
        yield "intents/000000000003.json", _sealed("intent", deep)
        yield "intents/000000000003.json", _sealed("intent", b'{"epoch":3,"first":{"definition":%s}}' % deep)
    plan = "(" * 10_000 + "a" + " b)" * 10_000 + " c"
    request = {"plan": plan, "strategy": "hybrid", "background": True, "isolated": None}
    yield "requests/000001", json.dumps(request).encode()


def test_no_file_is_nested_deeply_enough_to_end_the_process(checkpoint):
    """In a process of its own: what goes wrong here may go wrong in a library that is not Python's."""
    for number, (name, data) in enumerate(_deep_files()):
        folder = f"deep-{name.partition('/')[0]}-{number:02d}"
        copy = Path(shutil.copytree(checkpoint, checkpoint.parent / folder))
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_bytes(data)
        if name.startswith("manifests/"):
            # Without an earlier one that the query could go on from.
            for path in (copy / "manifests").iterdir():
                if path != copy / name:
                    path.unlink()
    script = """
import sys
from pathlib import Path
from midstream.errors import CheckpointError
from midstream.storage.fsck import check as fsck
from midstream.storage.lease import acquire_lease
from midstream.storage.local import LocalStore
from tests.storage.tampering import go_on
folders = sorted(Path(sys.argv[1]).glob("deep-*"))
for folder in folders:
    store = LocalStore(str(folder))
    fsck(store)
    try:
        if "leases" in folder.name:
            acquire_lease(store, "mine")
        go_on(folder)
    except CheckpointError as error:
        assert len(str(error)) < 100_000
    else:
        sys.exit(f"{folder} was gone on from")
print(len(folders), "refused")
"""
    done = in_a_process(script, checkpoint.parent)
    assert (done.returncode, done.stdout) == (0, f"{number + 1} refused\n"), done.stderr[-2000:]


def test_slices_that_lead_out_of_themselves_or_are_nested_deeply_are_refused(checkpoint):
    """In a process of its own, as above."""
    # Whatever the manifest says of the epochs of a slice whose offsets lead out of it.
    for number, more in enumerate([{}, {"last_epoch": 10**6}, {"last_epoch": 3}]):
        copy = Path(shutil.copytree(checkpoint, checkpoint.parent / f"slices-far-{number}"))
        assert replace_slices(copy, "payload", far_offsets, **more)
    for depth in (100, 900):
        copy = Path(shutil.copytree(checkpoint, checkpoint.parent / f"slices-nested-{depth}"))
        for changed in ("index", "payload"):
            assert replace_slices(copy, changed, deepen(depth), rows=0)
    script = """
import sys
from pathlib import Path
from midstream.errors import CheckpointError
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from tests.storage.tampering import go_on
for folder in sorted(Path(sys.argv[1]).glob("slices-*")):
    print(folder.name, flush=True)
    if "nested" in folder.name:
        assert fsck(LocalStore(str(folder))).problems
    try:
        go_on(folder)
    except CheckpointError as error:
        print("refused", flush=True)
"""
    done = in_a_process(script, checkpoint.parent)
    folders = ["slices-far-0", "slices-far-1", "slices-far-2", "slices-nested-100", "slices-nested-900"]
    wanted = "".join(f"{folder}\nrefused\n" for folder in folders)
    assert (done.returncode, done.stdout) == (0, wanted), done.stderr[-2000:]


def test_a_slice_with_a_name_that_is_no_text_is_refused(checkpoint):
    def spoil(data: bytes) -> bytes:
        assert b"time " in data
        return data.replace(b"time ", b"tim\xff ")

    assert replace_slices(checkpoint, "index", spoil)
    with pytest.raises(CheckpointError, match="a slice must have the bytes that its manifest names"):
        go_on(checkpoint)


@pytest.fixture
def other(tmp_path, monkeypatch) -> Path:
    """A checkpoint of the same question by another query, over other rows."""
    first = Coordinator.initial_manifest
    monkeypatch.setattr(Coordinator, "initial_manifest", lambda self, _id, plan: first(self, "other", plan))
    folder: Path = tmp_path / "other"
    query = InlineJoin(QUERY, settings=SETTINGS, store=LocalStore(str(folder)))
    for epoch in EPOCHS[1:6]:
        query.run_epoch(epoch)
    monkeypatch.undo()
    return folder


def _manifests(checkpoint: Path) -> list[Path]:
    return sorted((checkpoint / "manifests").glob("*.json"))


def _named(checkpoint: Path) -> set[str]:
    return {problem.file for problem in fsck(LocalStore(str(checkpoint))).problems}


def test_all_manifests_of_another_query_are_refused(checkpoint, other):
    shutil.rmtree(checkpoint / "manifests")
    shutil.copytree(other / "manifests", checkpoint / "manifests")
    with pytest.raises(CheckpointError, match="must be there; got no slices/"):
        InlineJoin(QUERY, settings=SETTINGS, store=LocalStore(str(checkpoint))).run_epoch(EPOCHS[6])
    assert any(name.startswith("slices/") for name in _named(checkpoint))


@pytest.mark.parametrize("epoch", [2, 3, 4], ids=["in its place", "as the next", "further ahead"])
@pytest.mark.parametrize("slices", [False, True], ids=["alone", "with its slices"])
def test_the_newest_manifest_of_another_query_is_refused(checkpoint, other, epoch, slices):
    swapped = _manifests(other)[epoch]
    shutil.copy(swapped, checkpoint / "manifests")
    if slices:
        for path in (other / "slices").iterdir():
            shutil.copy(path, checkpoint / "slices")
    with pytest.raises(CheckpointError, match=r"must be the one that .* follows; got that of another query"):
        go_on(checkpoint)
    assert f"manifests/{swapped.name}" in _named(checkpoint)


def test_an_older_manifest_that_was_put_back_is_refused(checkpoint):
    for path in _manifests(checkpoint)[1:]:
        path.unlink()
    with pytest.raises(CheckpointError, match=r"must be that of epoch 2, .*; got that of epoch 0"):
        go_on(checkpoint)
    _manifests(checkpoint)[0].unlink()
    with pytest.raises(CheckpointError, match=r"must be that of epoch 2, .*; got none"):
        go_on(checkpoint)


def test_slices_of_another_query_with_names_that_fit_are_refused(checkpoint, other):
    theirs = json.loads(_manifests(other)[2].read_text())["manifest"]["slices"]
    for path in (other / "slices").iterdir():
        shutil.copy(path, checkpoint / "slices")
    tamper(checkpoint, lambda m: m.update(slices=theirs))
    for path in _manifests(checkpoint)[:-1]:
        path.unlink()
    with pytest.raises(CheckpointError, match="with rows of another query"):
        go_on(checkpoint)
    assert {f"slices/{slice_['name']}" for slice_ in theirs} == _named(checkpoint)


def test_an_intent_of_another_epoch_is_refused(checkpoint):
    name = checkpoint / "intents" / "000000000003.json"
    shutil.copy(checkpoint / "intents" / "000000000002.json", name)
    with pytest.raises(CheckpointError, match="must be the intent of its epoch; got that of epoch 2"):
        go_on(checkpoint)
    assert _named(checkpoint) == {"intents/000000000003.json"}

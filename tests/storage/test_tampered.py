"""Checkpoints that somebody else wrote into, with digests that fit: refused, and nothing outside touched."""

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from midstream.errors import CheckpointError
from midstream.inline import InlineJoin
from midstream.state.manifest import OutputFile
from midstream.storage.fsck import check
from midstream.storage.lease import take_lease
from midstream.storage.local import LocalStore
from midstream.storage.memory import MemoryStore
from midstream.storage.output import OutputTable
from tests.golden.case import EPOCHS, QUERY, SETTINGS

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("sound")
    query = InlineJoin(QUERY, settings=SETTINGS, store=LocalStore(str(folder)))
    for epoch in EPOCHS[:3]:
        query.epoch(epoch)
    return folder


@pytest.fixture
def checkpoint(sound, tmp_path) -> Path:
    (tmp_path / "victim").write_text("mine")
    return Path(shutil.copytree(sound, tmp_path / "checkpoint"))


def _go_on(checkpoint: Path) -> None:
    query = InlineJoin(QUERY, settings=SETTINGS, store=LocalStore(str(checkpoint)))
    query.epoch(EPOCHS[3])


def _tamper(checkpoint: Path, change: Change) -> None:
    path = sorted((checkpoint / "manifests").glob("*.json"))[-1]
    manifest = json.loads(path.read_text())["manifest"]
    change(manifest)
    body = json.dumps(manifest, separators=(",", ":"))
    path.write_text(f'{{"sha256":"{hashlib.sha256(body.encode()).hexdigest()}","manifest":{body}}}')


def _retire(name: str) -> Change:
    # Old enough to be deleted after the next commit.
    return lambda m: m["retired"].append({"name": name, "epoch": -7})


def _name(name: str) -> Change:
    return lambda m: [slice_.update(name=name) for slice_ in m["slices"]]


TAMPERED: dict[str, Change] = {
    "a slice above": _name("../../victim"),
    "a slice elsewhere": _name("/etc/passwd"),
    "a slice with a zero": _name("x\0.arrow"),
    "a file to delete above": _retire("../../victim"),
    "a file to delete elsewhere": _retire("/etc/passwd"),
    "a slice of another stream": lambda m: m["slices"][0]["owner"].update(state="a,z"),
    "a slice of no partition": lambda m: m["slices"][0]["owner"].update(partition=99),
    "a slice with too few times": lambda m: m["slices"][0].update(latest=[]),
    "no streams": lambda m: m.update(streams={}),
    "another plan": lambda m: m.update(plan="(a b) (c z)"),
    "a plan that is none": lambda m: m.update(plan="__import__('os')"),
    "no options": lambda m: m["query"].pop("options"),
    "too many partitions": lambda m: m["query"]["options"].update(partitions=10**9, groups=10**9),
    "partitions as text": lambda m: m["query"]["options"].update(partitions="2"),
    "a query that is none": lambda m: m.update(query={}),
    "columns that are none": lambda m: m["query"]["streams"]["a"].update(columns=[1]),
    "another epoch": lambda m: m.update(epoch=7),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_tampered_manifest_is_refused(checkpoint, what):
    _tamper(checkpoint, TAMPERED[what])
    # No manifest before it that could be gone on from instead.
    for path in sorted((checkpoint / "manifests").glob("*.json"))[:-1]:
        path.unlink()
    with pytest.raises(CheckpointError):
        _go_on(checkpoint)
    assert (checkpoint.parent / "victim").read_text() == "mine"
    assert sorted(path.name for path in checkpoint.parent.iterdir()) == ["checkpoint", "victim"]


@pytest.mark.parametrize("what", [what for what in TAMPERED if "delete" not in what])
def test_fsck_survives_a_tampered_manifest(checkpoint, what):
    _tamper(checkpoint, TAMPERED[what])
    assert isinstance(check(LocalStore(str(checkpoint))).problems, tuple)


@pytest.mark.parametrize("name", ["../victim", "/etc/passwd", "..", "a/b", "a\\b", "", "x\0", ".x", "é"])
def test_a_name_of_an_output_file_does_not_lead_out_of_its_folder(tmp_path, name):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    table = OutputTable("results", str(tmp_path / "out"), "0123abcd")
    (tmp_path / "out" / "_staged").mkdir(parents=True)
    (tmp_path / "out" / "_staged" / "good").touch()
    for output in (OutputFile("results", name, "good", 1), OutputFile("results", "good", name, 1)):
        with pytest.raises(CheckpointError, match="name of an output file must be a word"):
            table.publish([output])
    assert victim.read_text() == "mine"
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
            _go_on(checkpoint)
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
        _go_on(checkpoint)


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
            _go_on(checkpoint)
        assert check(LocalStore(str(checkpoint))).problems
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"host":1}', b"\xff"])
def test_a_lease_that_is_none_is_refused(data):
    store = MemoryStore()
    store.put("leases/000000000001.json", data)
    with pytest.raises(CheckpointError, match=r"lease leases/000000000001.json must be readable"):
        take_lease(store, "mine")

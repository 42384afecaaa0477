"""Files made to run code, to end the process, or to be read past their end: refused."""

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from midstream.errors import CheckpointError
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from tests.storage.tampering import deepen, far_offsets, go_on, in_a_process, replace_slices


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


BRACKETS = b"[" * 200_000 + b"]" * 200_000
BRACES = b'{"a":' * 200_000 + b"1" + b"}" * 200_000


def _with_digest(kind: str, body: bytes) -> bytes:
    return b'{"sha256":"%s","%s":%s}' % (hashlib.sha256(body).hexdigest().encode(), kind.encode(), body)


def _deep_files() -> Iterator[tuple[str, bytes]]:
    for deep in (BRACKETS, BRACES):
        for name in ("manifests/000000000001-000000000002.json", "manifests/000000000009-000000000002.json"):
            yield name, deep
            yield name, _with_digest("manifest", deep)
            yield name, _with_digest("manifest", b'{"format":5,"definition":%s}' % deep)
            yield name, _with_digest("manifest", b'{"format":4,"query":%s}' % deep)
            yield name, _with_digest("manifest", b'{"format":5,"unknown":%s}' % deep)
        yield "requests/000001", deep
        yield "requests/000001", b'{"plan":%s}' % deep
        yield "requests/000001", _with_digest("request", b'{"plan":%s}' % deep)
        yield "leases/000000000001.json", deep
        yield "leases/000000000001.json", b'{"host":%s}' % deep
        yield "intents/000000000003.json", deep
        yield "intents/000000000003.json", _with_digest("intent", deep)
        yield (
            "intents/000000000003.json",
            _with_digest("intent", b'{"epoch":3,"first":{"definition":%s}}' % deep),
        )
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

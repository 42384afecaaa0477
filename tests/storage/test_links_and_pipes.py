"""Links and pipes in the place of folders and slices are refused: they may lead out of the checkpoint."""

import os

import pytest

from midstream.errors import CheckpointError
from midstream.storage.local import LocalStore
from tests.storage.tampering import go_on


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

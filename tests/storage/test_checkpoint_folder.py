"""Folders that are of somebody else, or cannot be used, are refused with the reason."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from midstream.errors import CheckpointError, OptionError
from midstream.storage.checkpoint_folder import check_not_foreign, explain_unusable
from midstream.storage.lease import seize_lease
from midstream.storage.local import LocalStore
from midstream.storage.output_table import OutputTable
from tests.mounts import mounted
from tests.plain_errors import assert_plain

SPARK_CHECKPOINT = ("metadata", "offsets/0", "commits/0", "sources/0/0")


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (SPARK_CHECKPOINT, "the checkpoint of a query of Spark's own (commits, metadata, offsets, sources)"),
        (("notes.txt",), "a folder with other things in it (notes.txt)"),
        (("1.csv", "2.csv", "3.csv", "4.csv"), "(1.csv, 2.csv, 3.csv, ...)"),
        (("manifests/v1.json", "blobs/x"), "a folder with other things in it (blobs, manifests)"),
    ],
)
def test_a_checkpoint_of_somebody_else_is_refused_by_name(tmp_path, files, told):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CheckpointError) as raised:
        check_not_foreign(str(tmp_path), LocalStore(str(tmp_path)))
    assert_plain(raised.value)
    assert told in str(raised.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_checkpoint_inside_of_another_is_refused(checkpoint, tmp_path):
    """The other one would delete its files, which are none of its own."""
    (tmp_path / "link").symlink_to(checkpoint / "slices")
    for folder in (checkpoint / "slices" / "x", tmp_path / "link" / "x" / "y"):
        with pytest.raises(CheckpointError) as raised:
            check_not_foreign(str(folder), LocalStore(str(folder)))
        assert_plain(raised.value)
        assert f"got {folder}, inside of {checkpoint}. Hint: give the join a folder beside" in str(
            raised.value
        )
    moved = shutil.copytree(checkpoint, checkpoint / "inside")
    check_not_foreign(str(moved), LocalStore(str(moved)))  # one that is there already is not taken away


def test_checkpoints_of_joins_and_empty_folders_are_not_refused(checkpoint, tmp_path):
    (tmp_path / "new" / "lost+found").mkdir(parents=True)
    (tmp_path / "new" / ".hidden").touch()
    (tmp_path / "begun" / "temporary").mkdir(parents=True)
    (tmp_path / "leased" / "leases").mkdir(parents=True)
    (tmp_path / "leased" / "leases" / "000000000001.beat").touch()
    for folder in (checkpoint, tmp_path / "none", *(tmp_path / n for n in ("new", "begun", "leased"))):
        check_not_foreign(str(folder), LocalStore(str(folder)))


@pytest.fixture
def read_only(tmp_path) -> Iterator[Path]:
    """A folder on a disk that is mounted for reading only."""
    with mounted(tmp_path / "read-only", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs") as folder:
        yield folder


def _must_be_unusable(location: Path, reason: str) -> None:
    with pytest.raises(CheckpointError) as raised, explain_unusable("x", str(location), CheckpointError):
        seize_lease(LocalStore(str(location)), "test")
    assert_plain(raised.value)
    assert f"got {location}" in str(raised.value)
    assert reason in str(raised.value)


def test_folders_that_cannot_be_used_are_named_with_the_reason(tmp_path, read_only):
    (tmp_path / "file").touch()
    _must_be_unusable(tmp_path / "file", f"where {tmp_path / 'file'} is a file")
    _must_be_unusable(tmp_path / "file" / "below", f"where {tmp_path / 'file'} is a file")
    _must_be_unusable(read_only / "checkpoint", "Read-only file system")
    table = OutputTable(table="results", path=str(read_only / "out"), query="q")
    with pytest.raises(OptionError) as raised, explain_unusable("path", table.path, OptionError):
        table.identified()
    assert_plain(raised.value)

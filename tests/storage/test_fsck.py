"""What ``fsck`` and ``gc`` say of a sound, a damaged and a littered checkpoint."""

import json

import pytest
from typer.testing import CliRunner

from midstream.cli.main import app
from midstream.inline import InlineJoin
from midstream.storage.fsck import check
from midstream.storage.local import LocalStore
from midstream.storage.manifest_log import restore_manifest
from tests.golden.case import EPOCHS, QUERY, SETTINGS


@pytest.fixture
def checkpoint(tmp_path):
    query = InlineJoin(QUERY, settings=SETTINGS, store=LocalStore(str(tmp_path)))
    for epoch in EPOCHS[:5]:
        query.run_epoch(epoch)
    return tmp_path


def _flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _newest(checkpoint):
    return sorted((checkpoint / "manifests").glob("*.json"))[-1]


def test_a_sound_checkpoint_has_no_problems(checkpoint):
    done = CliRunner().invoke(app, ["fsck", str(checkpoint), "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["epoch"] == 4


@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
def test_each_damaged_slice_is_named(checkpoint, damage):
    name = json.loads(_newest(checkpoint).read_text())["manifest"]["slices"][0]["name"]
    path = checkpoint / "slices" / name
    if damage == "flip":
        _flip(path)
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.unlink()
    problems = check(LocalStore(str(checkpoint))).problems
    assert {problem.file for problem in problems} == {f"slices/{name}"}
    assert CliRunner().invoke(app, ["fsck", str(checkpoint)]).exit_code == 4


def test_a_damaged_newest_manifest_is_named_and_done_without(checkpoint):
    _flip(_newest(checkpoint))
    store = LocalStore(str(checkpoint))
    assert [p.file for p in check(store).problems] == ["manifests/000000000001-000000000004.json"]
    restored = restore_manifest(store, 2)
    assert restored is not None
    assert restored.manifest.epoch == 3
    assert check(store).problems == ()
    again = InlineJoin(QUERY, settings=SETTINGS, store=store)
    again.run_epoch(EPOCHS[4])
    assert again.manifest.epoch == 4


def test_gc_lists_and_deletes_only_what_nobody_names(checkpoint):
    stray = checkpoint / "slices" / f"{'0' * 64}.arrow"
    stray.write_bytes(b"")
    before = check(LocalStore(str(checkpoint)))
    assert before.orphans == (f"slices/{stray.name}",)
    listed = CliRunner().invoke(app, ["gc", str(checkpoint)])
    assert (listed.exit_code, stray.exists()) == (0, True)
    deleted = CliRunner().invoke(app, ["gc", str(checkpoint), "--delete"])
    assert (deleted.exit_code, stray.exists()) == (0, False)
    assert check(LocalStore(str(checkpoint))).problems == ()


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path):
    assert CliRunner().invoke(app, ["fsck", str(tmp_path)]).exit_code == 7

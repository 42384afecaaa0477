"""Parts of the checkpoint of another query, or of an earlier epoch, in the place of its own: refused."""

import json
import shutil
from pathlib import Path

import pytest

from midstream.errors import CheckpointError
from midstream.inline import InlineJoin
from midstream.protocol.coordinator import Coordinator
from midstream.storage.local import LocalStore
from tests.small_case import EPOCHS, QUERY, SETTINGS
from tests.storage.tampering import files_with_problems, go_on, manifests, tamper


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


def test_all_manifests_of_another_query_are_refused(checkpoint, other):
    shutil.rmtree(checkpoint / "manifests")
    shutil.copytree(other / "manifests", checkpoint / "manifests")
    with pytest.raises(CheckpointError, match="must be there; got no slices/"):
        InlineJoin(QUERY, settings=SETTINGS, store=LocalStore(str(checkpoint))).run_epoch(EPOCHS[6])
    assert any(name.startswith("slices/") for name in files_with_problems(checkpoint))


@pytest.mark.parametrize("epoch", [2, 3, 4], ids=["in its place", "as the next", "further ahead"])
@pytest.mark.parametrize("slices", [False, True], ids=["alone", "with its slices"])
def test_the_newest_manifest_of_another_query_is_refused(checkpoint, other, epoch, slices):
    swapped = manifests(other)[epoch]
    shutil.copy(swapped, checkpoint / "manifests")
    if slices:
        for path in (other / "slices").iterdir():
            shutil.copy(path, checkpoint / "slices")
    with pytest.raises(CheckpointError, match=r"must be the one that .* follows; got that of another query"):
        go_on(checkpoint)
    assert f"manifests/{swapped.name}" in files_with_problems(checkpoint)


def test_an_older_manifest_that_was_put_back_is_refused(checkpoint):
    for path in manifests(checkpoint)[1:]:
        path.unlink()
    with pytest.raises(CheckpointError, match=r"must be that of epoch 2, .*; got that of epoch 0"):
        go_on(checkpoint)
    manifests(checkpoint)[0].unlink()
    with pytest.raises(CheckpointError, match=r"must be that of epoch 2, .*; got none"):
        go_on(checkpoint)


def test_slices_of_another_query_with_names_that_fit_are_refused(checkpoint, other):
    theirs = json.loads(manifests(other)[2].read_text())["manifest"]["slices"]
    for path in (other / "slices").iterdir():
        shutil.copy(path, checkpoint / "slices")
    tamper(checkpoint, lambda m: m.update(slices=theirs))
    for path in manifests(checkpoint)[:-1]:
        path.unlink()
    with pytest.raises(CheckpointError, match="with rows of another query"):
        go_on(checkpoint)
    assert {f"slices/{slice_['name']}" for slice_ in theirs} == files_with_problems(checkpoint)


def test_an_intent_of_another_epoch_is_refused(checkpoint):
    name = checkpoint / "intents" / "000000000003.json"
    shutil.copy(checkpoint / "intents" / "000000000002.json", name)
    with pytest.raises(CheckpointError, match="must be the intent of its epoch; got that of epoch 2"):
        go_on(checkpoint)
    assert files_with_problems(checkpoint) == {"intents/000000000003.json"}

"""What ``fsck`` and ``gc`` say of a sound, a damaged and a littered checkpoint."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from typer.testing import CliRunner

from midstream.cli.main import app
from midstream.inline import InlineJoin
from midstream.memory.settings import MemorySettings
from midstream.protocol.settings import Settings
from midstream.state.expiry import Expiry
from midstream.state.manifest import encode_manifest
from midstream.storage.fsck import _SegmentIndex
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.storage.manifest_log import restore_manifest
from midstream.storage.memory_store import MemoryStore
from midstream.values import Micros
from tests.helpers import rows, small_query
from tests.small_case import EPOCHS, QUERY, SETTINGS, make_checkpoint


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A checkpoint of five epochs, of which conftest's ``checkpoint`` is a copy."""
    return make_checkpoint(tmp_path_factory.mktemp("sound"), 5)


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


def test_a_checkpoint_may_be_named_in_every_way_in_which_queries_name_it(checkpoint, monkeypatch):
    monkeypatch.chdir(checkpoint.parent)
    for address in (checkpoint.name, f"./{checkpoint.name}/", checkpoint.as_uri(), f"file:{checkpoint}"):
        done = CliRunner().invoke(app, ["fsck", address, "--json"])
        assert (done.exit_code, json.loads(done.stdout)["epoch"]) == (0, 4), address


def test_an_address_that_no_query_takes_is_no_folder():
    done = CliRunner().invoke(app, ["fsck", "hdfs://host/checkpoint", "--json"])
    error = json.loads(done.stdout)["error"]
    assert (done.exit_code, error["kind"], error["got"]) == (3, "OptionError", "'hdfs://host/checkpoint'")


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
    problems = fsck(LocalStore(str(checkpoint))).problems
    assert {problem.file for problem in problems} == {f"slices/{name}"}
    assert CliRunner().invoke(app, ["fsck", str(checkpoint)]).exit_code == 4


def test_a_damaged_newest_manifest_is_named_and_done_without(checkpoint):
    _flip(_newest(checkpoint))
    store = LocalStore(str(checkpoint))
    assert [p.file for p in fsck(store).problems] == ["manifests/000000000001-000000000004.json"]
    restored = restore_manifest(store, 2)
    assert restored is not None
    assert restored.manifest.epoch == 3
    assert fsck(store).problems == ()
    again = InlineJoin(QUERY, settings=SETTINGS, store=store)
    again.run_epoch(EPOCHS[4])
    assert again.manifest.epoch == 4


@pytest.mark.parametrize("partitions", [None, 5])
def test_rows_whose_payload_is_in_no_slice_that_their_partition_reads_are_named(partitions):
    query = InlineJoin(QUERY, settings=SETTINGS, store=(store := MemoryStore()))
    for epoch in EPOCHS[:4]:
        query.run_epoch(epoch)
    if partitions is not None:
        query.rescale(partitions)
    query.run_epoch(EPOCHS[4])
    assert fsck(store).problems == ()
    name, manifest = store.list("manifests")[-1], query.manifest
    payload = [each for each in manifest.slices if each.owner.kind == "payload"]
    for lost in payload:
        without = tuple(each for each in manifest.slices if each is not lost)
        store.put(name, encode_manifest(replace(manifest, slices=without)))
        found = {problem.what for problem in fsck(store).problems}
        assert found == {f"refers to rows of {lost.owner.state} that are in no slice"}


def test_rows_that_may_owe_something_have_their_payload_although_they_are_past_the_windows():
    query = small_query(["a.k = b.k"], "ab", default_window=100, select=["a.v as a"])
    settings = Settings(2, 4, memory=MemorySettings(1, cleanup_delay=Micros(10_000)))
    join = InlineJoin(query, settings=settings, store=(store := MemoryStore()))
    for epoch in range(8):
        join.run_epoch({name: rows((100 * epoch, 1, 1, "v")) for name in "ab"})
    assert fsck(store).problems == ()
    name, manifest = store.list("manifests")[-1], join.manifest
    expired = Expiry(query.windows, {n: s.watermark for n, s in manifest.streams.items()})
    owing = [s for s in manifest.slices if expired.has_expired(s.owner.state.streams, s.latest)]
    assert {slice_.owner.kind for slice_ in owing} == {"index", "payload"}
    lost = next(slice_ for slice_ in owing if slice_.owner.kind == "payload")
    without = tuple(each for each in manifest.slices if each is not lost)
    store.put(name, encode_manifest(replace(manifest, slices=without)))
    found = {problem.what for problem in fsck(store).problems}
    assert found == {f"refers to rows of {lost.owner.state} that are in no slice"}


@given(st.data())
def test_a_segment_is_found_in_any_slice_that_a_partition_reads(data):
    slices = data.draw(
        st.lists(st.tuples(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 3), min_size=1)), min_size=1)
    )
    masks = [np.isin(np.arange(4), list(readers)) for _, readers in slices]
    arrays = [np.array(sorted(segments), np.int64) for segments, _ in slices]
    index = _SegmentIndex.of(list(zip(arrays, masks, strict=True)))
    wanted, partition = data.draw(st.lists(st.integers(0, 9))), data.draw(st.integers(0, 3))
    referenced = np.array(wanted, np.int64)
    anywhere = all(any(segment in of for of, _ in slices) for segment in wanted)
    there = all(any(segment in of and partition in readers for of, readers in slices) for segment in wanted)
    assert (index.has(referenced, None), index.has(referenced, partition)) == (anywhere, there)


def test_gc_lists_and_deletes_only_what_nobody_names(checkpoint):
    stray = checkpoint / "slices" / f"{'0' * 64}.arrow"
    stray.write_bytes(b"")
    before = fsck(LocalStore(str(checkpoint)))
    assert before.orphans == (f"slices/{stray.name}",)
    listed = CliRunner().invoke(app, ["gc", str(checkpoint)])
    assert (listed.exit_code, stray.exists()) == (0, True)
    deleted = CliRunner().invoke(app, ["gc", str(checkpoint), "--delete"])
    assert (deleted.exit_code, stray.exists()) == (0, False)
    assert fsck(LocalStore(str(checkpoint))).problems == ()


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path):
    assert CliRunner().invoke(app, ["fsck", str(tmp_path)]).exit_code == 7

"""The store with faults has every fault that a store may have, and no others."""

import random

import pytest

from midstream.storage.memory_store import MemoryStore
from midstream.testing.faults import FaultStore, SimulatedCrash

SEEDS = range(100)


def text(store, name):
    return store.inner.files[name].to_pybytes() if name in store.inner.files else None


def test_without_a_budget_it_is_a_store_like_any_other():
    store, plain = FaultStore(random.Random(1), error_rate=1, death_rate=1, late_rate=1), MemoryStore()
    for one in (store, plain):
        one.put("slices/x", b"x")
        assert one.put_if_absent("manifests/1", b"1")
        assert not one.put_if_absent("manifests/1", b"2")
        one.delete("slices/y")
    assert store.list("slices") == plain.list("slices")
    assert store.inner.files == plain.files
    assert not store.faults


def after_a_power_cut(change) -> set[bytes | None]:
    """What a name may have that had 'old', synced, before it was changed."""
    found = set()
    for seed in SEEDS:
        store = FaultStore(random.Random(seed))
        store.put("slices/x", b"old")
        store.sync("slices")
        change(store)
        store.lose_power()
        found.add(text(store, "slices/x"))
    return found


def test_a_power_cut_undoes_what_was_not_synced_and_tears_nothing():
    assert after_a_power_cut(lambda store: store.put("slices/x", b"new")) == {b"old", b"new"}
    assert after_a_power_cut(lambda store: store.delete("slices/x")) == {b"old", None}


def test_a_power_cut_may_leave_any_state_since_the_last_sync():
    def change(store):
        store.delete("slices/x")
        store.put("slices/x", b"new")

    assert after_a_power_cut(change) == {b"old", None, b"new"}


def test_what_is_synced_or_put_if_absent_stays():
    def change(store):
        store.put("slices/x", b"new")
        store.sync("slices")
        store.put_if_absent("manifests/1", b"1")
        store.put_if_absent("manifests/1", b"2")

    assert after_a_power_cut(change) == {b"new"}


@pytest.mark.parametrize(("error_rate", "death_rate"), [(1, 0), (0, 1)])
def test_a_write_that_is_cut_off_leaves_its_part_under_a_temporary_name(error_rate, death_rate):
    torn = 0
    for seed in SEEDS:
        store = FaultStore(random.Random(seed), budget=1, error_rate=error_rate, death_rate=death_rate)
        with pytest.raises((OSError, SimulatedCrash)):
            store.put("slices/x", b"all of it")
        assert text(store, "slices/x") in (None, b"all of it")
        for name in store.list("temporary"):
            torn += 1
            assert b"all of it".startswith(text(store, name))
    assert torn > 0


def test_only_folders_that_are_cleaned_up_are_listed_late():
    store = FaultStore(random.Random(1), budget=100, late_rate=1)
    for folder in ("slices", "temporary", "staged", "manifests", "published", "leases"):
        store.put(f"{folder}/x", b"")
        late = folder in ("slices", "temporary", "staged")
        assert store.list(folder) == ([] if late else [f"{folder}/x"])
        assert store.read(f"{folder}/x").size == 0
    for _ in range(3):
        shown = store.list("slices")
    assert shown == ["slices/x"]
    store.delete("slices/x")
    assert store.list("slices") == ["slices/x"], "it is deleted, but still shown"


def test_an_answer_may_be_lost_but_not_the_file():
    answers: set[tuple[object, bytes | None]] = set()
    for seed in SEEDS:
        store = FaultStore(random.Random(seed), budget=1, error_rate=0.1)
        try:
            answers.add((store.put_if_absent("manifests/1", b"1"), text(store, "manifests/1")))
        except OSError:
            answers.add(("error", text(store, "manifests/1")))
    assert answers == {(True, b"1"), (False, b"1"), ("error", b"1"), ("error", None)}


def test_rot_changes_one_file_and_can_be_repaired():
    for seed in SEEDS:
        store = FaultStore(random.Random(seed))
        assert store.rot() is None
        store.put("slices/x", b"some bytes")
        store.put("leases/1", b"not this one")
        damage = store.rot()
        assert damage is not None
        assert (damage.name, text(store, "slices/x") != b"some bytes") == ("slices/x", True)
        store.repair(damage)
        assert text(store, "slices/x") == b"some bytes"

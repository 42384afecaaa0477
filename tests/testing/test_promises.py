"""Which commits the simulator counts as confirmed: those that are durable, and no others."""

from __future__ import annotations

import random

import pytest

from midstream.inline import InlineJoin
from midstream.storage.manifest_log import manifests_newest_first
from midstream.testing.broken_promise import BrokenPromiseError
from midstream.testing.faults import FaultStore
from midstream.testing.outcome import SimulationOutcome
from midstream.testing.promises import Promises
from midstream.testing.rescales import Rescales
from midstream.testing.workload import draw_workload
from tests.small_case import EPOCHS, QUERY, SETTINGS


@pytest.fixture
def promises() -> Promises:
    return Promises(draw_workload(random.Random(1), 1), Rescales(SimulationOutcome(1, "")))


@pytest.fixture
def store() -> FaultStore:
    """One in which two epochs were committed."""
    store = FaultStore(random.Random(1))
    query = InlineJoin(QUERY, settings=SETTINGS, store=store)
    for epoch in EPOCHS[:2]:
        query.run_epoch(epoch)
    return store


def test_a_commit_that_lasts_must_stay(promises, store):
    assert promises.check_store(store) == 1
    store.inner.delete(next(manifests_newest_first(store)).file)
    with pytest.raises(BrokenPromiseError, match="lasting: epoch 1 was committed, 0 is the last"):
        promises.check_store(store)


def test_a_commit_whose_driver_died_before_the_disk_confirmed_it_may_go_with_a_power_cut(promises, store):
    name = next(manifests_newest_first(store)).file
    data = store.read(name)
    store.delete(name)
    store.sync("manifests")
    # Like a link whose folder has not been synced yet.
    store.put(name, data)
    assert promises.check_store(store) == 1
    store.inner.delete(name)
    assert promises.check_store(store) == 0


def test_a_commit_that_was_confirmed_must_stay_whatever_the_disk_says(promises, store):
    promises.confirm(1)
    store.put("manifests/000000000001-000000000001.json", b"")
    store.inner.delete("manifests/000000000001-000000000001.json")
    with pytest.raises(BrokenPromiseError, match="lasting"):
        promises.check_store(store)

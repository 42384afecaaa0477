"""Stored states as a partition has them."""

from __future__ import annotations

from midstream.engine.stored_states import StoredStates
from midstream.inline import InlineJoin
from midstream.plan.state_id import StateId
from midstream.protocol.settings import Settings
from midstream.storage.memory_store import MemoryStore
from midstream.storage.slice_files import SliceFiles
from tests.helpers import rows, small_query

A = StateId.of(["a"])


def test_slices_of_two_keys_that_have_the_same_content_are_told_apart():
    """They have one name, since that says nothing but their content."""
    store = MemoryStore()
    join = InlineJoin(
        small_query(["a.k = b.k", "a.j = c.j"], "abc"), "a b c", settings=Settings(1, 1), store=store
    )
    join.run_epoch({name: rows((1, 7, 7), (2, 8, 8)) for name in "abc"})
    program = join.coordinator.program(join.manifest, join._runner.new_intent(1, None))
    (fragment,) = program.layout.fragments
    states = StoredStates(program, fragment, 0, SliceFiles(store).open)

    keys = {slice_.owner.key for slice_ in join.manifest.slices if slice_.owner.state == A}
    runs = {key: states.runs(A, key, lambda _slice: True) for key in keys}
    found = [run for of_key in runs.values() for run in of_key]
    assert len(found) == 2
    assert len({run.stored_in.name for run in found}) == 1
    assert all(run.key == run.stored_in.owner.key == key for key in keys for run in runs[key])

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

    stored = (slice_ for slice_ in join.manifest.slices if slice_.owner.state == A)
    slices = [slice_ for slice_ in stored if slice_.owner.kind == "index"]
    assert len({slice_.owner.key for slice_ in slices}) == len(slices) == 2
    assert len({slice_.name for slice_ in slices}) == 1
    for slice_ in slices:
        (run,) = states.runs(A, slice_.owner.key, lambda _slice: True)
        assert (run.key, run.stored_in) == (slice_.owner.key, slice_)

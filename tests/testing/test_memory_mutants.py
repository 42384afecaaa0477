"""Faults of spilling that are put into the code on purpose: a seed of the simulator names each of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest import mock

import msgspec
import pytest

from midstream.protocol.intent import Intent
from midstream.runtime import epoch_runner
from midstream.storage import intents
from midstream.storage.store import Store
from tests.memory.spill_faults import SPILL_FAULTS
from tests.testing.eventful_seeds import SEEDS, broken_promises, without_rescales_meanwhile

_read_intent = intents.write_or_read_intent


def _as_asked(store: Store, mine: Intent) -> Intent:
    """The intent of an epoch, but with a batch or without as this attempt has it."""
    return msgspec.structs.replace(_read_intent(store, mine), without_batch=mine.without_batch)


_SEEDS_OF_SPILL_FAULTS = {
    "no holds": 744,
    "purged debts": 43,
    "intermediate rows are probed across a cut": 44,
    "intermediate states are added to instead of rebuilt": 133,
}
MUTANTS: dict[str, tuple[int, Callable[[], AbstractContextManager[object]]]] = {
    **{name: (seed, SPILL_FAULTS[name]) for name, seed in _SEEDS_OF_SPILL_FAULTS.items()},
    "a batch takes the number of a drain that was begun": (
        183,
        lambda: mock.patch.object(epoch_runner, "write_or_read_intent", _as_asked),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_of_spilling_breaks_a_promise(monkeypatch, name):
    # Likely seeds were found without.
    without_rescales_meanwhile(monkeypatch)
    seed, fault = MUTANTS[name]
    with fault():
        broken = broken_promises(SEEDS, likely=[seed])
    assert len(broken & {"conservation", "prefix"}) == 1

"""Faults of spilling that are put into the code on purpose: a seed of the simulator names each of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from unittest import mock

import msgspec
import pytest

from midstream.engine.memory_step import StateCuts
from midstream.engine.probed_epochs import ProbedEpochs
from midstream.engine.spill_retention import SpillRetention
from midstream.protocol.intent import Intent
from midstream.runtime import epoch_runner
from midstream.storage import intents
from midstream.storage.store import Store
from tests.testing.eventful_seeds import SEEDS, broken_promises, without_rescales_meanwhile

_probed = ProbedEpochs.of
_read_intent = intents.write_or_read_intent


def _as_asked(store: Store, mine: Intent) -> Intent:
    """The intent of an epoch, but with a batch or without as this attempt has it."""
    return msgspec.structs.replace(_read_intent(store, mine), without_batch=mine.without_batch)


def _only_inputs(cuts: StateCuts) -> ProbedEpochs:
    return _probed(cuts if cuts.is_input else replace(cuts, cuts={}))


MUTANTS: dict[str, tuple[int, Callable[[], AbstractContextManager[object]]]] = {
    "no holds": (744, lambda: mock.patch("midstream.memory.next_step.holds_of", return_value=())),
    "purged debts": (43, lambda: mock.patch.object(SpillRetention, "_first_cut", return_value=None)),
    "intermediate rows are probed across a cut": (
        44,
        lambda: mock.patch.object(ProbedEpochs, "of", staticmethod(_only_inputs)),
    ),
    "intermediate states are added to instead of rebuilt": (
        133,
        lambda: mock.patch("midstream.memory.next_step._rebuilt_after", return_value={}),
    ),
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

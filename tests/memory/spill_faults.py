"""Faults of spilling to put into the code: comparisons of results find them, and so do promises."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from unittest import mock

from midstream.engine.memory_step import StateCuts
from midstream.engine.probed_epochs import ProbedEpochs
from midstream.engine.spill_retention import SpillRetention

_probed = ProbedEpochs.of


def _only_inputs(cuts: StateCuts) -> ProbedEpochs:
    return _probed(cuts if cuts.is_input else replace(cuts, cuts={}))


SPILL_FAULTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "no holds": lambda: mock.patch("midstream.memory.next_step.holds_of", return_value=()),
    "purged debts": lambda: mock.patch.object(SpillRetention, "_first_cut", return_value=None),
    "intermediate rows are probed across a cut": lambda: mock.patch.object(
        ProbedEpochs, "of", staticmethod(_only_inputs)
    ),
    "intermediate states are added to instead of rebuilt": lambda: mock.patch(
        "midstream.memory.next_step._rebuilt_after", return_value={}
    ),
}

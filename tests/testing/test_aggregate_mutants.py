"""Faults of aggregates that are put into the code on purpose: a seed of the simulator names each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from unittest import mock

import numpy as np
import pytest

from midstream.aggregate import emit, next_step, partials, run_fragment, update
from tests.testing.eventful_seeds import SEEDS, broken_promises, workload_of

_emitted, _merge, _find = emit.emitted_windows, partials.merge_partials, update._find
_watermark = next_step.output_watermark


def aggregated(*, updates: bool) -> Iterator[int]:
    """The seeds whose query has aggregates, in this mode."""
    for seed in SEEDS:
        aggregation = workload_of(seed).query.aggregation
        if aggregation is not None and aggregation.is_update_mode == updates:
            yield seed


def _again(aggregation, panes, emitted, until):
    before = None if emitted is None else emitted - aggregation.windows.slide
    return _emitted(aggregation, panes, before, until)


def _a_window_early(query, aggregation, manifest):
    until = _watermark(query, aggregation, manifest)
    return None if until is None else until + aggregation.windows.slide


def _first_of(aggregation, tables):
    return _merge(aggregation, tables[:1])


MUTANTS: dict[str, tuple[bool, int, Callable[[], AbstractContextManager[object]]]] = {
    "a window leaves twice": (
        False,
        157,
        lambda: mock.patch.object(run_fragment, "emitted_windows", _again),
    ),
    "a window leaves early": (
        False,
        76,
        lambda: mock.patch.object(next_step, "output_watermark", _a_window_early),
    ),
    "what other partitions send is lost": (
        False,
        76,
        lambda: mock.patch.object(run_fragment, "merge_partials", _first_of),
    ),
    "an update forgets what is stored": (
        True,
        12,
        lambda: mock.patch.object(update, "_find", lambda table, near: _find(table, near)[:0]),
    ),
    "the panes of a window that is open go": (
        True,
        12,
        lambda: mock.patch("midstream.protocol.coordinator.is_out", return_value=True),
    ),
    "only the pane itself is updated": (
        True,
        12,
        lambda: mock.patch.object(update, "_steps", return_value=np.zeros(1, np.int64)),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_of_aggregates_breaks_a_promise(name):
    updates, seed, fault = MUTANTS[name]
    with fault():
        broken = broken_promises(aggregated(updates=updates), likely=[seed])
    assert len(broken & {"prefix", "errors"}) == 1

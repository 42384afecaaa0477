"""A budget of memory is real: within a tenth of the memory that its state takes, a query goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.memory_limit import LOAD, memory_limit, run_within, why_not

STATE_BYTES = 490_000_000
TIMEOUT_SECONDS = 240


@pytest.mark.slow
@pytest.mark.usefixtures("on_disk")
def test_a_query_with_a_budget_lives_within_a_tenth_of_its_state_and_one_without_does_not():
    if problem := why_not():
        pytest.skip(problem)
    limit = STATE_BYTES // 10
    with memory_limit(limit) as group:
        outcome = run_within(replace(LOAD, budget=limit // 6, drains=True), group, TIMEOUT_SECONDS)
        assert len(outcome.seconds) == LOAD.epochs
        assert outcome.state_bytes > STATE_BYTES
        # What is owed is made within the same limit.
        assert outcome.drain is not None
        assert outcome.drain["results"] > 0
        # Hardly anything is read again of what was written.
        assert outcome.read_bytes < outcome.state_bytes // 2
    with memory_limit(limit) as group:
        outcome = run_within(LOAD, group, TIMEOUT_SECONDS)
        assert outcome.killed or outcome.read_bytes > STATE_BYTES
    assert not group.exists()

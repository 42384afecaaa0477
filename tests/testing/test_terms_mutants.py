"""Rules about terms that change can be broken, too: a seed names the promise."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from midstream.engine import changed_windows, joiner
from midstream.protocol import coordinator
from midstream.protocol.terms import committed_terms
from midstream.testing.broken_promise import BrokenPromiseError
from midstream.testing.simulate import simulate
from tests.testing.eventful_seeds import make_eventful, small_and_long, workload_of

SEEDS = 60
RATES = {"change_rate": 1.0, "stop_rate": 0.5, "pause_rate": 0.0, "crash_rate": 0.0, "rot_rate": 0.0}


def first_broken_promise() -> str | None:
    """What the first seed that fails says was broken."""
    # Windows stay as they are while there is a budget of memory.
    seeds = (seed for seed in small_and_long() if workload_of(seed).settings.memory is None)
    for seed in islice(seeds, SEEDS):
        try:
            simulate(seed)
        except BrokenPromiseError as error:
            return error.promise
    return None


@pytest.fixture(autouse=True)
def _change_terms_often(monkeypatch):
    make_eventful(monkeypatch, reset_rate=0.0, **RATES)


def test_rows_that_are_joined_by_the_newest_windows_alone_are_seen(monkeypatch):
    monkeypatch.setattr(
        joiner,
        "may_be_combined",
        lambda _purge, times, _epochs: np.ones(len(next(iter(times.values()))), bool),
    )
    assert first_broken_promise() in ("prefix", "conservation")


@pytest.mark.parametrize("kept", ["pairs from before a change", "rows in reach at a change"])
def test_half_of_the_rule_is_not_enough(monkeypatch, kept):
    real = changed_windows._may_meet

    def half(change, a, b, times, epochs):
        both_old = (epochs[a] < change.epoch) & (epochs[b] < change.epoch)
        checked = both_old if kept == "pairs from before a change" else ~both_old
        return real(change, a, b, times, epochs) | ~checked

    monkeypatch.setattr(changed_windows, "_may_meet", half)
    assert first_broken_promise() in ("prefix", "conservation")


def test_changes_that_are_forgotten_too_early_are_seen(monkeypatch):
    monkeypatch.setattr(coordinator, "lasting_changes", lambda _manifest: ())
    # Rows that had expired by the windows of then are searched, and fsck finds that their payload is gone.
    assert first_broken_promise() in ("prefix", "conservation", "fsck")


def test_an_epoch_that_runs_on_the_terms_of_now_instead_of_its_own_is_seen(monkeypatch):
    make_eventful(monkeypatch, reset_rate=0.0, **{**RATES, "crash_rate": 0.1})
    monkeypatch.setattr(coordinator, "query_on", lambda _terms, query: query)
    assert first_broken_promise() in {"replay", "conservation", "prefix", "errors"}


def test_terms_that_are_not_taken_over_are_seen(monkeypatch):
    monkeypatch.setattr(
        coordinator.Coordinator, "next_terms", lambda _self, manifest: committed_terms(manifest)
    )
    assert first_broken_promise() == "terms"

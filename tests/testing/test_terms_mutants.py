"""Rules about terms that change can be broken, too: a seed names the promise."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from midstream.engine import changed_windows, joiner
from midstream.protocol import coordinator
from midstream.protocol.query_terms import committed_terms
from tests.testing.eventful_seeds import broken_promises, make_eventful, small_and_long, workload_of

SEEDS = 60
RATES = {"change_rate": 1.0, "stop_rate": 0.5, "pause_rate": 0.0, "crash_rate": 0.0, "rot_rate": 0.0}


def broken_promise(likely: int) -> str:
    """What the first seed that fails says was broken; ``likely`` is one that fails."""
    # Windows stay as they are while there is a budget of memory.
    seeds = (seed for seed in small_and_long() if workload_of(seed).settings.memory is None)
    return next(iter(broken_promises(islice(seeds, SEEDS), likely=[likely])), "none")


@pytest.fixture(autouse=True)
def _change_terms_often(monkeypatch):
    make_eventful(monkeypatch, reset_rate=0.0, **RATES)


def test_rows_that_are_joined_by_the_newest_windows_alone_are_seen(monkeypatch):
    monkeypatch.setattr(
        joiner,
        "may_be_combined",
        lambda _purge, times, _epochs: np.ones(len(next(iter(times.values()))), bool),
    )
    assert broken_promise(likely=45) in ("prefix", "conservation")


@pytest.mark.parametrize("kept", ["pairs from before a change", "rows in reach at a change"])
def test_half_of_the_rule_is_not_enough(monkeypatch, kept):
    real = changed_windows._may_meet

    def half(change, a, b, times, epochs):
        both_old = (epochs[a] < change.epoch) & (epochs[b] < change.epoch)
        checked = both_old if kept == "pairs from before a change" else ~both_old
        return real(change, a, b, times, epochs) | ~checked

    monkeypatch.setattr(changed_windows, "_may_meet", half)
    assert broken_promise(likely=199) in ("prefix", "conservation")


def test_changes_that_are_forgotten_too_early_are_seen(monkeypatch):
    monkeypatch.setattr(coordinator, "active_window_changes", lambda _manifest: ())
    # Rows that had expired by the windows of then are searched, and fsck finds that their payload is gone.
    assert broken_promise(likely=114) in ("prefix", "conservation", "fsck")


def test_an_epoch_that_runs_on_the_terms_of_now_instead_of_its_own_is_seen(monkeypatch):
    make_eventful(monkeypatch, reset_rate=0.0, **{**RATES, "crash_rate": 0.1})
    monkeypatch.setattr(coordinator, "query_on", lambda _terms, query: query)
    assert broken_promise(likely=1) in {"replay", "conservation", "prefix", "errors"}


def test_terms_that_are_not_taken_over_are_seen(monkeypatch):
    monkeypatch.setattr(
        coordinator.Coordinator, "next_terms", lambda _self, manifest: committed_terms(manifest)
    )
    assert broken_promise(likely=0) == "terms"

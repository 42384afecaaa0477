"""The simulator detects conflicts of two drivers: with a safeguard removed, a seed breaks a promise."""

from __future__ import annotations

from itertools import islice

import pytest
from msgspec.structs import replace

from midstream.errors import CheckpointError
from midstream.migration import request
from midstream.protocol import coordinator
from midstream.runtime import epoch_runner
from midstream.runtime.epoch_runner import EpochRunner
from midstream.storage import intents, lease
from midstream.storage.numbered_requests import REQUESTS
from midstream.storage.request_queue import RequestQueue
from midstream.testing import store_sink
from midstream.testing.faults import FaultStore
from midstream.testing.simulate import simulate
from tests.testing.eventful_seeds import (
    broken_promises,
    die_in_every_epoch,
    make_eventful,
    small_and_long,
)

TRIED = 60


@pytest.fixture(autouse=True)
def _eventful(monkeypatch):
    make_eventful(
        monkeypatch, pause_rate=0.15, change_rate=0.5, move_rate=0.5, stop_rate=0.1, crash_rate=0.03
    )


def broken_promise(likely: int | None = None) -> str:
    """The promise that the first seed that fails says was broken; ``likely`` is one that does."""
    seeds = islice(small_and_long(), TRIED)
    return next(iter(broken_promises(seeds, likely=[] if likely is None else [likely])), "none")


def test_nothing_is_broken_without_a_fault():
    for seed in islice(small_and_long(), 10):
        simulate(seed)


def test_a_driver_that_commits_after_it_was_given_up_is_seen(monkeypatch):
    monkeypatch.setattr(lease, "close_log", lambda *_: None)
    # It publishes what the other has published; a reader who had moved that away has it twice.
    assert broken_promise(likely=66) in ("prefix", "lasting", "fsck", "batches", "replay", "errors")


def test_a_sweep_of_what_a_later_driver_wrote_is_seen(monkeypatch):
    # It must be paused between its first commit and the sweep after it.
    make_eventful(monkeypatch, change_rate=0.0, move_rate=0.0, stop_rate=0.3, crash_rate=0.0)
    monkeypatch.setattr(epoch_runner, "lease_of", lambda _: 0)
    assert broken_promise(likely=104) in ("fsck", "errors", "conservation", "replay")


def test_an_epoch_that_goes_by_what_is_set_now_is_seen(monkeypatch):
    def forgetful(store, mine):
        intents.write_or_read_intent(store, mine)
        return mine

    monkeypatch.setattr(epoch_runner, "write_or_read_intent", forgetful)
    assert broken_promise() in ("replay", "prefix", "conservation", "requests", "batches", "errors")


@pytest.mark.parametrize("field", ["request", "settings", "now", "background_epochs"])
def test_an_epoch_that_reads_back_only_a_part_of_its_intent_is_seen(monkeypatch, field):
    real = intents.write_or_read_intent

    def forgetful(store, mine):
        return replace(real(store, mine), **{field: getattr(mine, field)})

    monkeypatch.setattr(epoch_runner, "write_or_read_intent", forgetful)
    make_eventful(monkeypatch, pause_rate=0.0, stop_rate=0.0)
    die_in_every_epoch(monkeypatch, "after the step")
    # What goes on with half of another intent may come to no good in any way.
    assert broken_promise() not in ("none", "litter")


def test_an_intent_that_is_forgotten_too_early_is_seen(monkeypatch):
    make_eventful(monkeypatch, rot_rate=0.9, pause_rate=0.0)
    real = intents.delete_intent
    monkeypatch.setattr(epoch_runner, "delete_intent", lambda store, epoch: real(store, epoch + 1))
    assert broken_promise() == "replay"


def test_rows_from_the_future_that_are_let_in_are_seen(monkeypatch):
    monkeypatch.setattr(coordinator, "latest_allowed", lambda marks, _: dict.fromkeys(marks))
    assert broken_promise() in ("conservation", "prefix")


def test_results_that_are_published_once_more_for_a_reader_who_has_them_are_seen(monkeypatch):
    make_eventful(monkeypatch, move_rate=1.0, pause_rate=0.0)

    def rename(self, name, other):
        # Not in one operation: what is published is still staged for a moment.
        data = self.inner.files.get(name)
        if data is not None:
            self.put(other, data)
            self.delete(name)

    monkeypatch.setattr(FaultStore, "rename", rename)
    assert broken_promise(likely=15) == "prefix"


def test_a_sink_that_takes_a_file_that_was_moved_away_for_lost_is_seen(monkeypatch):
    real = store_sink.StoreSink.publish

    def strict(self, outputs):
        for output in outputs:
            staged, target = f"staged/{output.staged}", f"{self.table}/{output.published}"
            if not {staged, target} & set(self.store.inner.files):
                raise CheckpointError("results of a committed epoch must be there", got=output.staged)
        real(self, outputs)

    monkeypatch.setattr(store_sink.StoreSink, "publish", strict)
    assert broken_promise(likely=104) == "errors"


def test_a_request_of_another_kind_than_was_asked_for_is_seen(monkeypatch):
    real = request.StoredMigrationRequest.read

    def other(self, query):
        strategy = "hybrid" if self.strategy == "moving_state" else "moving_state"
        return real(replace(self, strategy=strategy, isolated=None, background=True), query)

    monkeypatch.setattr(request.StoredMigrationRequest, "read", other)
    assert broken_promise() == "requests"


def test_a_request_that_is_applied_once_more_is_seen(monkeypatch):
    def again(self, manifest):
        number, due = real(self, replace(manifest, applied_requests=manifest.applied_requests - 1))
        return max(number, manifest.applied_requests), due

    real = RequestQueue.due
    monkeypatch.setattr(RequestQueue, "due", again)
    assert broken_promise(likely=49) == "requests"


def test_a_request_that_a_fenced_driver_confirms_is_seen(monkeypatch):
    make_eventful(monkeypatch, ask_rate=0.1, pause_rate=0.3)
    real = FaultStore.put_if_absent

    def put(self, name, data):
        for _ in range(30 if name.startswith(REQUESTS) else 0):
            self.on_call()  # it is often paused here
        return real(self, name, data)

    monkeypatch.setattr(FaultStore, "put_if_absent", put)

    def unchecked(self, asked):
        self._lease.check()
        self.requests.plans.add(asked)

    monkeypatch.setattr(EpochRunner, "request_migration", unchecked)
    assert broken_promise() == "requests"

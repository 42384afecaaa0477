"""The simulator detects bugs in migrations: with a bug put in, a seed with a migration breaks a promise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from midstream.engine.epoch_filter import EpochSpan
from midstream.engine.program import Program
from midstream.engine.step import _Step
from midstream.migration import combined_layout, handover_tables, lifecycle, portions
from midstream.plan.handover import Handover
from midstream.protocol import coordinator
from midstream.runtime import partition_task
from midstream.runtime.epoch_runner import EpochRunner
from midstream.storage.numbered_requests import REQUESTS, NumberedRequests
from midstream.testing.faults import FaultStore
from tests.testing.eventful_seeds import SEEDS, broken_promises, make_eventful, workload_of

TRIED = 40


def seeds_with(*strategies: str, background: bool | None = None) -> Iterator[int]:
    """Seeds whose workloads have a request of this kind."""
    for seed in SEEDS:
        requests = workload_of(seed).requests.values()
        if any(r.strategy in strategies and background in (None, r.background) for r in requests):
            yield seed


def seeds_of_several_keys(seeds: Iterator[int]) -> Iterator[int]:
    """Those seeds whose queries have several key classes and enough streams for different plans."""
    for seed in seeds:
        query = workload_of(seed).query
        if len(query.classes) > 1 and len(query.names) > 3:
            yield seed


def broken_promise(seeds: Iterator[int], likely: int | None = None) -> str:
    """The promise that the first failing seed breaks; ``likely`` is one that fails."""
    tried_first = [] if likely is None else [likely]
    return next(iter(broken_promises(islice(seeds, TRIED), likely=tried_first)), "none")


def with_step(program: Program, **fields: Any) -> Program:
    """A program with another migration step, if it has one."""
    step = program.migration_step
    return program if step is None else replace(program, migration_step=replace(step, **fields))


def test_there_are_seeds_with_every_strategy():
    assert len(list(islice(seeds_with("moving_state"), TRIED))) == TRIED
    assert len(list(islice(seeds_with("parallel_track"), TRIED))) == TRIED
    assert len(list(islice(seeds_with("hybrid", background=False), TRIED))) == TRIED
    assert len(list(islice(seeds_with("hybrid", background=True), TRIED))) == TRIED


@pytest.mark.parametrize("strategy", ["parallel_track", "hybrid"])
def test_an_old_plan_that_makes_what_the_new_one_makes_is_seen(monkeypatch, strategy):
    def unrestricted(**fields):
        return Handover(**{**fields, "restrictions": {}, "retention": {}})

    monkeypatch.setattr(combined_layout, "Handover", unrestricted)
    # Results that are there twice are seen among those that are published, or only among deferred ones.
    assert broken_promise(seeds_with(strategy)) in ("prefix", "conservation")


@pytest.mark.parametrize("strategy", ["parallel_track", "hybrid"])
def test_an_old_plan_that_stops_before_its_rows_have_expired_is_seen(monkeypatch, strategy):
    monkeypatch.setattr(handover_tables, "_has_expired", lambda *_: True)
    seeds = seeds_with(strategy, background=strategy == "parallel_track")
    # Results are missing, or rows of a state that the new plan goes on with: a seed may have other requests.
    assert broken_promise(seeds) in ("prefix", "conservation")


@pytest.mark.parametrize("strategy", ["parallel_track", "hybrid"])
def test_a_migration_that_does_not_end_is_seen(monkeypatch, strategy):
    monkeypatch.setattr(lifecycle, "expire", lambda tables, *_: dict(tables))
    seeds = seeds_with(strategy, background=strategy == "parallel_track")
    assert broken_promise(seeds) == "ending"


def test_a_state_that_is_computed_and_then_not_used_is_seen(monkeypatch):
    real = coordinator._slices_in_use

    def unfinished(program, slices):
        return real(with_step(program, completed_state=None), slices)

    monkeypatch.setattr(coordinator, "_slices_in_use", unfinished)
    assert broken_promise(seeds_with("hybrid", background=True), likely=81) == "prefix"


def test_a_state_that_is_used_before_all_of_it_is_computed_is_seen(monkeypatch):
    real = _Step.rebuild
    monkeypatch.setattr(_Step, "rebuild", lambda self, rebuild: real(self, replace(rebuild, epochs=None)))
    assert broken_promise(seeds_with("hybrid", background=True), likely=107) in ("prefix", "conservation")


def test_a_state_that_is_not_computed_is_seen(monkeypatch):
    monkeypatch.setattr(_Step, "rebuild", lambda *_: None)
    # Results are missing, or rows of the next state that is made from this one.
    assert broken_promise(seeds_with("moving_state"), likely=301) in ("prefix", "conservation")


def test_a_state_that_is_lost_on_the_way_to_other_partitions_is_seen(monkeypatch):
    monkeypatch.setattr(partition_task, "moved_rows", lambda *_: [])
    seeds = seeds_of_several_keys(seeds_with("moving_state", "hybrid"))
    assert broken_promise(seeds, likely=75) in ("prefix", "conservation")


def test_rows_of_a_border_that_reach_only_the_new_plan_are_seen(monkeypatch):
    def only_to_the_new_plan(plans, _layout):
        sources = plans.sources_of(plans.moved_borders)
        return {state: (border,) for border, source in sources.items() for state in (border, source)}

    monkeypatch.setattr(combined_layout, "_destinations", only_to_the_new_plan)
    seeds = seeds_of_several_keys(seeds_with("hybrid", "parallel_track"))
    assert broken_promise(seeds, likely=111) in ("prefix", "conservation")


def test_rows_of_a_border_that_reach_only_the_old_plan_are_seen(monkeypatch):
    def only_to_the_old_plan(plans, layout):
        sources = plans.sources_of(plans.moved_borders)
        searched = {border: source for border, source in sources.items() if source in layout.states}
        return {state: (source,) for border, source in searched.items() for state in (border, source)}

    monkeypatch.setattr(combined_layout, "_destinations", only_to_the_old_plan)
    seeds = seeds_of_several_keys(seeds_with("hybrid", "parallel_track"))
    assert broken_promise(seeds, likely=29) in ("prefix", "conservation")


def test_a_state_whose_last_portion_is_not_moved_is_seen(monkeypatch):
    monkeypatch.setattr(portions, "EpochSpan", lambda first, end: EpochSpan(first or end, end))
    seeds = seeds_of_several_keys(seeds_with("hybrid"))
    in_portions = (seed for seed in seeds if workload_of(seed).settings.rows_moved_at_once == 0)
    assert broken_promise(in_portions, likely=111) in ("prefix", "conservation")


def test_results_that_are_sent_on_and_do_not_leave_are_seen(monkeypatch):
    monkeypatch.setattr(_Step, "collect", lambda *_: None)
    assert broken_promise(seeds_of_several_keys(seeds_with("hybrid")), likely=11) == "prefix"


def test_results_that_wait_and_are_dropped_are_seen(monkeypatch):
    real = coordinator._slices_in_use

    def dropping(program, slices):
        return real(with_step(program, defers_results=False), slices)

    monkeypatch.setattr(coordinator, "_slices_in_use", dropping)
    assert broken_promise(seeds_with("parallel_track")) == "conservation"


def test_results_that_wait_and_never_come_out_are_seen(monkeypatch):
    real = _Step._released_results

    def kept_back(self, results):
        self.program = with_step(self.program, releases_results=False)
        return real(self, results)

    monkeypatch.setattr(_Step, "_released_results", kept_back)
    assert broken_promise(seeds_with("parallel_track")) in ("prefix", "conservation")


def test_results_that_come_out_and_still_wait_are_seen(monkeypatch):
    real = _Step._results

    def at_once(self):
        self.results += self.deferred
        return real(self)

    monkeypatch.setattr(_Step, "_results", at_once)
    assert broken_promise(seeds_with("parallel_track")) in ("prefix", "conservation")


def test_a_request_that_a_crash_undoes_is_seen(monkeypatch):
    def forgetful(self, request):
        self._last += 1
        self._waiting[self._last] = request

    monkeypatch.setattr(NumberedRequests, "add", forgetful)
    # It is not there when the epoch runs again, or when the next one runs.
    promises = ("replay", "requests", "partitions")
    assert broken_promise(seeds_with("moving_state", "hybrid"), likely=20) in promises


def test_a_request_that_a_power_cut_undoes_is_seen(monkeypatch):
    make_eventful(monkeypatch, crash_rate=0.1, pause_rate=0.0)
    real = FaultStore.put_if_absent

    def put(self, name, data):
        if not name.startswith(REQUESTS):
            return real(self, name, data)
        # Without the sync that would make it durable.
        self.put(name, data)
        return True

    monkeypatch.setattr(FaultStore, "put_if_absent", put)
    assert broken_promise(seeds_with("moving_state", "hybrid", "parallel_track"), likely=89) in (
        "replay",
        "requests",
    )


def test_a_request_that_is_never_applied_is_seen(monkeypatch):
    monkeypatch.setattr(EpochRunner, "request_migration", lambda *_: None)
    assert broken_promise(seeds_with("hybrid")) == "requests"


def test_a_request_that_is_left_behind_is_seen(monkeypatch):
    real = FaultStore.delete
    monkeypatch.setattr(
        FaultStore, "delete", lambda self, name: None if name.startswith(REQUESTS) else real(self, name)
    )
    assert broken_promise(seeds_with("moving_state")) == "litter"

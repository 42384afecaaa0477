"""How much background work an epoch gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from midstream.engine.epoch_filter import EpochRange
from midstream.engine.migration_step import MigrationStep, Move, Rebuild
from midstream.plan.handover import Handover
from midstream.plan.state_id import StateId
from midstream.spark.background_budget import BackgroundBudget
from midstream.state.migration import Migration

A = StateId("a")
MIGRATION = Migration(
    number=1,
    old_plan="a b",
    new_plan="b a",
    strategy="hybrid",
    background=True,
    isolated=False,
    start_epoch=1,
    state_ids={},
    handover={},
    latest_times={},
)
STEP = MigrationStep(migration=MIGRATION, handover=Handover(sides={}, restrictions={}))


def work(epochs: int, *, completes: bool = False) -> MigrationStep:
    rebuild = Rebuild(A, (), EpochRange("a", 100 - epochs, 100))
    return replace(STEP, rebuilds=(rebuild,), completes=A if completes else None)


def batches(budget: BackgroundBudget, usual: float, each: float, todo: int) -> list[float]:
    """How long batches take in which so many epochs' worth is computed."""
    found = []
    for _ in range(3):
        budget.learn(None, usual)
    while todo > 0:
        now = min(budget.next(), todo)
        todo -= now
        found.append(usual + each * now)
        budget.learn(work(now, completes=todo == 0), found[-1])
    return found


def test_without_an_interval_batches_take_about_a_quarter_longer():
    found = batches(BackgroundBudget(None), usual=400, each=10, todo=200)
    assert max(found) <= 1.25 * 400
    assert len(found) < 30


def test_with_an_interval_the_time_that_is_left_is_used_and_no_more():
    found = batches(BackgroundBudget(1000), usual=400, each=100, todo=200)
    assert max(found) <= 1000
    assert max(found) >= 900


def test_at_least_one_is_done_however_long_it_takes():
    assert batches(BackgroundBudget(100), usual=400, each=1000, todo=3) == [1400] * 3


@pytest.mark.parametrize("noise", [0.0, -200.0])
def test_a_piece_that_seems_to_cost_nothing_does_not_bring_all_at_once(noise):
    budget = BackgroundBudget(None)
    budget.learn(None, 400)
    done = []
    for _ in range(4):
        done.append(budget.next())
        budget.learn(work(done[-1]), 400 + noise)
    assert done == [1, 2, 4, 8]


def test_after_a_restart_in_the_middle_it_still_gets_going():
    budget = BackgroundBudget(None)
    for _ in range(8):
        budget.learn(work(budget.next()), 500)
    assert budget.next() > 4


def test_an_epoch_that_moves_states_or_ends_a_migration_says_nothing():
    budget = BackgroundBudget(None)
    budget.learn(None, 400)
    budget.learn(replace(STEP, moves=(Move(A, A.started_by(1)),)), 9000)
    budget.learn(replace(STEP, handover=None), 9000)
    budget.learn(work(1), 500)
    assert budget.next() == 1

"""The budget of background work that an epoch gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from midstream.engine.epoch_filter import EpochRange, EpochSpan
from midstream.engine.migration_step import MigrationStep, Move, Rebuild
from midstream.engine.program import Program, ReplacementStep, Replay
from midstream.plan.handover import Handover
from midstream.plan.state_id import StateId
from midstream.spark.background_budget import BackgroundBudget
from midstream.state.manifest import Manifest, Replacement
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


def work(epochs: int, *, is_last: bool = False) -> MigrationStep:
    rebuild = Rebuild(A, (), EpochRange("a", 100 - epochs, 100))
    return replace(STEP, rebuilds=(rebuild,), completed_state=A if is_last else None)


def batches(budget: BackgroundBudget, usual: float, per_epoch: float, todo: int) -> list[float]:
    """The durations of batches that rebuild rows of ``todo`` epochs between them."""
    durations = []
    for _ in range(3):
        budget.learn(None, usual)
    while todo > 0:
        epochs = min(budget.next(), todo)
        todo -= epochs
        durations.append(usual + per_epoch * epochs)
        budget.learn(work(epochs, is_last=todo == 0) if epochs else STEP, durations[-1])
    return durations


def test_without_an_interval_batches_take_about_a_quarter_longer():
    durations = batches(BackgroundBudget(None), usual=400, per_epoch=10, todo=200)
    assert max(durations) <= 1.25 * 400
    assert len(durations) < 30


def test_with_an_interval_the_remaining_time_is_used_and_no_more():
    durations = batches(BackgroundBudget(1000), usual=400, per_epoch=100, todo=200)
    assert max(durations) <= 1000
    assert max(durations) >= 900


def test_nothing_is_rebuilt_while_no_time_is_left():
    budget = BackgroundBudget(400)
    budget.learn(None, 450)
    for _ in range(20):
        assert budget.next() == 0
        budget.learn(STEP, 450)
    budget.learn(STEP, 300)
    assert budget.next() == 1


def test_time_is_saved_up_if_an_epoch_has_too_little_for_one_piece():
    durations = batches(BackgroundBudget(500), usual=400, per_epoch=1000, todo=4)
    assert durations.count(1400) == 4
    assert sum(durations) <= 500 * len(durations) + 1400


@pytest.mark.parametrize("noise", [0.0, -200.0])
def test_the_budget_at_most_doubles_if_work_seems_to_cost_nothing(noise):
    budget = BackgroundBudget(None)
    budget.learn(None, 400)
    done = []
    for _ in range(4):
        done.append(budget.next())
        budget.learn(work(done[-1]), 400 + noise)
    assert done == [1, 2, 4, 8]


def test_the_budget_grows_after_a_restart_in_the_middle():
    budget = BackgroundBudget(None)
    for _ in range(8):
        budget.learn(work(budget.next()), 500)
    assert budget.next() > 4


def test_epochs_that_move_states_or_end_a_migration_are_ignored():
    budget = BackgroundBudget(None)
    budget.learn(None, 400)
    budget.learn(replace(STEP, moves=(Move(A, A.started_by(1)),)), 9000)
    budget.learn(replace(STEP, handover=None), 9000)
    budget.learn(work(1), 500)
    assert budget.next() == 1


def _caught_up(epochs: int) -> ReplacementStep:
    source = Program.__new__(Program)
    replay = Replay(source, ("a",), EpochSpan(10, 10 + epochs)) if epochs else None
    program = Program.__new__(Program)
    object.__setattr__(program, "replay", replay)
    successor = Manifest(
        id="", epoch=0, spark_query="", definition={}, plan="", initial_plan="", streams={}, routings=()
    )
    replacement = Replacement(number=1, strategy="generalized_hybrid", start_epoch=1, successor=successor)
    return ReplacementStep(replacement=replacement, program=program)


def test_portions_of_a_new_box_grow_while_its_job_is_most_of_their_time():
    budget = BackgroundBudget(None)
    budget.learn(None, 400)
    portions = []
    for _ in range(40):
        epochs = budget.next()
        # The job takes 300 ms, and an epoch's worth 10 ms.
        budget.learn(None, 700 + 10 * epochs if epochs else 400, _caught_up(epochs))
        portions.append(epochs)
    assert max(portions) >= 8
    assert 700 + 10 * max(portions) < 2.5 * 400

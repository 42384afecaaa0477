"""What a migration would cost, and which way is chosen for it."""

from __future__ import annotations

import pytest

from midstream.adapt.cost import work_in_units
from midstream.adapt.estimate import Estimator
from midstream.adapt.migration_cost import MigrationCost, migration_costs
from midstream.adapt.policy import Goal, MigrationPolicy, best_migration, candidate_migrations, pick
from midstream.inline import InlineJoin
from midstream.plan.tree import parse_plan
from midstream.protocol.settings import Settings
from midstream.state.statistics import Statistics
from midstream.storage.memory import MemoryStore
from tests.adapt.synthetic_streams import clique, epochs_of, query_of, uniform

NAMES = "abcd"
QUERY = query_of(NAMES, clique(NAMES), window=20)
RATES = dict.fromkeys(NAMES, 8.0)
# Rows of a match seldom, so that it is good to begin with them.
KEYS = {"a": uniform(600), **dict.fromkeys("bcd", uniform(40))}
GOOD, DEAR = "((a b) c) d", "a (b (c d))"
WARM, AFTER = 16, 12
EPOCHS = epochs_of(RATES, KEYS, WARM + AFTER)


def warm(plan: str) -> tuple[InlineJoin, MemoryStore]:
    store = MemoryStore()
    join = InlineJoin(QUERY, plan, settings=Settings(1, 1), store=store)
    for epoch in EPOCHS[:WARM]:
        join.run_epoch(epoch)
    return join, store


def chosen(old: str, new: str, policy: MigrationPolicy) -> MigrationCost:
    join, _ = warm(old)
    layout = join.coordinator.layout(join.manifest)
    return best_migration(layout, parse_plan(new, NAMES), join.manifest.statistics, QUERY, policy)


def test_old_rows_are_left_to_the_plan_that_is_good_at_them():
    waiting = MigrationPolicy("hybrid", background=False)
    assert chosen(GOOD, DEAR, waiting).isolated
    assert not chosen(DEAR, GOOD, waiting).isolated


@pytest.mark.parametrize(("old", "new"), [(GOOD, DEAR), (DEAR, GOOD)])
def test_a_request_that_leaves_it_open_goes_the_way_that_is_chosen(old: str, new: str):
    join, _ = warm(old)
    join.migrate(new, "hybrid", background="off")
    join.run_epoch(EPOCHS[WARM])
    migration = join.manifest.migration
    assert migration is not None
    assert migration.isolated is (new == DEAR)


@pytest.mark.parametrize(("old", "new"), [(GOOD, DEAR), (DEAR, GOOD)])
def test_prices_say_what_migrations_turn_out_to_cost(old: str, new: str):
    join, store = warm(old)
    known = migration_costs(
        join.coordinator.layout(join.manifest),
        parse_plan(new, NAMES),
        Estimator(QUERY, join.manifest.statistics),
    )
    counted = {}
    for price in known:
        run = InlineJoin(QUERY, settings=Settings(1, 1), store=MemoryStore(dict(store.files)))
        run.migrate(
            new, price.strategy, background="auto" if price.background else "off", isolated=price.isolated
        )
        work = 0.0
        for epoch in EPOCHS[WARM:]:
            run.run_epoch(epoch, background_epochs=1)
            work += work_in_units(run.report.work)
        counted[price] = work
    assert len(known) == 5
    # All of them include what the new plan does anyway, so that differences are what can be compared.
    cheapest = min(known, key=lambda price: counted[price])
    more = {price: counted[price] - counted[cheapest] for price in known}
    for price in known:
        thought = price.work - cheapest.work
        assert thought == pytest.approx(more[price], abs=0.35 * max(more.values())), price


def test_an_epoch_takes_most_where_states_are_computed_at_once_and_no_more_than_ever_with_plans_apart():
    join, _ = warm(GOOD)
    estimator = Estimator(QUERY, join.manifest.statistics)
    layout = join.coordinator.layout(join.manifest)
    sharing, computing, isolated, moving, tracks = migration_costs(layout, parse_plan(DEAR, NAMES), estimator)
    assert isolated.worst <= tracks.worst
    assert isolated.worst < sharing.worst < moving.worst
    assert computing.worst < moving.worst
    # Less than a tenth more is not felt.
    assert min(p.worst for p in migration_costs(layout, parse_plan(GOOD, NAMES), estimator)) == 1.1


@pytest.mark.parametrize(
    ("goal", "wanted"), [("steady", "hybrid"), ("cheap", "parallel_track"), ("quick", "moving_state")]
)
def test_a_goal_says_what_counts(goal: Goal, wanted: str):
    steady = MigrationCost("hybrid", False, work=5.0, seconds=20.0, worst=1.1)
    dearer = MigrationCost("hybrid", True, work=6.0, seconds=10.0, worst=1.1)
    quick = MigrationCost("moving_state", False, work=5.0, seconds=0.0, worst=3.0)
    cheap = MigrationCost("parallel_track", False, work=1.0, seconds=20.0, worst=1.1, delays=True)
    found = pick([dearer, steady, quick, cheap], goal)
    assert found.strategy == wanted
    assert found != dearer


def test_a_strategy_that_was_asked_for_is_kept_to_even_if_nothing_is_known():
    join = InlineJoin(QUERY, GOOD, settings=Settings(1, 1))
    layout = join.coordinator.layout(join.manifest)
    plan = parse_plan(DEAR, NAMES)
    for wanted in ("hybrid", "moving_state", "parallel_track"):
        price = best_migration(layout, plan, Statistics(), QUERY, MigrationPolicy(wanted, background=False))
        assert price.strategy == wanted


def test_without_a_window_only_ways_that_end_are_affordable():
    endless = query_of(NAMES, clique(NAMES), window=None)
    join = InlineJoin(endless, GOOD, settings=Settings(1, 1))
    for epoch in EPOCHS[:4]:
        join.run_epoch(epoch)
    estimator = Estimator(endless, join.manifest.statistics)
    layout = join.coordinator.layout(join.manifest)
    known = candidate_migrations(layout, parse_plan(DEAR, NAMES), estimator, MigrationPolicy())
    assert [(p.strategy, p.background) for p in known] == [("hybrid", True), ("moving_state", False)]

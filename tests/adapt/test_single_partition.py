"""One engine partition for all rows of a node: said, only while the state is small, and not if forbidden."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from midstream.adapt.estimate import Estimator
from midstream.adapt.optimizer import best_plan
from midstream.adapt.single_partition import MAX_SINGLE_PARTITION_BYTES, describe_unplaced, unplaced_bytes
from midstream.errors import OptionError
from midstream.inline import InlineJoin
from midstream.plan.build_layout import build_layout
from midstream.plan.tree import Plan
from midstream.protocol.events import PlanDecision, SinglePartitionPlan
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.state.statistics import Statistics
from tests.adapt.adaptive_run import adaptive_run, explanation
from tests.adapt.synthetic_streams import (
    KEY_COLUMNS,
    chain,
    clique,
    epochs_of,
    evenly_spread,
    query_of,
    statistics_of,
)

CHAIN = query_of("abc", chain("abc"), window=8)
SPREAD, IN_ONE = "(a b) c", "a b c"
ADAPTING, FORBIDDING = Settings(2, 8, adapt=True), Settings(2, 8, adapt=True, single_partition="forbid")
# Keys of which each matches about once: so few rows that a further stage costs more than all else.
THIN = epochs_of(dict.fromkeys("abc", 4.0), dict.fromkeys("abc", evenly_spread(32)), 24, 1.0, exact=True)


def statistics(query: Query, rows_per_second: float) -> Statistics:
    names = query.names
    draws = dict.fromkeys(names, evenly_spread(round(8 * rows_per_second)))
    epochs = epochs_of(dict.fromkeys(names, rows_per_second), draws, 20, 1.0, exact=True)
    return statistics_of(query, epochs, 1.0)


def nodes_in_one(query: Query, plan: Plan) -> str:
    return describe_unplaced(build_layout(query, plan))


def test_the_best_plan_has_nodes_in_one_partition_only_while_their_state_is_small():
    thin, thick = Estimator(CHAIN, statistics(CHAIN, 4)), statistics(CHAIN, 40)
    best = best_plan(thin, partitions=2)
    assert nodes_in_one(CHAIN, best.plan) == "{a,b,c}"
    size = unplaced_bytes(build_layout(CHAIN, best.plan), thin)
    assert size is not None
    assert 0 < size < MAX_SINGLE_PARTITION_BYTES / 1000
    assert nodes_in_one(CHAIN, best_plan(thin, 2, "forbid").plan) == ""
    # The same rows in so much less time are so many times the rate, and the state.
    seconds, epochs = (figure / 10_000 for figure in (thick.seconds, thick.epochs))
    crowded = Estimator(CHAIN, replace(thick, seconds=seconds, epochs=epochs))
    layout = build_layout(CHAIN, best.plan)
    assert (unplaced_bytes(layout, crowded) or 0) > MAX_SINGLE_PARTITION_BYTES
    assert nodes_in_one(CHAIN, best_plan(crowded, 2).plan) == ""


@pytest.mark.parametrize("names", ["abcd", "abcdefghi"])
def test_a_plan_without_such_nodes_is_found_for_any_connected_query(names):
    on = [f"{a}.{k} = {b}.{k}" for (a, b), k in zip(pairwise(names), KEY_COLUMNS * 2, strict=False)]
    query = query_of(names, on, window=8)
    estimator = Estimator(query, statistics(query, 2))
    assert nodes_in_one(query, best_plan(estimator, 4, "forbid").plan) == ""


def test_the_decision_and_an_event_say_so():
    run = adaptive_run(SPREAD, ADAPTING, CHAIN).process(THIN)
    assert nodes_in_one(CHAIN, run.join.coordinator.layout(run.last).plan) == "{a,b,c}"
    (moved,) = [e for e in run.events if isinstance(e, PlanDecision) and e.verdict == "migrate"]
    assert "; it has {a,b,c} in one engine partition, with 0.0 MB of state" in moved.reason
    (event,) = [e for e in run.events if isinstance(e, SinglePartitionPlan)]
    assert (event.nodes, event.plan, event.severity) == ("{a,b,c}", run.last.plan, "warning")
    assert "It has {a,b,c} in one engine partition: no key is common to all inputs." in explanation(run)


def test_a_plan_in_one_partition_is_not_chosen_if_forbidden_and_left_if_that_is_said_later():
    run = adaptive_run(SPREAD, FORBIDDING, CHAIN).process(THIN)
    assert (run.last.plan, run.last.migrations) == (SPREAD, 0)
    run = adaptive_run(IN_ONE, ADAPTING, CHAIN).process(THIN[:4])
    assert run.last.plan == IN_ONE
    run.settings = FORBIDDING
    run.restart()
    run.process(THIN[4:])
    assert nodes_in_one(CHAIN, run.join.coordinator.layout(run.last).plan) == ""
    reasons = [e.reason for e in run.events if isinstance(e, PlanDecision) and e.verdict == "migrate"]
    assert reasons == ["the running plan has {a,b,c} in one engine partition, with 0.0 MB of state"]


def test_a_plan_that_was_asked_for_is_left_too_once_it_is_forbidden():
    run = adaptive_run(SPREAD, ADAPTING, CHAIN)
    run.join.migrate(IN_ONE)
    run.process(THIN[:12])
    assert run.last.plan == run.last.adaptation.requested_plan == IN_ONE
    run.settings = FORBIDDING
    run.restart()
    run.process(THIN[12:])
    assert nodes_in_one(CHAIN, run.join.coordinator.layout(run.last).plan) == ""


def test_a_plan_that_the_user_asks_for_is_taken_with_a_warning_or_refused():
    join = InlineJoin(CHAIN, SPREAD, settings=Settings(2, 8))
    events: list[object] = []
    join.addListener(events.append)
    join.migrate(IN_ONE)
    join.run_epoch(THIN[0])
    assert [e.plan for e in events if isinstance(e, SinglePartitionPlan)] == [IN_ONE]
    begun = InlineJoin(CHAIN, IN_ONE, settings=Settings(2, 8))
    begun.addListener(events.append)
    for epoch in THIN[:2]:
        begun.run_epoch(epoch)
    assert len([e for e in events if isinstance(e, SinglePartitionPlan)]) == 2

    forbidding = InlineJoin(CHAIN, SPREAD, settings=FORBIDDING)
    for refused in (
        lambda: forbidding.migrate(IN_ONE),
        lambda: InlineJoin(CHAIN, IN_ONE, settings=FORBIDDING),
        lambda: InlineJoin(query_of("ab", [], cross=True), settings=FORBIDDING),
    ):
        with pytest.raises(OptionError, match="all inputs of a node must have a key in common"):
            refused()


def test_a_query_that_does_not_adapt_cannot_leave_such_a_plan_and_is_refused():
    run = adaptive_run(IN_ONE, Settings(2, 8), CHAIN).process(THIN[:1])
    run.settings = Settings(2, 8, single_partition="forbid")
    with pytest.raises(OptionError, match="one engine partition"):
        run.restart()


@pytest.mark.parametrize("query", [CHAIN, query_of("abc", clique("abc"), window=8)])
def test_with_one_partition_every_plan_is_in_one_and_nothing_is_said(query):
    run = adaptive_run(IN_ONE, Settings(1, 8, adapt=True, single_partition="forbid"), query).process(
        THIN[:12]
    )
    assert not [e for e in run.events if isinstance(e, SinglePartitionPlan)]
    assert "one engine partition" not in explanation(run)


def test_streams_that_no_key_connects_are_joined_in_one_partition_however_large():
    query = query_of("ab", [], window=8, cross=True)
    run = adaptive_run("a b", ADAPTING, query).process([{n: epoch[n] for n in "ab"} for epoch in THIN])
    assert [e.nodes for e in run.events if isinstance(e, SinglePartitionPlan)] == ["{a,b}"]
    assert run.last.plan in ("a b", "b a")

"""Sites that find plans by messages, in a running query: the state of their machines is in the manifest."""

from dataclasses import replace

import msgspec
import pyarrow as pa
import pytest

from midstream.errors import CheckpointError
from midstream.inline import InlineJoin
from midstream.plan.tree import parse_plan
from midstream.protocol.check_site_support import check_sites_state
from midstream.protocol.settings import Settings
from midstream.sites.cost import StreamFigures
from midstream.sites.distributed import (
    SitesRound,
    SitesState,
    decided_plan,
    first_state,
    read_state,
    with_switch,
    write_state,
)
from midstream.sites.planner import SitePolicy, cost_of, figures_of, find_plan
from midstream.testing import accept, assert_same_rows, batch_join
from tests.sites.adaptive_case import HOMES, epochs, sited_query

DISTRIBUTED = Settings(None, 8, adapt=True, sites=SitePolicy("greedy", "distributed"))
CENTRAL = replace(DISTRIBUTED, sites=SitePolicy("greedy", "central"))


@pytest.mark.parametrize("restarts", [False, True])
def test_both_ways_of_finding_plans_end_in_plans_that_cost_the_same(restarts):
    query, given = sited_query(), epochs("aca")
    distributed, central = (InlineJoin(query, settings=s) for s in (DISTRIBUTED, CENTRAL))
    results, messages = [], []
    for epoch in given:
        results.append(distributed.run_epoch(epoch))
        central.run_epoch(epoch)
        state = distributed.manifest.adaptation.sites
        messages.append(read_state(state).handed_over if state else 0)
        if restarts:
            distributed = InlineJoin(query, settings=DISTRIBUTED, store=distributed.store)
    expected = batch_join(query, accept(query, given).tables(query))
    assert_same_rows(pa.concat_tables(results), expected)
    # They need not be the same: by the distributed way a sequence changes for the least gain, and not before
    # a figure has changed by the threshold.
    model, figures = figures_of(query, distributed.manifest.statistics)
    plans = [join.coordinator.layout(join.manifest).plan for join in (distributed, central)]
    best = find_plan("greedy", model, figures)
    costs = [cost_of("greedy", model, figures, plan) for plan in (*plans, best)]
    assert max(costs) < 1.25 * costs[-1]
    assert distributed.manifest.migrations >= 2
    # One message along each sequence takes several epochs.
    assert messages == sorted(messages)
    assert messages[-1] > 30


def settle(model, plan, state: SitesState, figures: dict[str, StreamFigures]):
    """Step after step, until no message is on its way; each decided sequence is in the plan at once."""
    for _ in range(200):
        state = SitesRound(model, plan, state).run(figures, lambda _stream, told, seen: told != seen)
        if state.decided:
            plan, state = decided_plan(plan, state), with_switch(state)
        elif not state.messages and not state.switching:
            return plan, state
        state = read_state(msgspec.json.decode(msgspec.json.encode(write_state(state))))
    raise AssertionError("messages go on for ever")


def test_changes_that_overtake_each_other_end_in_the_plan_that_the_centre_finds():
    query = sited_query()
    join = InlineJoin(query, settings=CENTRAL)
    for epoch in epochs("a"):
        join.run_epoch(epoch)
    model, figures = figures_of(query, join.manifest.statistics)
    plan, state = join.coordinator.layout(join.manifest).plan, first_state(model)
    plan, state = settle(model, plan, state, figures)
    assert plan == find_plan("greedy", model, figures)
    for stream, factor in (("c", 30.0), ("a", 0.05), ("b", 8.0), ("c", 0.01)):
        known = figures[stream]
        figures = {**figures, stream: StreamFigures(known.rate * factor, known.selectivity, known.row_bytes)}
        # The next change comes while messages about this one are on their way.
        state = SitesRound(model, plan, state).run(figures, lambda _stream, told, seen: told != seen)
        if state.decided:
            plan, state = decided_plan(plan, state), with_switch(state)
    plan, state = settle(model, plan, state, figures)
    assert plan == find_plan("greedy", model, figures)


def test_a_requested_plan_ends_what_was_on_its_way():
    join = InlineJoin(sited_query(), settings=DISTRIBUTED)
    asked = "a: [c, b], [1, 0]; b: [c, a], [1, 0]; c: [b, a], [0, 0]"
    plans = []
    for number, epoch in enumerate(epochs("a")):
        if number == 4:
            join.migrate(asked)
        join.run_epoch(epoch)
        plans.append(join.manifest.plan)
    assert set(plans[4:]) == {str(parse_plan(asked, list(HOMES)))}


def test_what_sites_know_must_be_of_the_query():
    query = sited_query()
    join = InlineJoin(query, settings=DISTRIBUTED)
    for epoch in epochs("a")[:6]:
        join.run_epoch(epoch)
    known = join.manifest.adaptation.sites
    assert known is not None
    check_sites_state(query, known)
    relays = {site: relay for site, relay in known["relays"].items() if site != "paris"}
    for forged in ({**known, "relays": relays}, {**known, "switching": ["z"]}, {**known, "messages": [1]}):
        with pytest.raises(CheckpointError, match="what the sites of its query know"):
            check_sites_state(query, forged)
    with pytest.raises(CheckpointError, match="what the sites of its query know"):
        check_sites_state(replace(query, topology=None), known)

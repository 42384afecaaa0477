"""A query that adapts changes its plan for sites when another stream brings most rows."""

from dataclasses import replace

import pyarrow as pa
import pytest

from midstream.adapt.decision import DecisionContext
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.sites.decision import decide_at_sites
from midstream.sites.explain_adaptive import explain_adaptive_sites
from midstream.sites.planner import PLANNERS, SitePolicy, cost_of, figures_of, find_plan, first_plan
from midstream.state.adaptation import Adaptation
from midstream.testing import accept, assert_same_rows, batch_join
from tests.sites.adaptive_case import EPOCHS_PER_PHASE, FEW, HOMES, MANY, epochs, link_bytes, sited_query

ADAPTS = Settings(None, 8, adapt=True)


def run_phases(settings: Settings, phases: str) -> InlineJoin:
    query, given = sited_query(), epochs(phases)
    join = InlineJoin(query, settings=settings)
    got = pa.concat_tables([join.run_epoch(epoch) for epoch in given])
    assert got.num_rows > 3
    assert_same_rows(got, batch_join(query, accept(query, given).tables(query)))
    return join


def context_of(join: InlineJoin) -> DecisionContext:
    return join.coordinator.decision_context(join.manifest)


def test_the_plan_follows_the_streams_and_saves_bytes():
    adaptive, fixed = run_phases(ADAPTS, "aca"), run_phases(replace(ADAPTS, adapt=False), "aca")
    plans = [progress["plan"] for progress in adaptive.recentProgress]
    at_first, later, at_last = (plans[EPOCHS_PER_PHASE * n - 1] for n in (1, 2, 3))
    assert at_first == at_last != later
    assert {progress["plan"] for progress in fixed.recentProgress} == {at_first}
    decisions = [e for p in adaptive.recentProgress for e in p["events"] if e["type"] == "decision"]
    migrating = [e for e in decisions if e["verdict"] == "migrate"]
    started = [e for p in adaptive.recentProgress for e in p["events"] if e["type"] == "migration-started"]
    assert [e["best"] for e in migrating] == [e["to"] for e in started]
    assert any("rate of c" in change for change in migrating[0]["changed"])
    assert link_bytes(adaptive).total() < 0.8 * link_bytes(fixed).total()


def test_figures_are_those_of_the_streams():
    join = run_phases(ADAPTS, "a")
    _, figures = figures_of(join.query, join.manifest.statistics)
    assert figures["a"].rate == pytest.approx(MANY / 10, rel=0.15)
    assert figures["b"].rate == pytest.approx(FEW / 10, rel=0.15)
    # Keys are drawn from 4,000 values.
    assert all(figure.selectivity == pytest.approx(1 / 4_000, rel=0.5) for figure in figures.values())


def test_explain_says_what_is_known_and_what_was_decided():
    join = run_phases(ADAPTS, "ac")
    context, adaptation = context_of(join), join.manifest.adaptation
    text = explain_adaptive_sites(context, adaptation, SitePolicy(), adapts=True)
    assert "Adapting: by the planner shared, central" in text
    assert "  c at oregon: " in text
    assert "Node operator sets:" in text
    assert "Last decision, after epoch" in text
    nothing = InlineJoin(sited_query(), settings=ADAPTS)
    text = explain_adaptive_sites(context_of(nothing), Adaptation(), SitePolicy(), adapts=False)
    assert text.endswith("Nothing is known of a, b, c yet.")


def test_a_requested_plan_stands_until_the_streams_change():
    join = InlineJoin(sited_query(), settings=ADAPTS)
    asked = "a: [c, b], [1, 0]; b: [c, a], [1, 0]; c: [b, a], [0, 0]"
    given = epochs("ac")
    plans = []
    for number, epoch in enumerate(given):
        if number == 2:
            join.migrate(asked)
        join.run_epoch(epoch)
        plans.append(join.manifest.plan)
    assert set(plans[2:EPOCHS_PER_PHASE]) == {asked}


@pytest.mark.parametrize("planner", PLANNERS)
def test_every_planner_has_a_plan_before_and_after_anything_is_known(planner):
    query = sited_query()
    first = first_plan(query, SitePolicy(planner))
    assert [sequence.head for sequence in first.sequences] == list(HOMES)
    join = run_phases(replace(ADAPTS, sites=SitePolicy(planner)), "a")
    model, figures = figures_of(query, join.manifest.statistics)
    best = find_plan(planner, model, figures)
    others = [find_plan(other, model, figures) for other in PLANNERS if other != "greedy"]
    if planner != "greedy":
        assert all(
            cost_of(planner, model, figures, best) <= cost_of(planner, model, figures, other)
            for other in others
        )


def test_nothing_is_decided_twice_from_the_same_figures():
    join = run_phases(ADAPTS, "a")
    decided = decide_at_sites(context_of(join), join.manifest.adaptation, SitePolicy())
    again = decide_at_sites(context_of(join), decided, SitePolicy())
    assert again == decided

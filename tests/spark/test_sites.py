"""Queries whose streams live at sites, on Spark: exact, whatever the sources, and while the plan changes."""

import json

import pytest

from midstream import Join
from midstream.errors import OptionError, PlanError, QueryError
from tests.spark.driver_course import Change
from tests.spark.migration_scenario import ASKED, BEGUN, columns, events_of, rows

pytestmark = pytest.mark.spark

HOMES = {"a": "frankfurt", "b": "paris", "c": "oregon", "d": None}
FIRST = "a: [b, c, d], [0, 1, 1]; b: [a, c, d], [1, 1, 1]; c: [d, b, a], [0, 0, 0]; d: [c, b, a], [1, 0, 0]"
SECOND = "a: [c, b, d], [1, 1, 0]; b: [c, a, d], [0, 0, 0]; c: [b, d, a], [1, 1, 0]; d: [b, a, c], [0, 0, 1]"


def sited(scenario, source=columns, homes=HOMES):
    def join():
        made = Join(scenario.spark)
        for name, site in homes.items():
            frame = source(scenario.feed.df(name))
            made = made.stream(name, frame, time="t", lateness="5 seconds", site=site)
        made = made.on("a.k = b.k", "b.k2 = c.k2", "c.k = d.k").within("9 seconds")
        made = made.select("a.id", "b.id", "c.id", "d.id", "b.k2")
        return made.link(latency="80 ms", bandwidth="50 mbit").sink_site("frankfurt")

    return join


@pytest.mark.parametrize("source", [columns, rows])
def test_results_are_exact_and_links_are_counted_while_the_plan_changes(scenario, source):
    query = scenario.run(Change(ASKED, SECOND, None), join=sited(scenario, source), plan=FIRST)
    assert str(query.plan) == SECOND
    assert query.partitions == 3
    progress = query.recentProgress
    assert [p["plan"] for p in progress[:BEGUN]] == [FIRST] * BEGUN
    assert [p["plan"] for p in progress[BEGUN:]] == [SECOND] * (len(progress) - BEGUN)
    # By the first plan nothing goes to Paris but what b and a need there: their sequences begin there.
    assert {"paris->oregon", "frankfurt->oregon", "oregon->frankfurt"} <= progress[1]["links"].keys()
    assert "oregon->paris" not in progress[1]["links"]
    assert "oregon->paris" in progress[BEGUN]["links"]
    for link in progress[1]["links"].values():
        assert 0 < link["rows"] < link["bytes"]
        assert link["messages"] > 0
    types = [event["type"] for event in events_of(query)]
    assert types.count("migration-started") == types.count("migration-ended") == 1
    assert "task-elsewhere" not in types
    scenario.check(sited(scenario, source)())


def test_explain_shows_sequences_operators_and_windows(scenario, capsys):
    scenario.add(1)
    join = sited(scenario)()
    join.explain(FIRST)
    text = capsys.readouterr().out
    assert f"Plan: {FIRST}" in text
    assert "  c: [d, b, a], [0, 0, 0]" in text
    assert "    ship(b^a, oregon)" in text
    assert "  oregon (c)" in text
    assert "  c at oregon" in text
    diagram, form = join.explanation("mermaid"), json.loads(join.explanation("json"))
    assert diagram.startswith("flowchart LR")
    assert form["sites"] == {"a": "frankfurt", "b": "paris", "c": "oregon", "d": "frankfurt"}
    assert {sequence["head"] for sequence in form["sequences"]} == set(HOMES)


def test_what_sites_cannot_be_combined_with_is_refused_before_the_start(scenario):
    scenario.add(1)
    join = sited(scenario)
    start = scenario.runner.start
    with pytest.raises(PlanError, match=r"must have a sequence for each; got '\(\(a b\) c\) d'"):
        start(join(), plan="((a b) c) d")
    with pytest.raises(OptionError, match="must not use certain options; got stateMemory"):
        start(join(), stateMemory="8m")
    with pytest.raises(OptionError, match="must not use certain options; got balance"):
        start(join(), balance="lazy_disk")
    with pytest.raises(OptionError, match="partitions must be given for each site"):
        start(join(), partitions=4)
    with pytest.raises(OptionError, match="planner must be 'greedy' if update is 'distributed'"):
        start(join(), planner="shared", update="distributed")
    with pytest.raises(OptionError, match="planner must be set together with sites"):
        start(scenario.join(), planner="greedy")
    with pytest.raises(PlanError, match="must be for streams that live at sites"):
        start(scenario.join(), plan=FIRST)
    with pytest.raises(OptionError, match="must have sites for explain"):
        scenario.join().explanation("mermaid")
    with pytest.raises(QueryError, match="the name of a site must be letters"):
        scenario.join().sink_site("no site")
    with pytest.raises(QueryError, match="a link must be between two sites"):
        scenario.join().link("x", latency="1 ms", bandwidth="1 mbit")
    with pytest.raises(QueryError, match="every stream must have a site, or the sink must have one"):
        scenario.join().link(latency="1 ms", bandwidth="1 mbit").query()

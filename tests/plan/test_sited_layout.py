"""Layouts of plans for sites: fragments by site and round, what they keep, what goes where."""

import random
from itertools import pairwise

import pytest

from midstream.plan.build_layout import build_layout
from midstream.plan.layout import Layout
from midstream.plan.site_operators import ShipOperator, node_operator_sets, windows_in
from midstream.plan.sited_plan import SitedPlan
from midstream.plan.state_id import StateId
from midstream.plan.tree import parse_plan
from midstream.query.site_description import SiteDescription
from midstream.testing.draw_sites import draw_sited_plan, draw_topology
from tests.helpers import small_query

PLAN = "a: [b, c], [0, 1]; b: [a, c], [1, 1]; c: [b, a], [0, 0]"
CLIQUE, CHAIN = ["a.k = b.k", "b.k = c.k"], ["a.k = b.k", "b.j = c.j"]
SITES = SiteDescription({"a": "x", "b": "y", "c": "z"})


def layout_of(on: list[str], plan: str = PLAN) -> Layout:
    return build_layout(small_query(on, "abc", topology=SITES.topology("abc")), parse_plan(plan, "abc"))


def test_the_example_of_the_architecture():
    layout = layout_of(CLIQUE)
    assert [(f.site, f.stage, [str(n.id) for n in f.nodes]) for f in layout.fragments] == [
        ("x", 0, ["a,b^a:z", "a,b^b:z"]),
        ("y", 0, []),
        ("z", 0, ["a,b,c"]),
        ("z", 1, ["a,b,c", "a,b,c"]),
        ("x", 2, []),
    ]
    kept = {f.site: set(map(str, f.arrangements)) for f in layout.fragments if f.stage == 0}
    assert kept == {"x": {"a:x", "b:x"}, "y": {"b:y"}, "z": {"a:z", "b:z", "c:z"}}
    assert layout.sink is layout.fragments[-1]
    assert layout.stages == 3


def test_a_head_is_in_its_place_among_the_inputs_of_a_node():
    (first, second, third) = layout_of(CLIQUE).fragments[3].nodes + layout_of(CLIQUE).fragments[2].nodes
    assert first.inputs == ("a,b^a:z", "c:z")
    assert second.inputs == ("a,b^b:z", "c:z")
    assert third.inputs == ("a:z", "b:z", "c:z")
    assert [bool(order) for order in third.probes] == [False, False, True]
    # b comes before c, but as a part of what a has found: what counts is the head.
    plan = PLAN.replace("b: [a, c], [1, 1]", "b: [c, a], [1, 1]")
    nodes = [n for f in layout_of(CLIQUE, plan).fragments for n in f.nodes if "^b" in "".join(n.inputs)]
    assert nodes[0].inputs == ("a:x", "b,c^b:x")


def test_windows_are_arranged_by_the_keys_that_they_are_searched_by():
    by_stage = {(f.site, f.stage): f for f in layout_of(CHAIN).fragments}
    assert by_stage["z", 0].key == ()
    # c finds b by j; a is found by what has b in it, by k; a and b find c by j, in a later round.
    assert by_stage["z", 0].arrangements == {"c:z": ((1,),), "b:z": ((1,),), "a:z": ((0,),)}
    assert by_stage["z", 1].arrangements == {}
    assert by_stage["z", 1].searched_by(StateId("c:z")) == ((1,),)


@pytest.mark.parametrize("seed", range(200))
def test_a_layout_does_what_the_node_operator_sets_say(seed):
    rng = random.Random(seed)
    names = "abcde"[: rng.randint(2, 5)]
    topology = draw_topology(rng, names)
    query = small_query([f"{a}.k = {b}.k" for a, b in pairwise(names)], names, topology=topology)
    plan = draw_sited_plan(rng, names)
    layout = build_layout(query, plan)
    sets = node_operator_sets(SitedPlan(plan.sequences), topology)
    kept = {(f.site, s.streams[0]) for f in layout.fragments for s in f.arrangements}
    homes = {(site, stream) for stream, site in topology.site_of.items()}
    assert kept == homes | {(site, stream) for site, ops in sets.items() for stream in windows_in(ops)}
    shipped = {
        (site, operator.flow.head, operator.site, operator.flow.is_stream)
        for site, operators in sets.items()
        for operator in operators
        if isinstance(operator, ShipOperator) and operator.site in {f.site for f in layout.fragments}
    }
    streams = {
        (topology.site_of[state.streams[0]], state.streams[0], state.site, True)
        for f in layout.fragments
        for state in f.inputs_by_id
        if state.is_base and state.site != topology.site_of[state.streams[0]]
    }
    assert {one for one in shipped if one[3]} == streams
    found = {
        (f.site, str(n.id).partition("^")[2].partition(":")[0], n.id.site)
        for f in layout.fragments
        for n in f.nodes
        if n.id.site
    }
    # What has found a row of every stream goes to the sink as results.
    full = {(f.site, f.site) for f in layout.result_fragments}
    assert {(a, h, b) for a, h, b, own in shipped if not own and b != topology.sink} <= found | {
        (a, h, b) for a, h, b, own in shipped if (a, a) in full
    }
    assert found <= {(a, h, b) for a, h, b, own in shipped if not own}

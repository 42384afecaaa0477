import pytest
from hypothesis import given

from midstream.plan.build_layout import build_layout
from midstream.plan.layout import column_name, representative, state_of
from midstream.plan.state_id import StateId
from midstream.plan.tree import all_plans, parse_plan
from midstream.testing.strategies import cases
from tests.helpers import small_query

CHAIN = ["a.k = b.k", "b.j = c.j", "c.k = d.k"]
CLIQUE = ["a.k = b.k", "b.k = c.k", "c.k = d.k"]


def laid_out(on, plan, **more):
    query = small_query(on, "abcd", **more)
    return build_layout(query, parse_plan(plan, query.names))


@pytest.mark.parametrize("plan", ["((a b) c) d", "(a b) (c d)", "a b c d", "a (b (c d))"])
def test_one_key_class_is_one_fragment(plan):
    layout = laid_out(CLIQUE, plan)
    assert [f.key for f in layout.fragments] == [(0,)]
    assert layout.stages == 1


@pytest.mark.parametrize(
    ("plan", "keys", "stages"),
    [
        ("((a b) c) d", [(0,), (1,), (2,)], [0, 1, 2]),
        ("(a b) (c d)", [(0,), (2,), (1,)], [0, 0, 1]),
        ("a b c d", [()], [0]),
        ("(a b c) d", [(), (2,)], [0, 1]),
        ("(a c) (b d)", [(), (), (0, 1, 2)], [0, 0, 1]),
    ],
)
def test_each_change_of_key_is_a_fragment_and_no_shared_key_is_none(plan, keys, stages):
    layout = laid_out(CHAIN, plan)
    assert [f.key for f in layout.fragments] == keys
    assert [f.stage for f in layout.fragments] == stages
    assert layout.root == "a,b,c,d"


def test_rows_carry_only_what_is_needed_from_here_on():
    layout = laid_out(CHAIN, "((a b) c) d", select=["a.v"])
    below, middle, top = layout.fragments
    assert below.inputs_by_id["a"].columns == ("a#k0", "a.v")
    assert below.inputs_by_id["b"].columns == ("b#k0", "b#k1")
    assert middle.inputs_by_id["c"].columns == ("c#k1", "c#k2")
    assert middle.inputs_by_id["a,b"].columns == ("a#epoch", "a.v", "b#epoch", "b#k1")
    assert top.inputs_by_id["d"].columns == ("d#k2",)


def test_rows_carry_the_same_in_every_plan_so_that_another_can_go_on_with_them():
    query = small_query([*CHAIN, "a.v < c.v"], "abcd", select=["a.v"])
    carried: dict[frozenset[str], set[tuple[str, ...]]] = {}
    for plan in all_plans(query.names):
        for fragment in build_layout(query, plan).fragments:
            for one in fragment.inputs:
                carried.setdefault(frozenset(one.streams), set()).add(one.columns)
    assert max(map(len, carried.values())) == 1


def test_residuals_are_checked_where_their_streams_first_meet():
    layout = laid_out([*CLIQUE, "a.v < c.v"], "((a b) c) d")
    checked = {
        n.id: {i for probes in n.probes for p in probes for i in p.residuals}
        for n in layout.fragments[0].nodes
    }
    assert checked == {"a,b": set(), "a,b,c": {0}, "a,b,c,d": set()}


@given(cases())
def test_every_layout_is_sound(case):
    query, layout = case.query, build_layout(case.query, case.plan)
    seen = {}
    for number, fragment in enumerate(layout.fragments):
        assert fragment.id == number
        for one in fragment.inputs:
            makers = [f for f in layout.fragments if any(n.id == one.id for n in f.nodes)]
            assert [f.stage < fragment.stage for f in makers] == [True] * (not one.is_stream)
            seen[one.id] = fragment.id
        for node in fragment.nodes:
            assert set(node.id.streams) == {s for i in node.inputs for s in i.streams}
            for probes in node.probes:
                # Each residual of the node is checked exactly once, whoever is new.
                assert sorted(i for p in probes for i in p.residuals) == sorted(
                    i for p in node.probes[0] for i in p.residuals
                )
                for probe in probes:
                    assert set(fragment.key) <= query.classes_of(frozenset(probe.input.streams))
    assert set(query.names) <= set(seen)
    checked = {i for f in layout.fragments for n in f.nodes for p in n.probes[0] for i in p.residuals}
    assert checked == set(range(len(query.residuals)))


def test_small_names():
    query = small_query(CHAIN, "abcd")
    assert state_of(query, {"c", "a"}) == "a,c"
    assert representative(query, ["c", "b"], 1) == "b"
    assert column_name(query.outputs[1].ref) == "a.k"
    assert build_layout(query, parse_plan("a b c d", query.names)).fragment_of_input[StateId("c")].id == 0

import pytest
from hypothesis import given

from midstream.plan.build_layout import build_layout
from midstream.plan.layout import column_name, representative, state_of
from midstream.plan.state_id import StateId
from midstream.plan.tree import all_plans, parse_plan
from midstream.testing.hypothesis_strategies import cases
from tests.helpers import small_query

CHAIN = ["a.k = b.k", "b.j = c.j", "c.k = d.k"]
CLIQUE = ["a.k = b.k", "b.k = c.k", "c.k = d.k"]


def layout_of(on, plan, **options):
    query = small_query(on, "abcd", **options)
    return build_layout(query, parse_plan(plan, query.names))


@pytest.mark.parametrize("plan", ["((a b) c) d", "(a b) (c d)", "a b c d", "a (b (c d))"])
def test_one_key_class_is_one_fragment(plan):
    layout = layout_of(CLIQUE, plan)
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
def test_a_fragment_ends_where_the_key_changes_and_may_have_no_key(plan, keys, stages):
    layout = layout_of(CHAIN, plan)
    assert [f.key for f in layout.fragments] == keys
    assert [f.stage for f in layout.fragments] == stages
    assert layout.root == "a,b,c,d"


def test_rows_carry_only_columns_that_are_needed_later():
    layout = layout_of(CHAIN, "((a b) c) d", select=["a.v"])
    below, middle, top = layout.fragments
    assert below.inputs_by_id["a"].columns == ("a#k0", "a.v")
    assert below.inputs_by_id["b"].columns == ("b#k0", "b#k1")
    assert middle.inputs_by_id["c"].columns == ("c#k1", "c#k2")
    assert middle.inputs_by_id["a,b"].columns == ("a#epoch", "a.v", "b#epoch", "b#k1")
    assert top.inputs_by_id["d"].columns == ("d#k2",)


def test_rows_carry_the_same_columns_in_every_plan():
    query = small_query([*CHAIN, "a.v < c.v"], "abcd", select=["a.v"])
    carried: dict[frozenset[str], set[tuple[str, ...]]] = {}
    for plan in all_plans(query.names):
        for fragment in build_layout(query, plan).fragments:
            for input_ in fragment.inputs:
                carried.setdefault(frozenset(input_.streams), set()).add(input_.columns)
    assert max(map(len, carried.values())) == 1


def test_residuals_are_checked_where_their_streams_first_meet():
    layout = layout_of([*CLIQUE, "a.v < c.v"], "((a b) c) d")
    checked = {
        n.id: {i for probes in n.probes for p in probes for i in p.residuals}
        for n in layout.fragments[0].nodes
    }
    assert checked == {"a,b": set(), "a,b,c": {0}, "a,b,c,d": set()}


@given(cases())
def test_every_layout_is_sound(case):
    query, layout = case.query, build_layout(case.query, case.plan)
    inputs = set()
    for number, fragment in enumerate(layout.fragments):
        assert fragment.id == number
        for input_ in fragment.inputs:
            producers = [f for f in layout.fragments if any(n.id == input_.id for n in f.nodes)]
            assert [f.stage < fragment.stage for f in producers] == [True] * (not input_.is_stream)
            inputs.add(input_.id)
        for node in fragment.nodes:
            assert set(node.id.streams) == {s for i in node.inputs for s in i.streams}
            for probes in node.probes:
                # Each residual of the node is checked exactly once, in every probe order.
                assert sorted(i for p in probes for i in p.residuals) == sorted(
                    i for p in node.probes[0] for i in p.residuals
                )
                for probe in probes:
                    assert set(fragment.key) <= query.classes_of(frozenset(probe.input.streams))
    assert set(query.names) <= inputs
    checked = {i for f in layout.fragments for n in f.nodes for p in n.probes[0] for i in p.residuals}
    assert checked == set(range(len(query.residuals)))


def test_names_of_states_and_columns():
    query = small_query(CHAIN, "abcd")
    assert state_of(query, {"c", "a"}) == "a,c"
    assert representative(query, ["c", "b"], 1) == "b"
    assert column_name(query.outputs[1].ref) == "a.k"
    assert build_layout(query, parse_plan("a b c d", query.names)).fragment_of_input[StateId("c")].id == 0

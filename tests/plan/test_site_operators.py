"""Node operator sets: the examples of the paper, and what must hold of the sets of any plan."""

from random import Random

import pytest

from midstream.plan.site_operators import (
    Flow,
    JoinOperator,
    ShipOperator,
    UpdateOperator,
    changed_sites,
    node_operator_sets,
    operators_of_sequence,
    windows_in,
)
from midstream.plan.sited_plan import JoinSequence, SitedPlan
from midstream.sites.greedy import greedy_plan
from tests.sites.sited_cases import paper_model, random_figures, random_model

EXAMPLE_1 = SitedPlan(
    (
        JoinSequence("S1", ("S2", "S3"), (1, 1)),
        JoinSequence("S2", ("S1", "S3"), (0, 1)),
        JoinSequence("S3", ("S1", "S2"), (0, 0)),
    )
)


def as_printed(operators) -> set[str]:
    """In the notation of the paper, in which S^1_2 is what S1 has found up to S2."""

    def rows(flow: Flow) -> str:
        return flow.head if flow.last == flow.head else f"S^{flow.head[1:]}_{flow.last[1:]}"

    def show(operator) -> str:
        if isinstance(operator, JoinOperator):
            return f"join({rows(operator.flow)},{operator.stream})"
        if isinstance(operator, ShipOperator):
            return f"ship({rows(operator.flow)},{operator.site})"
        return f"update({operator.stream})"

    return {show(operator) for operator in operators}


def test_example_1_says_where_the_rows_of_each_head_are():
    site_of = paper_model(3).topology.site_of
    assert [s.locations(site_of) for s in EXAMPLE_1.sequences] == [
        ("N1", "N2", "N3"),
        ("N2", "N2", "N3"),
        ("N3", "N3", "N3"),
    ]


def test_example_2():
    """As printed, but for the first operator of NOS_3: that reads join(S^1_1, S_3), in example 3 S^1_2."""
    sets = node_operator_sets(EXAMPLE_1, paper_model(3).topology)
    assert as_printed(sets["N1"]) == {"ship(S1,N2)", "ship(S1,N3)"}
    assert as_printed(sets["N2"]) == {
        *("join(S1,S2)", "update(S2)", "ship(S^1_2,N3)", "update(S1)"),
        *("join(S2,S1)", "ship(S^2_1,N3)", "ship(S2,N3)"),
    }
    assert as_printed(sets["N3"]) == {
        *("join(S^1_2,S3)", "update(S3)", "ship(S^1_3,N0)", "join(S^2_1,S3)", "ship(S^2_3,N0)"),
        *("join(S3,S1)", "join(S^3_1,S2)", "update(S1)", "update(S2)", "ship(S^3_2,N0)"),
    }
    assert sets["N0"] == ()


def test_example_2_sequence_by_sequence():
    topology = paper_model(3).topology
    first, second, third = (operators_of_sequence(s, topology) for s in EXAMPLE_1.sequences)
    assert {site: as_printed(operators) for site, operators in first.items()} == {
        "N1": {"ship(S1,N2)"},
        "N2": {"join(S1,S2)", "update(S2)", "ship(S^1_2,N3)"},
        "N3": {"join(S^1_2,S3)", "update(S3)", "ship(S^1_3,N0)"},
    }
    assert {site: as_printed(operators) for site, operators in second.items()} == {
        "N1": {"ship(S1,N2)"},
        "N2": {"update(S1)", "join(S2,S1)", "ship(S^2_1,N3)"},
        "N3": {"join(S^2_1,S3)", "update(S3)", "ship(S^2_3,N0)"},
    }
    assert {site: as_printed(operators) for site, operators in third.items()} == {
        "N1": {"ship(S1,N3)"},
        "N2": {"ship(S2,N3)"},
        "N3": {"join(S3,S1)", "join(S^3_1,S2)", "update(S1)", "update(S2)", "ship(S^3_2,N0)"},
    }


def test_example_3():
    topology = paper_model(3).topology
    before = operators_of_sequence(EXAMPLE_1.sequence("S1"), topology)
    after = operators_of_sequence(JoinSequence("S1", ("S3", "S2"), (0, 1)), topology)
    assert {site: as_printed(operators) for site, operators in after.items()} == {
        "N1": {"join(S1,S3)", "update(S3)", "ship(S^1_3,N2)"},
        "N2": {"join(S^1_3,S2)", "update(S2)", "ship(S^1_2,N0)"},
        "N3": {"ship(S3,N1)"},
    }
    assert changed_sites(before, after, topology.sites) == ("N1", "N2", "N3")


@pytest.mark.parametrize(
    ("placements", "expected"),
    [
        # Cases a, c and d of figure 2, and a chain of source placements up to the end.
        ((0, 1), {"N2": {"ship(S2,N1)"}, "N1": {"join(S1,S2)", "update(S2)", "ship(S^1_2,N3)"}}),
        ((1, 0), {"N2": {"join(S1,S2)", "update(S2)", "join(S^1_2,S3)", "update(S3)", "ship(S^1_3,N0)"}}),
        ((0, 0), {"N1": {"join(S1,S2)", "update(S2)", "join(S^1_2,S3)", "update(S3)", "ship(S^1_3,N0)"}}),
    ],
)
def test_cases_of_placements(placements, expected):
    sets = operators_of_sequence(JoinSequence("S1", ("S2", "S3"), placements), paper_model(3).topology)
    for site, operators in expected.items():
        assert as_printed(sets[site]) == operators


def test_nothing_is_shipped_to_where_it_is():
    """Whatever the topology: no operator ships to its own site, and every join has its window."""
    rng = Random(1)
    for _ in range(300):
        model = random_model(rng, rng.randint(2, 6))
        figures = {name: random_figures(rng) for name in model.topology.site_of}
        plan = greedy_plan(model, figures)
        sets = node_operator_sets(plan, model.topology)
        assert set(sets) == set(model.topology.sites)
        for site, operators in sets.items():
            assert len(set(operators)) == len(operators)
            assert not [o for o in operators if isinstance(o, ShipOperator) and o.site == site]
            joined = {o.stream for o in operators if isinstance(o, JoinOperator)}
            assert joined == windows_in(operators)
            # Each copy of a window is fed from the home of its stream.
            for stream in joined:
                home = model.topology.site_of[stream]
                assert home == site or ShipOperator(Flow(stream, stream), site) in sets[home]
        joins = [o for operators in sets.values() for o in operators if isinstance(o, JoinOperator)]
        assert len(joins) == sum(len(s.order) for s in plan.sequences)


def test_operators_as_text():
    assert str(JoinOperator(Flow("a", "b"), "c")) == "join(b^a, c)"
    assert str(UpdateOperator("c")) == "update(c)"
    assert str(ShipOperator(Flow("a", "a"), "oregon")) == "ship(a, oregon)"

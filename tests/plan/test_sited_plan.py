"""The text form of plans for sites."""

import pytest

from midstream.errors import PlanError
from midstream.plan.build_layout import build_layout
from midstream.plan.sited_plan import JoinSequence
from midstream.plan.tree import parse_plan, sited
from midstream.query.site_description import SiteDescription
from tests.helpers import small_query

TEXT = "a: [b, c], [0, 1]; b: [a, c], [1, 1]; c: [b, a], [0, 0]"


def test_a_plan_is_what_its_text_says():
    plan = parse_plan(TEXT, "abc")
    assert plan == sited(
        [
            JoinSequence("a", ("b", "c"), (0, 1)),
            JoinSequence("b", ("a", "c"), (1, 1)),
            JoinSequence("c", ("b", "a"), (0, 0)),
        ]
    )
    assert str(plan) == TEXT
    assert list(plan.leaves()) == ["a", "b", "c"]


def test_sequences_may_be_in_any_order_and_on_lines():
    lines = "c:[b,a],[0,0]\n\n b : [a, c] , [1, 1]; a: [b, c], [0, 1];"
    assert str(parse_plan(lines, "abc")) == TEXT


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [b, c], [0, 1]; a: [b, c], [0, 1]", "two of a"),
        ("a: [b, c], [0, 1]", "got those of a"),
        (TEXT.replace("a: [b, c]", "a: [b, b]"), "must have each of b, c once"),
        (TEXT.replace("[0, 1]", "[0]"), "must have each of b, c once"),
        (TEXT.replace("[0, 1]", "[0, 11]"), "must be 0 or 1"),
        (TEXT.replace("[0, 1]", "[0, 2]"), "must be a stream, an order of the others, and placements"),
        ("a: b c", "must be a stream, an order of the others, and placements"),
        (":", "must be a stream, an order of the others, and placements"),
        ("z: [a, b], [0, 0]; " + TEXT, "got those of z, a, b, c"),
    ],
)
def test_what_is_no_plan_is_refused(text, problem):
    with pytest.raises(PlanError, match=problem):
        parse_plan(text, "abc")


def test_trees_are_for_streams_without_sites_and_sequences_for_those_with():
    query = small_query(["a.k = b.k", "b.k = c.k"], "abc")
    sites = SiteDescription({"a": "x", "b": "y", "c": "z"}).topology("abc")
    at_sites = small_query(["a.k = b.k", "b.k = c.k"], "abc", topology=sites)
    with pytest.raises(PlanError, match="must have a sequence for each; got 'a b c'"):
        build_layout(at_sites, parse_plan("a b c", "abc"))
    with pytest.raises(PlanError, match="must be for streams that live at sites"):
        build_layout(query, parse_plan(TEXT, "abc"))

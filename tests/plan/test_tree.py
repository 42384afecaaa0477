import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import PlanError
from midstream.plan.default_plan import default_plan
from midstream.plan.tree import all_plans, join, leaf, left_deep, parse_plan
from midstream.testing.hypothesis_strategies import plans
from tests.helpers import make_query


@pytest.mark.parametrize(
    "text",
    ["a b", "(a b) c", "a (b c)", "a b c d", "((a b) c) d", "(a b) (c d)", "(a b c) (d e)", "a (b (c d)) e"],
)
def test_a_text_is_parsed_and_printed(text):
    names = sorted(set(text) - set("() "))
    assert str(parse_plan(text, names)) == text
    assert parse_plan(f"  ( {text} ) ", names) == parse_plan(text, names)


@given(st.integers(2, 6).flatmap(lambda n: plans("abcdef"[:n])))
def test_any_plan_can_be_printed_and_parsed(plan):
    assert parse_plan(str(plan), sorted(plan.streams)) == plan
    assert [node.streams for node in plan.nodes()][-1] == plan.streams
    assert sorted(plan.leaves()) == sorted(plan.streams)


@pytest.mark.parametrize(("streams", "count"), [(1, 1), (2, 1), (3, 4), (4, 26), (5, 236)])
def test_there_are_as_many_plans_as_there_are_trees(streams, count):
    def unordered(plan):
        return plan.stream or frozenset(unordered(child) for child in plan.inputs)

    all_of_them = list(all_plans("abcde"[:streams]))
    assert len(all_of_them) == count == len({unordered(plan) for plan in all_of_them})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a node must have inputs"),
        ("a () b c", "a node must have inputs"),
        ("(a b", "parentheses must match"),
        ("a b)", "parentheses must match"),
        (")(", "parentheses must match"),
        ("a, b", "names and parentheses"),
        ("a b c d", "exactly once; .* d is not a stream. Hint: the streams are a, b, c"),
        ("a b", "c is missing"),
        ("(a b) c a", "a is there twice"),
        ("A b c", "A is not a stream, a is missing"),
    ],
)
def test_a_text_that_is_not_a_plan_of_the_streams_is_refused(text, message):
    with pytest.raises(PlanError, match=message):
        parse_plan(text, "abc")


def test_left_deep_joins_one_after_the_other():
    assert left_deep("abc") == join(join(leaf("a"), leaf("b")), leaf("c"))
    assert str(leaf("a")) == "a"


def test_the_default_plan_stays_connected():
    assert str(default_plan(make_query("abc", ["a.i = c.i", "b.l = c.l"]))) == "(a c) b"
    cross_join = make_query("abcd", ["a.i = d.i", "b.i = c.i"], cross=True)
    assert str(default_plan(cross_join)) == "((a d) b) c"

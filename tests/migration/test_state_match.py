"""Matching the states of two plans: which are shared, moved or empty, and which are borders."""

from __future__ import annotations

import pytest

from midstream.engine.migration_step import Move
from midstream.migration.state_match import StateMatch, match_states
from midstream.plan.build_layout import build_layout
from midstream.plan.state_id import StateId
from midstream.plan.tree import parse_plan
from midstream.query.query import Query
from tests.helpers import small_query

CLIQUE = small_query(["a.k = b.k", "b.k = c.k", "c.k = d.k"], "abcd", default_window=30)
CHAIN = small_query(["a.k = b.k", "b.j = c.j", "c.k = d.k"], "abcd", default_window=30)
# a,b,c is joined by k alone; d and e each by a key of their own.
FIVE = small_query(["a.k = b.k", "b.k = c.k", "c.j = d.j", "a.v = e.v"], "abcde", default_window=30)
# a and b share two keys: c is joined by the one, d by the other.
TWO_KEYS = small_query(["a.k = b.k", "b.k = c.k", "a.j = b.j", "b.j = d.j"], "abcd", default_window=30)
NUMBER = 7


def matched(query: Query, old: str, new: str, *, isolated: bool = False) -> StateMatch:
    before, after = (build_layout(query, parse_plan(plan, query.names)) for plan in (old, new))
    return match_states(before, after, NUMBER, isolated=isolated)


@pytest.mark.parametrize(
    ("new", "shared", "empty"),
    [
        ("((b c) a) d", "a b c d a,b,c", "b,c@7"),
        ("((a b) d) c", "a b c d a,b", "a,b,d@7"),
        ("((c d) a) b", "a b c d", "c,d@7 a,c,d@7"),
        ("d (c (b a))", "a b c d a,b a,b,c", ""),
        ("a b c d", "a b c d", ""),
    ],
)
def test_with_one_key_a_state_of_the_same_streams_is_shared(new, shared, empty):
    match = matched(CLIQUE, "((a b) c) d", new)
    assert match.plans.shared == set(shared.split())
    assert match.empty == set(empty.split())
    assert match.moves == ()
    assert set(match.state_ids.values()) == match.empty
    assert match.plans.new.states == match.plans.shared | match.empty


@pytest.mark.parametrize(
    ("new", "shared", "moved", "empty"),
    [
        # b was searched by k and is now searched by j; a,b,c is still searched by the same key.
        ("((b c) a) d", "a c d a,b,c", "b", "b,c@7"),
        # a,b and d have no key in common: they run in one engine partition, and c needs both its keys.
        ("((a b) d) c", "a b", "a,b c d", "a,b,d@7"),
        ("((b a) c) d", "a b c d a,b a,b,c", "", ""),
        ("a b c d", "", "a b c d", ""),
    ],
)
def test_with_several_keys_it_is_shared_only_if_both_plans_have_it_in_the_same_location(
    new, shared, moved, empty
):
    match = matched(CHAIN, "((a b) c) d", new)
    assert match.plans.shared == set(shared.split())
    assert {(move.source, move.target) for move in match.moves} == {(s, f"{s}@7") for s in moved.split()}
    assert match.empty == set(empty.split())


def test_a_combined_state_by_another_key_is_a_border_whatever_is_below():
    # a,b,c was searched by j, for d, and is now searched by v, for e.
    match = matched(FIVE, "(((a b) c) d) e", "(((a b) c) e) d")
    assert Move(StateId("a,b,c"), StateId("a,b,c@7")) in match.moves
    assert match.plans.moved_borders == {"a,b,c@7"}
    assert "a,b" in match.plans.shared
    match = matched(FIVE, "(((a b) c) d) e", "(((b c) a) e) d")
    assert match.empty == {"b,c@7", "a,b,c,e@7"}
    assert Move(StateId("a,b,c"), StateId("a,b,c@7")) in match.moves
    assert match.plans.moved_borders == {"a,b,c@7"}


def test_a_border_of_isolated_plans_starts_empty():
    match = matched(FIVE, "(((a b) c) d) e", "(((b c) a) e) d", isolated=True)
    assert match.moves == ()
    assert match.plans.moved_borders == {"a,b,c@7"}
    assert "a,b,c@7" in match.empty


def test_a_border_within_a_fragment_of_the_new_plan_starts_empty_if_it_was_an_input():
    # In the old plan a,b is sent to d, in the new one it stays where it is joined, for c.
    query = small_query(["a.k = b.k", "b.k = c.k", "a.j = d.j"], "abcd", default_window=30)
    match = matched(query, "((a b) d) c", "((a b) c) d")
    assert match.plans.moved_borders == {"a,b@7"}
    assert match.empty == {"a,b@7", "a,b,c@7"}
    match = matched(query, "((a b) c) d", "((a b) d) c")
    assert match.plans.moved_borders == {"a,b@7"}
    assert match.empty == {"a,b,d@7"}


@pytest.mark.parametrize(
    ("old", "new", "empty"),
    [
        # Inside of different fragments: the new plan cannot use rows that refer to payload elsewhere.
        ("((a b) c) d", "((a b) d) c", "a,b@7 a,b,d@7"),
        # The old plan has a,b inside of a fragment that the rows of the new plan's node cannot reach.
        ("((a b) c) d", "(a b) c d", ""),
    ],
)
def test_a_state_whose_rows_cannot_reach_both_locations_is_no_border(old, new, empty):
    match = matched(TWO_KEYS, old, new)
    assert match.plans.moved_borders == set()
    assert match.empty == set(empty.split())


def test_a_state_that_is_no_border_is_moved_only_if_no_state_below_is_empty():
    query = small_query(
        ["a.k = b.k", "b.k = c.k", "c.k = d.k", "a.j = b.j", "b.j = c.j", "a.v = e.v"],
        "abcde",
        default_window=30,
    )
    # a,b,c is inside of a fragment by k, and then produced in one by both keys, and sent to that of e.
    same_below, other_below = (
        matched(query, "((a b c) d) e", new) for new in ("((a b c) e) d", "(((a b) c) e) d")
    )
    assert same_below.plans.moved_borders == other_below.plans.moved_borders == set()
    assert Move(StateId("a,b,c"), StateId("a,b,c@7")) in same_below.moves
    assert other_below.empty == {"a,b@7", "a,b,c@7", "a,b,c,e@7"}

"""The replaced sub-plans of two plans, and their hand-over tables."""

from __future__ import annotations

import pytest

from midstream.migration.handover_tables import ReplacedSubplan, complete, expire, first_tables
from midstream.migration.state_match import StateMatch, match_states
from midstream.plan.build_layout import build_layout
from midstream.plan.state_id import StateId
from midstream.plan.tree import parse_plan
from midstream.query.query import Query
from midstream.state.expiry import Expiry
from midstream.state.migration import HandoverEntry
from tests.helpers import small_query

CLIQUE = small_query(["a.k = b.k", "b.k = c.k", "c.k = d.k"], "abcd", default_window=30)
NUMBER = 7


def subplans_of(query: Query, old: str, new: str) -> tuple[list[ReplacedSubplan], StateMatch]:
    before, after = (build_layout(query, parse_plan(plan, query.names)) for plan in (old, new))
    match = match_states(before, after, NUMBER)
    return match.plans.subplans, match


def summary(subplan: ReplacedSubplan) -> tuple[str, list[str], list[str]]:
    return subplan.root, [node.id for node in subplan.old], [node.id for node in subplan.new]


def test_a_sub_plan_reaches_from_a_shared_state_down_to_the_next_ones():
    subplans, _ = subplans_of(CLIQUE, "((a b) c) d", "((b c) a) d")
    assert [summary(subplan) for subplan in subplans] == [("a,b,c", ["a,b", "a,b,c"], ["b,c@7", "a,b,c"])]
    subplans, _ = subplans_of(CLIQUE, "((a b) c) d", "((a b) d) c")
    assert [summary(subplan) for subplan in subplans] == [
        ("a,b,c,d", ["a,b,c", "a,b,c,d"], ["a,b,d@7", "a,b,c,d"])
    ]


def test_plans_that_differ_in_two_places_have_two_sub_plans_the_lower_first():
    query = small_query([f"a.k = {n}.k" for n in "bcdef"], "abcdef", default_window=30)
    subplans, match = subplans_of(query, "((((a b) c) d) e) f", "((((b c) a) e) d) f")
    assert [summary(subplan) for subplan in subplans] == [
        ("a,b,c", ["a,b", "a,b,c"], ["b,c@7", "a,b,c"]),
        ("a,b,c,d,e", ["a,b,c,d", "a,b,c,d,e"], ["a,b,c,e@7", "a,b,c,d,e"]),
    ]
    assert first_tables(subplans, match.empty, {}, 5) == {
        "a,b,c": (HandoverEntry(StateId("b,c@7"), {"b": 5, "c": 5}),),
        "a,b,c,d,e": (HandoverEntry(StateId("a,b,c,e@7"), dict.fromkeys("abce", 5)),),
    }


def test_plans_that_differ_only_in_the_order_of_inputs_have_no_sub_plan():
    assert subplans_of(CLIQUE, "((a b) c) d", "d (c (b a))")[0] == []


def test_at_first_only_the_lowest_empty_states_have_an_entry():
    subplans, match = subplans_of(CLIQUE, "((a b) c) d", "((c d) a) b")
    assert match.empty == {"c,d@7", "a,c,d@7"}
    assert first_tables(subplans, match.empty, {}, 5) == {
        "a,b,c,d": (HandoverEntry(StateId("c,d@7"), {"c": 5, "d": 5}),)
    }
    subplans, match = subplans_of(CLIQUE, "((a b) c) d", "(a d) (b c)")
    (entries,) = first_tables(subplans, match.empty, {}, 5).values()
    assert {entry.state: entry.bounds for entry in entries} == {
        "a,d@7": {"a": 5, "d": 5},
        "b,c@7": {"b": 5, "c": 5},
    }


def test_a_copy_of_a_shared_state_is_empty_too():
    subplans, match = subplans_of(CLIQUE, "((a b) c) d", "a b c d")
    copies = {StateId(name): StateId(f"{name}@7") for name in "abcd"}
    assert first_tables(subplans, match.empty, {}, 5) == {"a,b,c,d": ()}
    tables = first_tables(subplans, match.empty | set(copies.values()), copies, 5)
    assert tables == {"a,b,c,d": tuple(HandoverEntry(StateId(f"{name}@7"), {name: 5}) for name in "abcd")}


def test_the_entry_of_a_complete_state_moves_to_its_parent_with_siblings_until_then():
    subplans, match = subplans_of(CLIQUE, "((a b) c) d", "((c d) a) b")
    tables = first_tables(subplans, match.empty, {}, 5)
    higher = complete(tables, match.plans.new, StateId("c,d@7"), 8)
    assert higher == {"a,b,c,d": (HandoverEntry(StateId("a,c,d@7"), {"a": 8, "c": 5, "d": 5}),)}
    assert complete(higher, match.plans.new, StateId("a,c,d@7"), 9) == {"a,b,c,d": ()}


def test_completing_one_state_leaves_the_entries_of_others():
    subplans, match = subplans_of(CLIQUE, "((a b) c) d", "(a d) (b c)")
    tables = first_tables(subplans, match.empty, {}, 5)
    assert complete(tables, match.plans.new, StateId("a,d@7"), 6) == {
        "a,b,c,d": (HandoverEntry(StateId("b,c@7"), {"b": 5, "c": 5}),)
    }


LATEST_TIMES = {5: dict.fromkeys("abcd", 100), 8: dict.fromkeys("abcd", 200)}


def purge_at(**watermarks: int) -> Expiry:
    return Expiry(CLIQUE.windows, {**dict.fromkeys("abcd", 1000), **watermarks})


@pytest.mark.parametrize(
    ("watermarks", "expires"),
    [
        ({"c": 131, "d": 131}, True),
        ({"c": 130, "d": 131}, False),
        ({"c": 131, "d": 130}, False),
        # Whether a and b may still bring old rows does not matter: rows of the entry have them already.
        ({"c": 131, "d": 131, "a": 0, "b": 0}, True),
    ],
)
def test_an_entry_expires_once_no_future_row_can_meet_it(watermarks, expires):
    tables = {StateId("a,b,c,d"): (HandoverEntry(StateId("a,b@7"), {"a": 5, "b": 5}),)}
    left = expire(tables, purge_at(**watermarks), LATEST_TIMES)
    assert left == ({"a,b,c,d": ()} if expires else tables)


def test_one_component_that_is_too_old_is_enough():
    tables = {StateId("a,b,c,d"): (HandoverEntry(StateId("a,b,c@7"), {"a": 5, "b": 5, "c": 8}),)}
    assert expire(tables, purge_at(d=130), LATEST_TIMES) == tables
    assert expire(tables, purge_at(d=131), LATEST_TIMES) == {"a,b,c,d": ()}


def test_an_entry_of_a_stream_without_rows_is_removed():
    latest_times = {5: {"a": 100, "b": None, "c": 100, "d": 100}}
    tables = {
        StateId("a,b,c,d"): (
            HandoverEntry(StateId("a,b@7"), {"a": 5, "b": 5}),
            HandoverEntry(StateId("c,d@7"), {"c": 5, "d": 5}),
        )
    }
    left = expire(tables, purge_at(a=0, b=0, c=0, d=0), latest_times)
    assert left == {"a,b,c,d": (HandoverEntry(StateId("c,d@7"), {"c": 5, "d": 5}),)}

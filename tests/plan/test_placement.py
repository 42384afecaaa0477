"""Placement rules give the same answer for sets of key classes and for bit masks of them."""

from hypothesis import given
from hypothesis import strategies as st

from midstream.plan.placement import (
    common_classes,
    fragment_classes,
    fragment_stage,
    next_input,
    search_classes,
)

classes = st.frozensets(st.integers(0, 3))
NONE: frozenset[int] = frozenset()


def mask(of: frozenset[int]) -> int:
    return sum(1 << one for one in of)


@given(st.lists(classes, min_size=1, max_size=4))
def test_a_node_is_spanned_by_what_all_its_inputs_have(inputs):
    common = common_classes(inputs)
    assert common == {one for one in range(4) if all(one in of for of in inputs)}
    assert mask(common) == common_classes([mask(of) for of in inputs])


@given(classes, classes)
def test_bit_masks_follow_the_rules_of_sets(fragment, other):
    merged = fragment_classes(fragment, other)
    assert fragment_classes(mask(fragment), mask(other)) == (None if merged is None else mask(merged))
    assert search_classes(mask(fragment), mask(other)) == mask(search_classes(fragment, other))


def test_a_node_joins_a_fragment_if_one_key_places_both_or_none_places_either():
    assert fragment_classes(frozenset((0, 1)), frozenset((1, 2))) == frozenset((1,))
    assert fragment_classes(NONE, NONE) == NONE
    assert fragment_classes(frozenset((0,)), frozenset((1,))) is None
    assert fragment_classes(frozenset((0,)), NONE) is None
    assert fragment_classes(NONE, frozenset((0,))) is None


def test_a_fragment_runs_in_the_stage_after_the_last_of_those_below():
    assert fragment_stage([]) == 0
    assert fragment_stage([0, 2, 1]) == 3


def test_only_a_node_without_a_key_is_searched_by_what_probing_rows_share():
    assert search_classes(frozenset((0,)), frozenset((1,))) == frozenset((0,))
    assert search_classes(NONE, frozenset((1,))) == frozenset((1,))


def test_the_first_input_that_shares_most_is_probed_next():
    assert next_input([1, 2, 0, 2]) == 1
    assert next_input([0, 0]) == 0

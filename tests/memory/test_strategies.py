"""Which groups each strategy spills first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from midstream.errors import OptionError
from midstream.memory.strategies import SPILL_STRATEGIES, SpillCandidate, rank_of

GROUP = SpillCandidate("0: a b", 1, stage=0, size=100, output=10, results=10, stored_bytes=0, epoch=4)


@pytest.mark.parametrize(
    ("strategy", "first", "second"),
    [
        ("bottom_up", GROUP, replace(GROUP, stage=1)),
        ("local_output", replace(GROUP, output=5, results=50), GROUP),
        ("global_output", replace(GROUP, output=50, results=5), GROUP),
        ("global_output_penalty", replace(GROUP, results=11, stored_bytes=100), GROUP),
        ("largest", replace(GROUP, size=200), GROUP),
        ("most_productive", replace(GROUP, results=50), GROUP),
    ],
)
def test_a_strategy_prefers(strategy, first, second):
    rank = rank_of(strategy)
    assert rank(first) < rank(second)


def test_what_is_random_is_the_same_when_an_epoch_runs_again_and_another_in_the_next():
    groups = [replace(GROUP, group=number) for number in range(50)]
    rank = rank_of("random")
    order = [group.group for group in sorted(groups, key=rank)]
    groups.reverse()
    assert order == [group.group for group in sorted(groups, key=rank)]
    later = sorted((replace(group, epoch=5) for group in groups), key=rank)
    assert order != [group.group for group in later]


def test_groups_that_are_equal_have_an_order():
    for strategy in SPILL_STRATEGIES:
        rank = rank_of(strategy)
        assert rank(GROUP) != rank(replace(GROUP, group=2))


def test_an_unknown_strategy_is_refused():
    with pytest.raises(OptionError, match="spill must be one of bottom_up, "):
        rank_of("all")

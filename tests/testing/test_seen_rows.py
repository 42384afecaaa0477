"""Which states are of nodes that no key places: whoever has the groups, their rows are in one partition."""

import pytest

from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.testing.seen_rows import unplaced_states
from tests.helpers import rows, small_query

QUERY = small_query(["a.k = b.k", "b.j = c.j", "c.j = d.j"], "abcd", default_window=10)


@pytest.mark.parametrize(
    ("plan", "states"),
    [("((a b) c) d", set()), ("(a b c) d", {"a", "b", "c"}), ("a b c d", {"a", "b", "c", "d"})],
)
def test_a_node_whose_inputs_share_no_key_has_states_that_none_places(plan, states):
    join = InlineJoin(QUERY, plan, settings=Settings(2, 4))
    assert unplaced_states(QUERY, join.manifest) == states


def test_states_that_no_key_places_are_those_of_both_plans_of_a_migration():
    join = InlineJoin(QUERY, "((a b) c) d", settings=Settings(2, 4))
    join.run_epoch({name: rows((10, 1, 1, "v")) for name in "abcd"})
    join.migrate("(a b c) d", "parallel_track")
    join.run_epoch({name: rows((11, 1, 1, "v")) for name in "abcd"})
    assert join.manifest.migration is not None
    assert {state.label for state in unplaced_states(QUERY, join.manifest)} == {"a", "b", "c"}

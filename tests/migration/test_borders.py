"""Borders: a sub-plan that both plans have is computed once, also if its rows go to two locations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import permutations

import pyarrow as pa
import pytest

from midstream.inline import InlineJoin
from midstream.migration.state_match import match_states
from midstream.plan.build_layout import build_layout
from midstream.plan.state_id import StateId
from midstream.plan.tree import Plan
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.testing import assert_same_rows
from tests.connected_plans import connected_plans
from tests.helpers import rows, small_query
from tests.migration.migration_cases import STRATEGY_CASES, StrategyCase

CHAIN = ["a.k = b.k", "b.j = c.j", "c.v = d.v"]
STAR = ["a.k = b.k", "a.j = c.j", "a.v = d.v"]
MIXED = ["a.k = b.k", "b.k = c.k", "a.j = d.j"]
TWO_KEYS = ["a.k = b.k", "b.k = c.k", "a.j = b.j", "b.j = d.j"]
"""Streams a and b share two keys."""

START = 3


def query_of(on: list[str]) -> Query:
    return small_query(on, "abcd", default_window=60, select=[f"{name}.t AS {name}" for name in "abcd"])


def shape(plan: Plan) -> object:
    """A plan whatever the order of its inputs."""
    return plan.stream or frozenset(map(shape, plan.inputs))


def common_subplans(old: Plan, new: Plan) -> set[frozenset[str]]:
    """The streams of the joins that both plans have below their roots, done in the same way."""
    shapes = {shape(node) for node in old.nodes()}
    return {node.streams for node in new.nodes() if shape(node) in shapes and node != new}


def pairs(query: Query) -> Iterator[tuple[Plan, Plan]]:
    """Every two plans without cross joins that have a sub-plan in common."""
    return ((old, new) for old, new in permutations(connected_plans(query), 2) if common_subplans(old, new))


def computed_twice(query: Query, old: Plan, new: Plan) -> set[frozenset[str]]:
    """The common sub-plans that both plans compute."""
    match = match_states(build_layout(query, old), build_layout(query, new), 1)
    nodes = [(s.old, s.new) for s in match.plans.subplans]
    of_old, of_new = ({frozenset(n.id.streams) for side in nodes for n in side[i]} for i in (0, 1))
    return common_subplans(old, new) & of_old & of_new


@pytest.mark.parametrize(
    ("on", "count", "twice"),
    [
        (CHAIN, 18, 0),
        (STAR, 18, 0),
        (MIXED, 30, 0),
        # {a,b} is in the old plan inside of a fragment that other keys place than in the new plan. Its rows
        # refer to payload there, so those of the new plan's node are of no use.
        (TWO_KEYS, 54, 4),
    ],
    ids=["chain", "star", "mixed", "two keys"],
)
def test_a_sub_plan_that_both_plans_have_is_computed_once(on: list[str], count: int, twice: int):
    query = query_of(on)
    found = [computed_twice(query, old, new) for old, new in pairs(query)]
    assert len(found) == count
    assert sum(map(bool, found)) == twice


def arrivals(epoch: int) -> dict[str, pa.Table]:
    """Two rows of each stream, which match all others."""
    return {name: rows(*((10 * epoch + i, 1, 1, "v") for i in range(2))) for name in "abcd"}


class ProducedRows:
    """What a run has produced, with results of each epoch; a migration starts at ``START``, if any."""

    def __init__(self, query: Query, old: str, new: str = "", how: StrategyCase | None = None) -> None:
        join = InlineJoin(query, old, settings=Settings(2, 8))
        self.results: list[pa.Table] = []
        self.produced: list[dict[StateId, int]] = []
        """For each epoch, how many rows were produced for each state."""
        self.under_way: list[bool] = []
        for epoch in range(14):
            if epoch == START and how is not None:
                how.migrate(join, new)
            self.results.append(join.run_epoch(arrivals(epoch), background_epochs=1))
            self.produced.append(dict(join.report.produced))
            self.under_way.append(join.manifest.migration is not None)
        assert join.manifest.plan == (new or old)


@cache
def unchanged_run(on: tuple[str, ...], old: str) -> ProducedRows:
    return ProducedRows(query_of(list(on)), old)


PAIRS_OF_CUTS = [
    (STAR, "((a b) c) d", "((a b) d) c"),
    (CHAIN, "((a b) c) d", "(a b) (c d)"),
    (MIXED, "((a b) c) d", "((a b) d) c"),
    (MIXED, "((a b) d) c", "((a b) c) d"),
]


@pytest.mark.parametrize(("on", "old", "new"), PAIRS_OF_CUTS)
@pytest.mark.parametrize("how", STRATEGY_CASES, ids=str)
def test_no_row_of_a_border_is_produced_twice_or_not_at_all(how: StrategyCase, on, old, new):
    migrated, unchanged = ProducedRows(query_of(on), old, new, how), unchanged_run(tuple(on), old)
    runs_old_plan = how.strategy != "moving_state"
    assert any(migrated.under_way) is runs_old_plan
    for produced, expected in zip(migrated.produced, unchanged.produced, strict=True):
        assert (
            sum(produced.get(state, 0) for state in map(StateId, ("a,b", "a,b@1")))
            == expected[StateId("a,b")]
        )
    assert_same_rows(pa.concat_tables(migrated.results), pa.concat_tables(unchanged.results))

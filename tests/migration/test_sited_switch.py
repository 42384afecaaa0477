"""Changing the plan of streams that live at sites: which windows are copied, and that nothing is lost."""

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from midstream.errors import OptionError
from midstream.inline import InlineJoin
from midstream.migration.explain import explain_query
from midstream.migration.sited_switch import lacking_windows, match_windows
from midstream.plan.build_layout import build_layout
from midstream.plan.tree import parse_plan
from midstream.protocol.progress import state_sizes
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.site_description import SiteDescription
from midstream.storage.fsck import check as fsck
from midstream.testing import Shape, accept, assert_same_rows, batch_join, generate, stream
from midstream.testing.draw_sites import draw_sited_plan, draw_topology
from midstream.values import Micros

SHAPE = Shape(rows=15, keys=6, late=0.1, null_keys=0.1)
EPOCHS = generate(dict.fromkeys("abc", SHAPE), epochs=8, seed=3)
AT = 3
HERE = "a: [b, c], [0, 0]; b: [a, c], [1, 0]; c: [a, b], [1, 0]"
THERE = "a: [c, b], [1, 0]; b: [c, a], [1, 0]; c: [b, a], [0, 0]"
SITES = SiteDescription({"a": "x", "b": "y", "c": "z"})
PREDICATES = {"a clique": ["a.k = b.k", "b.k = c.k"], "a chain": ["a.k = b.k", "b.k2 = c.k2"]}


def query_on(predicates, topology):
    streams = [stream(name, SHAPE) for name in "abc"]
    window = Micros(35_000_000)
    return build_query(streams, predicates, default_window=window, topology=topology)


def test_windows_that_both_plans_have_are_shared():
    query = query_on(PREDICATES["a clique"], SITES.topology("abc"))
    old, new = (build_layout(query, parse_plan(plan, "abc")) for plan in (HERE, THERE))
    match = match_windows(query, old, new, 4)
    # The windows of a, b and c at home stay; those of a and b at z are copied from home.
    assert {(m.source, m.target, m.epochs) for m in match.moves} == {
        ("a:x", "a:z@4", None),
        ("b:y", "b:z@4", None),
    }
    assert match.state_ids == {"a:z": "a:z@4", "b:z": "b:z@4"}
    assert set(lacking_windows(old, match.new)) == {"a:z@4", "b:z@4"}
    assert match_windows(query, old, old, 4).moves == ()
    # Back again: copies that were dropped start anew.
    back = match_windows(query, match.new, old, 5)
    assert {move.target for move in back.moves} == {"b:x@5", "c:x@5"}


def test_a_window_that_is_searched_by_another_key_is_copied_where_it_is():
    query = query_on(PREDICATES["a chain"], SITES.topology("abc"))
    old, new = (build_layout(query, parse_plan(plan, "abc")) for plan in (HERE, THERE))
    moves = {str(move.target): move.source for move in match_windows(query, old, new, 1).moves}
    assert moves["c:z@1"] == "c:z"


@pytest.mark.parametrize("predicates", PREDICATES.values(), ids=PREDICATES)
@pytest.mark.parametrize("background", [None, 1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_by_any_change(predicates, background, seed):
    rng = random.Random(seed)
    query = query_on(predicates, draw_topology(rng, "abc"))
    at_once = 50_000 if background is None else 0
    settings = Settings(None, 8, rows_moved_at_once=at_once)
    join = InlineJoin(query, draw_sited_plan(rng, "abc"), settings=settings)
    asked = draw_sited_plan(rng, "abc")
    results = []
    for number, epoch in enumerate([*EPOCHS, *({} for _ in range(60))]):
        if number >= len(EPOCHS) and join.manifest.migration is None:
            break
        if number == AT:
            join.migrate(asked)
        results.append(join.run_epoch(epoch, background_epochs=background))
        if rng.random() < 0.3:
            join = InlineJoin(query, settings=settings, store=join.store)
    assert join.manifest.plan == str(asked)
    expected = batch_join(query, accept(query, EPOCHS).tables(query))
    assert expected.num_rows > 1000
    assert_same_rows(pa.concat_tables(results), expected)
    assert fsck(join.store).problems == ()


def test_copies_come_in_portions_newest_first_while_the_old_plan_runs():
    query = query_on(PREDICATES["a clique"], SITES.topology("abc"))
    join = InlineJoin(query, HERE, settings=Settings(None, 8, rows_moved_at_once=0))
    phases, plans, events = [], [], []
    for number, epoch in enumerate(EPOCHS):
        if number == AT:
            join.migrate(THERE)
        join.run_epoch(epoch, background_epochs=2)
        migration = join.manifest.migration
        phases.append(None if migration is None else dict(migration.moving))
        plans.append(join.manifest.plan)
        events += [event["type"] for event in join.recentProgress[-1]["events"]]
        if number == AT + 1:
            text = explain_query(query, join.manifest, state_sizes(join.manifest))
            assert "{a:z} is being copied; rows from before epoch 1 are still to come." in text
    assert phases[AT] == {"a:z@1": 3, "b:z@1": 3}
    assert phases[AT + 1] == {"a:z@1": 1, "b:z@1": 3}
    assert phases[AT + 2] == {"b:z@1": 3}
    assert phases[AT + 4] == {}
    assert plans[AT + 4 :] == [HERE]
    assert events.count("state-completed") == 2
    join.run_epoch({})
    assert join.manifest.plan == THERE


def test_there_is_one_way_to_change_a_plan_for_sites():
    query = query_on(PREDICATES["a clique"], SITES.topology("abc"))
    join = InlineJoin(query, HERE, settings=Settings(None, 8))
    with pytest.raises(OptionError, match="must be changed without a strategy"):
        join.migrate(THERE, "hybrid")
    join.run_epoch(EPOCHS[0])
    join.migrate(HERE)
    join.run_epoch(EPOCHS[1])
    assert join.manifest.migrations == 0


def test_rows_that_have_expired_are_not_copied():
    query = query_on(PREDICATES["a clique"], SITES.topology("abc"))
    given = [*EPOCHS, *generate(dict.fromkeys("abc", replace(SHAPE, late=0.0)), epochs=12, seed=3)[10:]]
    join = InlineJoin(query, HERE, settings=Settings(None, 8))
    for epoch in given:
        join.run_epoch(epoch)
    join.migrate(THERE)
    join.run_epoch({})
    stored = sum(s.rows for s in join.manifest.slices if s.owner.kind == "index" and s.owner.state == "a:z@1")
    assert 0 < stored < sum(epoch["a"].num_rows for epoch in given) / 2

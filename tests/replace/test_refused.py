"""What is refused when a replacement is asked for says what must hold, what was got, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from midstream.errors import MidstreamError, OptionError, QueryError
from midstream.inline import InlineJoin
from midstream.plan.tree import parse_plan
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.storage.memory_store import MemoryStore
from tests.helpers import rows, small_query
from tests.plain_errors import assert_plain

KEYS = ("a.k = b.k", "b.k = c.k")
SETTINGS = Settings(2, 8)


def query(*on: str, window: int = 10, lateness: int = 0) -> Query:
    return small_query([*KEYS, *on], "abc", lateness, default_window=window, select=["a.k", "b.k", "c.v"])


@pytest.fixture
def join() -> InlineJoin:
    join = InlineJoin(query(), settings=SETTINGS)
    join.run_epoch({name: rows((100, 1, 1, name)) for name in "abc"})
    return join


def test_a_replacement_must_change_something(join):
    for plan in (None, "(a b) c", parse_plan("(a b) c", "abc")):
        with pytest.raises(QueryError, match="must change something") as raised:
            join.replace(query(), plan)
        assert_plain(raised.value)
        assert "migrate(plan)" in (raised.value.hint or "")
    assert not join.is_replacing
    text = join.explain_replace(query())
    assert text.startswith(
        "What changes:\n  nothing\n\nIt would be refused: a replacement must change something"
    )
    # Columns that it does not use are not of the definition.
    narrow = [replace(s, schema=s.schema.remove(s.schema.get_field_index("j"))) for s in query().streams]
    with pytest.raises(QueryError, match="must change something"):
        join.replace(replace(query(), streams=tuple(narrow)))
    # Other terms change something, and so does another plan.
    assert "must change" not in join.explain_replace(query(lateness=5))
    join.replace(query(), "a (b c)")
    assert join.is_replacing


def test_outputs_that_were_left_out_at_a_restart_are_no_change(join):
    select = ["a.k", "c.v"]
    fewer = small_query(list(KEYS), "abc", default_window=10, select=select)
    join = InlineJoin(fewer, settings=SETTINGS, store=join.store)
    with pytest.raises(QueryError, match="must change something"):
        join.replace(fewer)


def test_arguments_in_each_others_place_are_told(join):
    new = query(window=20)
    with pytest.raises(OptionError, match=r"'generalized_hybrid', which is a strategy.*write strategy='gen"):
        join.replace(new, "generalized_hybrid")
    with pytest.raises(OptionError, match=r"got 'a \(b c\)'. Hint: write plan=... for a plan"):
        join.replace(new, None, "a (b c)")
    with pytest.raises(OptionError, match=r"got 'hybrid'. Hint: that is one of migrations.*migrate\(plan"):
        join.replace(new, strategy="hybrid")
    with pytest.raises(OptionError, match="must be one of generalized_hybrid") as raised:
        join.replace(new, strategy=parse_plan("a b c", "abc"))
    assert_plain(raised.value)
    assert not join.is_replacing


ASKS: dict[str, Callable[[InlineJoin], None]] = {
    "another definition": lambda join: join.replace(query(window=30)),
    "the definition as it was": lambda join: join.replace(query()),
    "a plan": lambda join: join.migrate("a b c"),
    "a plan by a black box": lambda join: join.migrate("a b c", "generalized_hybrid"),
}


@pytest.mark.parametrize("asks", ASKS)
def test_a_second_change_is_told_what_is_under_way_and_what_to_do(asks):
    store = MemoryStore()
    join = InlineJoin(query(), settings=SETTINGS, store=store)
    for epoch in range(3):
        join.run_epoch({name: rows((100 + epoch, 1, 1, name)) for name in "abc"})

    def refusal() -> str:
        with pytest.raises(MidstreamError) as raised:
            ASKS[asks](join)
        assert_plain(raised.value)
        assert str(raised.value.hint).startswith("wait for the event replacement-ended before you ask")
        explained = join.explain_replace(query(window=30))
        assert "It would be refused: a replacement that was asked for must have ended" in explained
        return str(raised.value.got).removeprefix("one that has not ended: ")

    join.replace(query("a.k <> c.k", window=20))
    assert refusal() == "of the definition, by generalized_hybrid, which waits to begin"
    join = InlineJoin(query(), settings=SETTINGS, store=store)
    assert refusal() == "of the definition, by generalized_hybrid, which waits to begin"
    join.run_epoch({}, background_epochs=0)
    assert refusal() == "number 1, of the definition, by generalized_hybrid, which has 0 % of the stored rows"
    join.run_epoch({}, background_epochs=None)
    assert refusal().endswith("by generalized_hybrid, until all results of the old definition are out")


def test_a_plan_that_is_forbidden_is_refused_when_it_is_explained_as_well():
    forbids = replace(SETTINGS, partitions=1, single_partition="forbid")
    join = InlineJoin(query(), settings=forbids)
    join.run_epoch({})
    new = small_query(["a.k = b.k", "b.j = c.j"], "abc", default_window=10, select=["a.k", "b.k", "c.v"])
    assert "forbid" not in join.explain_replace(new, "a b c")
    # Also in partitions that are only asked for.
    join.rescale(3)
    with pytest.raises(OptionError, match="forbid"):
        join.replace(new, "a b c", "generalized_parallel_track")
    assert "forbid" in join.explain_replace(new, "a b c")

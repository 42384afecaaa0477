"""A query that starts again during a replacement: with either definition on other terms, or with neither."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.window import window
from midstream.errors import CheckpointError
from midstream.inline import InlineJoin
from midstream.memory.settings import MemorySettings
from midstream.protocol.query_terms import committed_terms, terms_of
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.storage.memory_store import MemoryStore
from midstream.testing import Shape, assert_same_rows, generate, stream
from midstream.testing.expected import Expected
from midstream.testing.hypothesis_aggregates import with_aggregation
from midstream.testing.random_cuts import RandomCuts, decided_by
from midstream.testing.random_streams import SECOND
from midstream.testing.reference import AcceptRules
from midstream.values import Micros
from tests.aggregate.user_classes import median
from tests.plain_errors import assert_plain

SHAPE = Shape(rows=8, keys=3)
EPOCHS = generate(dict.fromkeys("abc", SHAPE), epochs=16, seed=2)
SETTINGS = Settings(2, 8)
SELECT = ("a.id", "b.id")
OTHER = ("a.id <> b.id",)
ASKED = 3


def ask(*on: str, seconds: int = 12, lateness: int = 5, select: tuple[str, ...] = SELECT) -> Query:
    shape = replace(SHAPE, lateness=Micros(lateness * SECOND))
    streams = [stream(name, shape) for name in "abc"]
    on = ("a.k = b.k", "b.k = c.k", *on)
    return build_query(streams, on, default_window=Micros(seconds * SECOND), select=select, cross=True)


def grouped(query: Query, *, of_user: bool) -> Query:
    call = median("c.v").alias("middle")
    call = replace(call, function=replace(call.function, type=pa.float64()))
    calls = [call] if of_user else ["count(*) AS n"]
    aggregation = read_aggregation(["a.k AS k", window("10 seconds")], calls, query.streams)
    return with_aggregation(query, aggregation)


class RestartedQuery:
    """A query that is started again and again in one store."""

    def __init__(self, query: Query, settings: Settings = SETTINGS) -> None:
        self.store = MemoryStore()
        self.settings = settings
        self.start(query)

    def start(self, query: Query, settings: Settings | None = None) -> InlineJoin:
        self.join = InlineJoin(query, settings=settings or self.settings, store=self.store)
        return self.join

    def until(self, epoch: int, background_epochs: int | None = 1) -> InlineJoin:
        while self.join.manifest.epoch + 1 < epoch:
            number = self.join.manifest.epoch + 1
            self.join.run_epoch(EPOCHS[number], background_epochs=background_epochs)
        return self.join

    def until_ended(self) -> InlineJoin:
        while self.join.manifest.ended_replacement is None:
            self.until(self.join.manifest.epoch + 2)
        return self.join


@pytest.mark.parametrize("strategy", ["generalized_hybrid", "generalized_parallel_track"])
def test_terms_of_the_new_definition_take_effect_when_the_replacement_has_ended(strategy):
    old, new = ask(), ask(*OTHER, seconds=15)
    given = ask(*OTHER, seconds=20, lateness=9, select=("b.id", "a.id AS first"))
    run = RestartedQuery(old)
    run.until(ASKED).replace(new, strategy=strategy)
    run.until(ASKED + 1)
    join = run.start(given)
    # Until then, it goes on as it was asked for.
    while join.manifest.ended_replacement is None:
        replacement = join.manifest.replacement
        assert replacement is not None
        assert committed_terms(replacement.successor) == terms_of(new)
        assert join.query == old
        run.until(join.manifest.epoch + 2)
    ended = join.manifest.epoch
    assert committed_terms(join.manifest) == terms_of(new)
    assert ended + 5 < len(EPOCHS)
    after = [join.run_epoch(epoch) for epoch in EPOCHS[ended + 1 : ended + 6]]
    assert committed_terms(join.manifest) == terms_of(given)
    assert after[0].column_names == ["b_id", "first"]
    # As at any restart: as if the new definition had been started with other terms just then.
    expected = Expected(ask(*OTHER, seconds=20, lateness=9), EPOCHS)
    got, want = [], []
    for number in range(ended + 6):
        asked = given if number > ended else replace(new, outputs=given.outputs)
        expected.begin(number, AcceptRules(), replace(asked, kept=new.outputs))
        if number > ended:
            got.append(after[number - ended - 1].rename_columns(["b_id", "a_id"]))
            want.append(expected.tables["results"][number].select(["b_id", "a_id"]))
    assert_same_rows(pa.concat_tables(got), pa.concat_tables(want))
    assert terms_of(run.start(given).query) == terms_of(given)


def test_terms_that_were_given_with_the_old_definition_end_with_it():
    new = ask(*OTHER, seconds=15)
    run = RestartedQuery(ask())
    run.until(ASKED).replace(new)
    run.until(ASKED + 1)
    run.start(ask(lateness=9, seconds=20))
    assert run.until_ended().query == new
    run.until(len(EPOCHS))
    assert committed_terms(run.join.manifest) == terms_of(new)


def test_while_a_replacement_waits_terms_of_the_old_definition_hold_at_once():
    run = RestartedQuery(ask())
    run.until(ASKED).replace(ask(*OTHER, seconds=15))
    given = ask(lateness=9)
    assert run.start(given).query == given
    run.until(ASKED + 1)
    assert committed_terms(run.join.manifest) == terms_of(given)
    assert committed_terms(run.until_ended().manifest) == terms_of(ask(*OTHER, seconds=15))


def test_while_a_replacement_waits_the_new_definition_may_be_given_on_other_terms():
    new, given = ask(*OTHER, seconds=15), ask(*OTHER, seconds=20)
    run = RestartedQuery(ask())
    run.until(ASKED).replace(new)
    run.start(given)
    run.until_ended()
    assert committed_terms(run.join.manifest) == terms_of(new)
    run.until(run.join.manifest.epoch + 2)
    assert committed_terms(run.join.manifest) == terms_of(given)


@pytest.mark.parametrize("is_running", [False, True])
def test_if_only_terms_differ_those_that_are_given_last_hold_in_the_end(is_running):
    old, new, given = ask(), ask(seconds=15), ask(seconds=20)

    def ends_with(*starts: Query) -> object:
        run = RestartedQuery(old)
        run.until(ASKED).replace(new)
        if is_running:
            run.until(ASKED + 1)
        for query in starts:
            run.start(query)
        run.until_ended()
        run.until(run.join.manifest.epoch + 2)
        return committed_terms(run.join.manifest).within

    assert ends_with(old) == ends_with(new) == ends_with(given, old) == terms_of(new).within
    # While it only waits, they are those of the old definition, which hold until it begins.
    assert ends_with(given) == terms_of(given if is_running else new).within


@pytest.mark.parametrize("of_user", ["old", "new", "both"])
def test_functions_of_users_are_no_reason_to_refuse_other_terms(of_user):
    old = grouped(ask(), of_user=of_user != "new")
    new, given = (grouped(ask(*OTHER, seconds=seconds), of_user=of_user != "old") for seconds in (15, 20))
    run = RestartedQuery(old)
    join = run.until(ASKED)
    join.replace(new, path="elsewhere", strategy="generalized_parallel_track")
    run.until(ASKED + 1)
    if of_user == "old":
        # It cannot be read back from the checkpoint, whatever the terms.
        with pytest.raises(CheckpointError, match="a function of a user must be known"):
            run.start(given)
        run.start(grouped(ask(lateness=9), of_user=True))
        return
    if of_user == "new":
        with pytest.raises(CheckpointError, match="a function of a user must be known"):
            run.start(old)
    run.start(given)
    run.until_ended()
    run.until(run.join.manifest.epoch + 2)
    assert committed_terms(run.join.manifest) == terms_of(given)


def test_other_terms_of_the_new_definition_are_no_matter_of_what_the_old_one_has_spilled():
    """What was cut by windows is the old definition's, which keeps them."""
    run = RestartedQuery(ask(), replace(SETTINGS, memory=MemorySettings(1)))
    with decided_by(RandomCuts(1)):
        join = run.until(6)
        assert join.manifest.memory.cuts
        join.replace(ask(*OTHER, seconds=15))
        with pytest.raises(CheckpointError, match="windows"):
            run.start(ask(seconds=20))
        given = ask(*OTHER, seconds=15, lateness=9)
        assert run.start(given).is_replacing
        run.until(8)
        assert run.start(given).is_replacing
        run.until_ended()
        run.until(run.join.manifest.epoch + 2)
    assert committed_terms(run.join.manifest) == terms_of(given)


def test_windows_that_could_not_change_in_the_end_are_refused_at_the_start():
    settings = replace(SETTINGS, memory=MemorySettings(10**9))
    run = RestartedQuery(ask(), settings)
    run.until(ASKED).replace(ask(*OTHER))
    run.until(ASKED + 1)
    with pytest.raises(
        CheckpointError, match="windows must stay as they are until a replacement has ended"
    ) as raised:
        run.start(ask(*OTHER, seconds=20))
    assert_plain(raised.value)
    assert run.start(ask(*OTHER, lateness=9)).is_replacing
    assert run.start(ask(*OTHER, seconds=20), SETTINGS).is_replacing


def test_outputs_that_the_new_definition_does_not_keep_are_refused_at_the_start():
    run = RestartedQuery(ask(select=("a.id", "b.id", "c.id")))
    run.until(ASKED).replace(ask(*OTHER), path="elsewhere")
    run.until(ASKED + 1)
    with pytest.raises(CheckpointError, match=r"columns that its state has: a.id, b.id; got c.id"):
        run.start(ask(*OTHER, select=("a.id", "c.id")))
    # Of the old one they may be, and of nothing else.
    assert run.start(ask(select=("c.id",))).query.output_schema.names == ["c_id"]


@pytest.mark.parametrize("is_running", [False, True])
def test_a_third_definition_is_told_what_the_two_are(is_running):
    run = RestartedQuery(ask())
    run.until(ASKED).replace(ask(*OTHER))
    if is_running:
        run.until(ASKED + 1)
    with pytest.raises(CheckpointError) as raised:
        run.start(ask("a.id < b.id"))
    assert raised.value.must.startswith(
        "a query must be started with the old definition or the new one until"
    )
    assert raised.value.got == (
        "neither: on was ['a.k = b.k', 'b.k = c.k'] in the old one, not ['a.k = b.k', 'b.k = c.k', 'a.id < "
        "b.id']; on was ['a.k = b.k', 'b.k = c.k', 'a.id <> b.id'] in the new one, not ['a.k = b.k', "
        "'b.k = c.k', 'a.id < b.id']"
    )
    assert "replacement-ended" in (raised.value.hint or "")

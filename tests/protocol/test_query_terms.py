"""Terms as text and back, intents from before there were terms, and forged ones."""

from dataclasses import replace as replace_field

import msgspec
import pytest
from msgspec.structs import replace

from midstream.errors import CheckpointError
from midstream.inline import InlineJoin
from midstream.plan.tree import parse_plan
from midstream.protocol.coordinator import Coordinator
from midstream.protocol.intent import Intent, decode_intent, encode_intent
from midstream.protocol.query_terms import query_on, terms_of
from midstream.protocol.settings import Settings, check_same_definition
from midstream.query.build import build_query
from midstream.state.json_with_digest import decode_with_digest, encode_with_digest
from midstream.state.window_change import WindowChange
from midstream.storage.intents import intent_name
from midstream.storage.memory_store import MemoryStore
from midstream.values import Micros
from tests.helpers import make_query, make_stream, rows, small_query

SETTINGS = Settings(1, 4)
ODD = make_query("ab", ["a.l = b.l"], select=["a.`odd name` AS `x AS y`", "a.s.Deep.er", "b.n AS `b.n`"])


def test_terms_survive_as_text():
    streams = [make_stream(name, lateness=90_000_001) for name in "ab"]
    select = ["b.n AS `one AS two`", "a.`odd name`"]
    asked = build_query(streams, ["a.l = b.l"], default_window=Micros(7), select=select)
    asked = replace_field(asked, kept=ODD.outputs)
    assert query_on(terms_of(asked), ODD) == asked
    assert query_on(terms_of(ODD), asked) == ODD


def test_odd_names_are_kept_across_a_restart():
    first = Coordinator(ODD, SETTINGS).initial_manifest("q", parse_plan("a b", ODD.names))
    assert check_same_definition(first, ODD, SETTINGS) == ODD


@pytest.mark.parametrize(
    "change",
    [
        {"lateness": {"a": "0 seconds"}},
        {"lateness": {"a": "soon", "b": "0 seconds"}},
        {"within": {"a": "1 second"}},
        {"within": {"a, b": "-1"}},
        {"select": ["a.nothing AS x"]},
        {"select": ["a.n"]},
    ],
)
def test_terms_that_a_query_cannot_have_are_refused(change):
    with pytest.raises(CheckpointError, match="must run on terms that its query can have"):
        query_on(replace(terms_of(ODD), **change), ODD)


def test_a_first_epoch_that_an_earlier_version_has_begun_goes_on():
    query = small_query(["a.k = b.k"], default_window=10, select=["a.v", "b.v"], lateness=100)
    first = Coordinator(query, SETTINGS).initial_manifest("inline", parse_plan("a b", query.names))
    options = {"partitions": SETTINGS.partitions, "groups": SETTINGS.groups}
    definition = {key: value for key, value in first.definition.items() if key != "keeps"}
    old = Intent("inline", 0, 0, SETTINGS, first=replace(first, format=5), format=1)
    fields = msgspec.json.decode(decode_with_digest("intent", encode_intent(old), "x"))
    fields["first"]["definition"] = definition | {"options": options}
    del fields["first"]["routings"]
    file = encode_with_digest("intent", msgspec.json.encode(fields))
    assert decode_intent(file, "x").first == first
    store = MemoryStore()
    store.put(intent_name(0), file)
    join = InlineJoin(
        small_query(["a.k = b.k"], default_window=20, select=["b.v"], lateness=100),
        settings=SETTINGS,
        store=store,
    )
    arrivals = {"a": rows((0, 1, 1, "x")), "b": rows((15, 1, 1, "far"), (5, 1, 1, "near"))}
    assert join.run_epoch(arrivals).to_pylist() == [{"a_v": "x", "b_v": "near"}]
    assert join.run_epoch({"b": rows((18, 1, 1, "later"))}).to_pylist() == [{"b_v": "later"}]


@pytest.mark.parametrize(
    "changes",
    [
        (WindowChange(epoch=7, within=(), watermarks={"a": 0, "b": 0}, latest={"a": 0, "b": 0}),),
        (WindowChange(epoch=0, within=(), watermarks={"a": 0}, latest={"a": 0, "b": 0}),),
        (
            WindowChange(
                epoch=0, within=(("a", "x", 1),), watermarks={"a": 0, "b": 0}, latest={"a": 0, "b": 0}
            ),
        ),
    ],
)
def test_changes_of_windows_that_cannot_be_are_refused(changes):
    query = small_query(["a.k = b.k"], default_window=10)
    store = MemoryStore()
    join = InlineJoin(query, settings=SETTINGS, store=store)
    join.run_epoch({"a": rows((0, 1))})
    forged = replace(join.manifest, window_changes=changes)
    with pytest.raises(CheckpointError, match="must have changes of the windows of its streams"):
        Coordinator.resume(query, SETTINGS, forged)
    definition = {**join.manifest.definition, "keeps": ["a.nothing AS x"]}
    with pytest.raises(CheckpointError, match="states must keep columns of the streams"):
        Coordinator.resume(query, SETTINGS, replace(join.manifest, definition=definition))
    assert msgspec.json.decode(msgspec.json.encode(changes), type=tuple[WindowChange, ...]) == changes

"""Rows that were encoded for one plan and its places are encoded again for any other, each of them once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import chain

import pyarrow as pa
import pytest

from midstream.engine.encode import make_encoders
from midstream.engine.places import Places, key_name
from midstream.plan.build_layout import build_layout
from midstream.plan.state_id import StateId
from midstream.plan.tree import parse_plan
from midstream.query.build import build_query
from midstream.spark.messages import ControlMessage, RowsMessage, unpack
from midstream.spark.row_source import encode_again, encoded
from midstream.spark.task_ranges import TaskRanges
from midstream.state.routing_table import RoutingTable, Spread
from midstream.testing.random_places import hashes_of
from tests.helpers import TIME, make_stream

GROUPS = 16
ROWS = 60
KEYS = {
    "bigint": (pa.int64(), [-(2**63), -1, 0, 7]),
    "int": (pa.int32(), [-(2**31), 0, 7, 8]),
    "double": (pa.float64(), [-0.0, 0.0, float("nan"), 1.5]),
    "boolean": (pa.bool_(), [True, False]),
    "date": (pa.date32(), [-1, 0, 20_000]),
    "timestamp": (TIME, [-1, 0, 2**55]),
    "decimal": (pa.decimal128(20, 2), [-1, 0, 12]),
    "string": (pa.string(), ["", "a", "a longer text than one word"]),
    "binary": (pa.binary(), [b"", b"a", b"a longer text than one word"]),
}
ONE, PAIR = ("a.k = b.k", "b.k = c.k"), ("a.k = b.k", "a.j = b.j", "b.k = c.k")
CHAIN = ("a.k = b.k", "b.j = c.j")
PLANS = ("(a b) c", "a (b c)", "(a c) b", "a b c")


def _query(kind, on):
    columns = {"t": TIME, "k": kind, "j": kind, "v": pa.string()}
    names = sorted({word[0] for predicate in on for word in predicate.split(" = ")})
    return build_query([make_stream(name, columns) for name in names], list(on))


def _table(kind, values, seed):
    rng = random.Random(seed)

    def keys():
        return pa.array([rng.choice([*values, None]) for _ in range(ROWS)], kind)

    times = pa.array([None if n % 9 == 0 else n for n in range(ROWS)], pa.int64()).cast(TIME)
    return pa.table({"t": times, "k": keys(), "j": keys(), "v": [f"row {n}" for n in range(ROWS)]})


def _places(query, layout, table, seed):
    """Places with relocated groups and hot keys that partitions share."""
    rng = random.Random(seed)
    count = rng.choice([1, 2, 3, 7])
    moved, spread = {}, {}
    known = hashes_of(query, layout.plan, [dict.fromkeys(query.names, table)])
    for name in {key_name(fragment.key) for fragment in layout.fragments} - {""}:
        moved[name] = {g: rng.randrange(count) for g in range(1, GROUPS) if rng.random() < 0.5}
        hot = [h for h in known.get(name, ()) if h and count > 1 and rng.random() < 0.5]
        spread[name] = {h: Spread(tuple(rng.sample(range(count), 2)), rng.choice(query.names)) for h in hot}
    return Places(GROUPS, (RoutingTable(0, count, moved=moved, spread=spread),))


def _source(query, encoder, table):
    columns = {}
    for column in encoder.source:
        kind = column.type or query.by_name[encoder.stream].type_of(column.ref)
        values = table.column(column.ref.path[0])
        columns[column.name] = values.cast(pa.int64() if column.name.endswith("#time") else kind)
    return pa.table(columns)


def _arrived(messages, places, layout):
    """What reaches each input and partition; of a dealt key, each row is in whatever partition shares it.

    Rows without a time are only set aside and counted, wherever that is.
    """
    found: Counter[tuple[object, ...]] = Counter()
    null_keys = 0
    for task, message in messages:
        assert not isinstance(message, ControlMessage), bytes(message.blob)
        null_keys += message.null_keys
        routing = places.routing(layout.fragment_of_input[message.input].key)
        dealt = {h: place for h, place in routing.spread if place.deals(message.input.streams)}
        for partition, rows in unpack(message.blob).by_partition():
            assert TaskRanges.for_cores(places.partitions, 2).task_of(partition) == task
            for row in rows.to_pylist():
                if row[f"{message.input}#time"] is None:
                    del row["#hash"]
                    found[message.input, str(sorted(row.items()))] += message.kind == "arriving"
                    continue
                shared = dealt.get(row["#hash"])
                assert shared is None or partition in shared.partitions
                where = partition if shared is None else shared.partitions
                found[message.input, message.kind, where, str(sorted(row.items()))] += 1
    return found, null_keys


@pytest.mark.parametrize("whole_rows", [False, True])
@pytest.mark.parametrize("on", [ONE[:1], ONE, PAIR, CHAIN], ids=["two", "one", "pair", "chain"])
@pytest.mark.parametrize("kind", KEYS)
def test_any_plan_and_places_get_every_row_as_if_it_were_encoded_for_them(kind, on, whole_rows):
    type_, values = KEYS[kind]
    query, table = _query(type_, on), _table(type_, values, seed=len(on))
    plans = ["a b"] if len(query.names) == 2 else PLANS
    sides = []
    for number, plan in enumerate(plans * 2):
        layout = build_layout(query, parse_plan(plan, query.names))
        places = _places(query, layout, table, seed=number)
        encoders = make_encoders(query, layout, places, whole_rows=whole_rows)
        sides.append((layout, places, encoders, TaskRanges.for_cores(places.partitions, 2)))
    for number, (_, _, before, ranges_before) in enumerate(sides):
        messages = [
            message
            for name in query.names
            for message in encoded(before[name], _source(query, before[name], table), 0, ranges_before)
        ]
        # After another plan, and after other places of the same one.
        for step in (1, 2, 4):
            layout, places, after, ranges = sides[(number + step) % len(sides)]
            again = chain.from_iterable(map(encode_again(before, after, ranges), messages))
            direct = chain.from_iterable(
                encoded(after[name], _source(query, after[name], table), 0, ranges) for name in query.names
            )
            got, want = (_arrived(found, places, layout) for found in (again, direct))
            assert got == want


def test_of_rows_that_were_sent_twice_only_the_count_of_null_keys_is_taken_again():
    """While two plans run side by side, whichever message is full first has the count."""
    query, table = _query(pa.int64(), CHAIN), _table(pa.int64(), [1, 2], seed=1)
    sides = []
    for plan in ("(a b) c", "a (b c)"):
        layout = build_layout(query, parse_plan(plan, query.names))
        places = Places(GROUPS, (RoutingTable(0, 2),))
        sides.append((layout, places, make_encoders(query, layout, places, whole_rows=False)["b"]))
    (_, _, one), (layout, places, other) = sides
    second = replace(other.destinations[0], state=StateId("b").started_by(1))
    both, ranges = replace(one, destinations=(*one.destinations, second)), TaskRanges(2, 2)
    sent = encoded(both, _source(query, one, table), 0, ranges)
    messages = [(task, content) for task, content in sent if isinstance(content, RowsMessage)]
    (null_keys,) = {content.null_keys for _, content in messages} - {0}
    counting = next(content for _, content in messages if content.input == second.state)
    moved = [
        (task, content._replace(null_keys=null_keys if content is counting else 0))
        for task, content in messages
    ]
    again = chain.from_iterable(map(encode_again({"b": both}, {"b": other}, ranges), moved))
    direct = encoded(other, _source(query, other, table), 0, ranges)
    assert _arrived(again, places, layout) == _arrived(direct, places, layout)

"""User-defined aggregates: results of the user's class, whatever was merged, and errors that say where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.aggregate.emit import emitted_windows
from midstream.aggregate.partials import merge_partials, partial_aggregates
from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.user_function import UserCall, udaf
from midstream.aggregate.window import window
from midstream.engine.results import TIME
from midstream.errors import AggregateError, QueryError
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.storage.memory_store import MemoryStore
from midstream.testing import Shape, generate, stream
from midstream.testing.aggregate_oracle import aggregation_of
from midstream.testing.random_streams import SECOND
from midstream.values import Micros
from tests.aggregate.aggregate_run import FAR, AggregateRun
from tests.aggregate.user_classes import Median, histogram, median
from tests.helpers import make_stream

SHAPE = Shape(rows=12, late=0.1)
WINDOW = window("10 seconds", "5 seconds")


def typed(call: UserCall, dtype: pa.DataType) -> UserCall:
    """A call as the shell passes it on: with its type in Arrow's words."""
    return replace(call, function=replace(call.function, type=dtype))


def median_of(column: str) -> UserCall:
    return typed(median(column), pa.float64())


def histogram_of(*columns: str) -> UserCall:
    return typed(histogram(*columns), pa.map_(pa.string(), pa.int64()))


ONE = pa.table({"k": [1], "v": [1]})


def results(calls: list[str | UserCall], rows: pa.Table, parts: int) -> pa.Table:
    """The aggregates of rows, by ``k``, in one window, made from several partial aggregates."""
    types = {name: rows.schema.field(name).type for name in rows.column_names}
    streams = [make_stream("a", {"t": pa.timestamp("us"), **types})]
    aggregation = read_aggregation(["a.k AS k", window("10 seconds")], calls, streams)
    columns = [rows.column(output.ref.path[0]) for output in aggregation.columns]
    names = [output.name for output in aggregation.columns]
    table = pa.table([*columns, pa.array([0] * len(rows))], names=[*names, TIME])
    cuts = np.linspace(0, len(rows), parts + 1).astype(int)
    pieces = [partial_aggregates(aggregation, table.slice(a, b - a)) for a, b in pairwise(cuts) if b > a]
    (result,) = emitted_windows(aggregation, [merge_partials(aggregation, pieces)], None, 1 << 50)
    assert result.schema == aggregation.schema
    return result


@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, None]), st.sampled_from(["x", "y", None]), st.integers(0, 9)),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 5),
)
def test_results_are_those_of_all_rows_however_they_are_cut(rows, parts):
    schema = pa.schema([("k", pa.int64()), ("x", pa.string()), ("v", pa.int64())])
    table = pa.Table.from_pylist([dict(zip("kxv", row, strict=True)) for row in rows], schema)
    calls: list[str | UserCall] = [
        "median(a.v) AS exact",
        median_of("a.v").alias("mine"),
        histogram_of("a.x", "a.v").alias("texts"),
        "count(*) AS n",
    ]
    got = results(calls, table, parts)
    assert got.column("mine").to_pylist() == got.column("exact").to_pylist()
    for group in got.to_pylist():
        wanted: Counter[str] = Counter()
        for k, x, v in rows:
            if k == group["k"] and x is not None:
                wanted[x] += v
        assert group["texts"] == sorted(wanted.items())


def user_query(call: UserCall, *others: str, slide: int = 5):
    """Three streams, and windows of their results that overlap."""
    streams = [stream(name, SHAPE) for name in "abc"]
    windows = window("20 seconds", f"{slide} seconds")
    aggregation = read_aggregation(["a.k AS k", windows], [*others, call.alias("mine")], streams)
    return build_query(
        streams, ["a.k = b.k", "b.k2 = c.k2"], default_window=Micros(25 * SECOND), aggregation=aggregation
    )


def test_a_run_with_restarts_and_a_migration_gives_what_the_built_in_median_gives():
    query = user_query(median_of("b.v"), "median(b.v) AS exact", "count(*) AS n")
    epochs = generate(dict.fromkeys("abc", SHAPE), epochs=16, seed=3)
    run = AggregateRun(query, "(a b) c", Settings(2, 8))
    run.process(epochs[:5])
    run.restart()
    run.join.migrate("a (b c)", "moving_state")
    run.process(epochs[5:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("midstream.aggregate.next_step.output_watermark", lambda *_: FAR)
        run.tables.append(run.join.run_epoch({}))
    out = pa.concat_tables(run.tables)
    assert len(out) > 100
    assert max(out.column("n").to_pylist()) > 3
    assert out.column("mine").to_pylist() == out.column("exact").to_pylist()


def test_updates_have_what_the_built_in_median_gives():
    query = user_query(median_of("b.v"), "median(b.v) AS exact", "count(*) AS n")
    join = InlineJoin(replace(query, aggregation=replace(aggregation_of(query), is_update_mode=True)))
    out = pa.concat_tables(run_all(join, generate(dict.fromkeys("abc", SHAPE), epochs=8, seed=3)))
    assert max(out.column("n").to_pylist()) > 3
    assert out.column("mine").to_pylist() == out.column("exact").to_pylist()


def run_all(join: InlineJoin, epochs: Sequence[Mapping[str, pa.Table]]) -> list[pa.Table]:
    return [join.run_epoch(epoch) for epoch in epochs]


def broken(method: str, value: object = None) -> UserCall:
    """The median, one of whose methods fails, or gives a value."""

    def fail(self, *_: object) -> object:
        if value is None:
            raise ValueError("no luck")
        return value

    kind = type("Median", (Median,), {method: classmethod(fail) if method == "load" else fail})
    return typed(udaf("double")(kind)("b.v"), pa.float64())


@pytest.mark.parametrize("method", ["add", "merge", "result", "dump", "load"])
def test_an_error_names_the_aggregate_the_group_and_the_batch_and_the_query_goes_on(method):
    epochs = generate(dict.fromkeys("abc", SHAPE), epochs=12, seed=3)
    store, settings = MemoryStore(), Settings(2, 8)
    join = InlineJoin(user_query(broken(method)), settings=settings, store=store)
    with pytest.raises(
        AggregateError,
        match=r"(add|merge|result) of the aggregate mine, Median\(b\.v\): double, must work; "
        r"got ValueError: no luck \(test_user_defined\.py, line \d+\), for k \d+, in batch \d+\. "
        r"Hint: repair the class and start the query again",
    ):
        run_all(join, epochs)
    failed = 1 + join.manifest.epoch
    repaired = InlineJoin(user_query(median_of("b.v")), settings=settings, store=store)
    again = run_all(repaired, epochs[failed:])
    sound = InlineJoin(user_query(median_of("b.v")), settings=settings, store=MemoryStore())
    wanted = run_all(sound, epochs)[failed:]
    assert pa.concat_tables(again).equals(pa.concat_tables(wanted))
    assert sum(map(len, again)) > 20


@pytest.mark.parametrize(
    ("method", "value", "message"),
    [
        ("result", "3", "got str '3', which is no double, for"),
        ("result", [3.0], "got list .*, which is no double"),
        ("dump", 3.0, "got float from dump"),
        ("load", 3.0, "AttributeError: 'float' object has no attribute"),
    ],
)
def test_what_methods_give_is_checked(method, value, message):
    join = InlineJoin(user_query(broken(method, value)), settings=Settings(1, 8))
    with pytest.raises(AggregateError, match=message):
        run_all(join, generate(dict.fromkeys("abc", SHAPE), epochs=12, seed=3))


def test_a_definition_has_the_name_and_the_type():
    query = user_query(median_of("b.v"))
    assert query.aggregation is not None
    assert query.aggregation.description["aggregates"] == ["Median(b.v): double AS mine"]


def test_a_class_may_inherit_from_a_function():
    @udaf("double")
    class Highest(median):  # type: ignore[misc, valid-type]  # what a decorator has made of a class
        def result(self) -> float | None:
            return max(self.values, default=None)

    call = typed(Highest("a.v").alias("top"), pa.float64())
    got = results([call], pa.table({"k": [1, 1, 1], "v": [3, 1, 2]}), 2)
    assert got.column("top").to_pylist() == [3.0]


class Weighted(Median):
    """Its objects need an argument."""

    def __init__(self, weight: float, *_rest: float, floor: float = 0, **_more: float) -> None:
        super().__init__()


def no_load(cls: type) -> type:
    return type("NoLoad", (), {name: getattr(cls, name) for name in ("add", "merge", "result", "dump")})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: udaf("double")(len), "must be a class"),
        (lambda: udaf(no_load(Median)), "given the type of the results; got the class NoLoad itself"),
        (lambda: udaf("double")(no_load(Median)), "got NoLoad without load"),
        (
            lambda: udaf("double")(type("Late", (Median,), {"load": lambda self, state: self})),
            "load must be a class method.*@classmethod",
        ),
        (lambda: udaf("double")(Weighted), "without arguments; got Weighted, which needs weight. Hint: give"),
        (median, r"given columns by their names; got none.*alias\('a_name'\)"),
        (lambda: median(3), "given columns by their names; got 3"),  # type: ignore[arg-type]  # on purpose
        (lambda: median("b.v").alias(""), "name of an aggregate must be text"),
        (
            lambda: user_query(median_of("b.v")).aggregation and results([median_of("a.v")], ONE, 1),
            "one name",
        ),
        (lambda: results([median_of("a.nothing").alias("x")], ONE, 1), "nothing"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(QueryError, match=message):
        make()

"""Streams with known rates and keys, queries over them, and statistics as epochs would have given them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, permutations, product

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.adapt.statistics import SECOND, advance, samplings
from midstream.engine.key_sample import KeyCounts, count_keys
from midstream.plan.layout import key_column
from midstream.plan.tree import Plan, join
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.state.statistics import Statistics
from midstream.values import Micros

Integers = npt.NDArray[np.int64]
Draw = Callable[[np.random.Generator, int], Integers]
"""Keys of so many rows."""
Epoch = dict[str, pa.Table]

KEYS = tuple(f"k{i}" for i in range(4))
SCHEMA = pa.schema(
    [("id", pa.int64()), ("t", pa.timestamp("us", tz="UTC")), *((k, pa.int64()) for k in KEYS)]
)


def clique(names: Sequence[str]) -> list[str]:
    return [f"{a}.k0 = {b}.k0" for a, b in pairwise(names)]


def chain(names: Sequence[str]) -> list[str]:
    return [f"{a}.k{i} = {b}.k{i}" for i, (a, b) in enumerate(pairwise(names))]


def star(names: Sequence[str]) -> list[str]:
    return [f"{names[0]}.k{i} = {b}.k{i}" for i, b in enumerate(names[1:])]


SHAPES = {"clique": clique, "chain": chain, "star": star}


def query_of(
    names: Sequence[str],
    on: Sequence[str],
    window: float | None = 20,
    pairs: Mapping[tuple[str, str], float] | None = None,
    cross: bool = False,
) -> Query:
    """A query over such streams that gives the ids; windows are in seconds."""
    return build_query(
        [Stream(name, SCHEMA, ColumnRef(name, ("t",)), Micros(0)) for name in names],
        list(on),
        everywhere=None if window is None else Micros(round(window * SECOND)),
        pairs={pair: Micros(round(bound * SECOND)) for pair, bound in (pairs or {}).items()},
        select=[f"{name}.id" for name in names],
        cross=cross,
    )


def uniform(domain: int, first: int = 0) -> Draw:
    return lambda random, rows: random.integers(first, first + domain, rows)


def skewed(domain: int, share: float) -> Draw:
    """One key has so large a share of the rows."""
    return lambda random, rows: np.where(random.random(rows) < share, -1, random.integers(0, domain, rows))


def evenly(domain: int) -> Draw:
    """Keys that are the same in every epoch, spread over the domain: nothing about them is by chance."""
    return lambda random, rows: random.permutation(np.arange(rows) * domain // max(rows, 1))


def epochs_of(
    rates: Mapping[str, float],
    keys: Mapping[str, Draw | Sequence[Draw]],
    count: int,
    seconds: float = 2.5,
    seed: int = 0,
    start: int = 0,
    exact: bool = False,
) -> list[Epoch]:
    """Epochs of so many seconds, with rows at random times and keys that are drawn for each column.

    The number of rows is random too, unless it is to be exact.
    """
    found = []
    for epoch in range(start, start + count):
        random = np.random.default_rng((seed, epoch))
        tables = {}
        for name, rate in rates.items():
            rows = round(rate * seconds) if exact else int(random.poisson(rate * seconds))
            times = np.sort(random.uniform(epoch * seconds, (epoch + 1) * seconds, rows))
            drawn = keys[name]
            draws = [drawn] * len(KEYS) if callable(drawn) else list(drawn)
            columns = [draws[min(i, len(draws) - 1)](random, rows) for i in range(len(KEYS))]
            stamps = (times * SECOND).astype(np.int64).view("datetime64[us]")
            tables[name] = pa.table([epoch * 1_000_000 + np.arange(rows), stamps, *columns], schema=SCHEMA)
        found.append(tables)
    return found


def in_any_order(plan: Plan, *, pairs: bool = False) -> Iterator[Plan]:
    """The plan with the inputs of its nodes in every order; of nodes with two, if ``pairs`` is set."""
    if not plan.inputs:
        yield plan
        return
    for inputs in product(*(list(in_any_order(child, pairs=pairs)) for child in plan.inputs)):
        orders = permutations(inputs) if pairs or len(inputs) > 2 else [inputs]
        yield from (join(*order) for order in orders)


def observe(
    query: Query,
    epochs: Sequence[Epoch],
    seconds: float = 2.5,
    parts: int = 1,
    before: Statistics | None = None,
) -> Statistics:
    """The statistics after the epochs, each of which came in so many parts."""
    known = before or Statistics()
    for epoch in epochs:
        keys: dict[str, KeyCounts] = {}
        for name, table in epoch.items():
            columns = {
                key_column(name, c.id): table.column(next(r.path[0] for r in c.members if r.stream == name))
                for c in query.classes
                if name in c.streams
            }
            for part in range(parts):
                rows = pa.table(columns)
                rows = rows.take(pa.array(np.arange(part, rows.num_rows, parts)))
                for column, counts in count_keys(query, name, (), rows, samplings(query, known)).items():
                    keys[column] = keys[column] + counts if column in keys else counts
        rows_of = {name: table.num_rows for name, table in epoch.items()}
        sizes = {name: 40 * rows for name, rows in rows_of.items()}
        known = advance(query, known, seconds, rows_of, sizes, keys, None)
    return known

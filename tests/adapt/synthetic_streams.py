"""Streams with known rates and keys, queries over them, and the statistics that epochs of them lead to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, permutations, product
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.adapt.statistics import advance, samplings
from midstream.engine.encode import time_column
from midstream.engine.event_times import TimeRange
from midstream.engine.key_sample import KeyCounts, count_keys
from midstream.plan.layout import key_column
from midstream.plan.tree import Plan, join
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.state.statistics import Statistics
from midstream.values import MICROS_PER_SECOND, Micros

Integers = npt.NDArray[np.int64]
DrawKeys = Callable[[np.random.Generator, int], Integers]
"""Draws the keys of a number of rows."""
Epoch = dict[str, pa.Table]
"""The rows of an epoch, by stream."""

EPOCH_SECONDS = 2.5
ROW_BYTES = 40
KEY_COLUMNS = tuple(f"k{i}" for i in range(4))
"""Those that epochs have if nothing else is asked for."""


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """The columns of a stream that has such keys."""
    keys = [(column, pa.int64()) for column in columns]
    return pa.schema([("id", pa.int64()), ("t", pa.timestamp("us", tz="UTC")), *keys])


SCHEMA = schema_of(KEY_COLUMNS)


def clique(names: Sequence[str]) -> list[str]:
    """All streams share one key."""
    return [f"{a}.k0 = {b}.k0" for a, b in pairwise(names)]


def chain(names: Sequence[str]) -> list[str]:
    """Each stream shares a key with the next one."""
    return [f"{a}.k{i} = {b}.k{i}" for i, (a, b) in enumerate(pairwise(names))]


def cycle(names: Sequence[str]) -> list[str]:
    """A chain whose last stream shares a key with the first one."""
    return [*chain(names), f"{names[-1]}.k{len(names) - 1} = {names[0]}.k{len(names) - 1}"]


def star(names: Sequence[str]) -> list[str]:
    """The first stream shares a key with each of the others."""
    return [f"{names[0]}.k{i} = {b}.k{i}" for i, b in enumerate(names[1:])]


def double_chain(names: Sequence[str]) -> list[str]:
    """Each stream shares two keys with the next one, and these share one with those after them."""
    neighbours = enumerate(pairwise(names))
    return [f"{a}.k{key} = {b}.k{key}" for i, (a, b) in neighbours for key in (i // 2, i // 2 + 1)]


SHAPES = {"clique": clique, "chain": chain, "star": star}


def query_of(
    names: Sequence[str],
    on: Sequence[str],
    window: float | None = 20,
    pairs: Mapping[tuple[str, str], float] | None = None,
    cross: bool = False,
    columns: Sequence[str] = KEY_COLUMNS,
) -> Query:
    """A query over such streams whose results are their ids; windows are in seconds."""
    schema = schema_of(columns)
    return build_query(
        [Stream(name, schema, ColumnRef(name, ("t",)), Micros(0)) for name in names],
        list(on),
        default_window=None if window is None else _micros(window),
        pairs={pair: _micros(bound) for pair, bound in (pairs or {}).items()},
        select=[f"{name}.id" for name in names],
        cross=cross,
    )


def _micros(seconds: float) -> Micros:
    return Micros(round(seconds * MICROS_PER_SECOND))


def uniform(domain: int, first: int = 0) -> DrawKeys:
    return lambda random, rows: random.integers(first, first + domain, rows)


def skewed(domain: int, share: float) -> DrawKeys:
    """Key -1 has this share of the rows; the others have uniform keys."""
    return lambda random, rows: np.where(random.random(rows) < share, -1, random.integers(0, domain, rows))


def evenly_spread(domain: int) -> DrawKeys:
    """The same keys in every epoch, evenly spread over the domain: only their order is random."""
    return lambda random, rows: random.permutation(np.arange(rows) * domain // max(rows, 1))


def epochs_of(
    rates: Mapping[str, float],
    keys: Mapping[str, DrawKeys | Sequence[DrawKeys]],
    count: int,
    seconds: float = EPOCH_SECONDS,
    seed: int = 0,
    start: int = 0,
    exact: bool = False,
    *,
    columns: Sequence[str] = KEY_COLUMNS,
) -> list[Epoch]:
    """Epochs of rows at random times; ``rates`` are rows per second, ``start`` is the first epoch's number.

    Each stream draws its keys by one function for all key columns, or by one for each; the last of fewer
    functions draws the remaining columns. Numbers of rows are random too, unless they are to be ``exact``.
    """
    epochs = []
    for number in range(start, start + count):
        random = np.random.default_rng((seed, number))
        epoch = {}
        for name, rate in rates.items():
            rows = round(rate * seconds) if exact else int(random.poisson(rate * seconds))
            times = np.sort(random.uniform(number * seconds, (number + 1) * seconds, rows))
            micros = (times * MICROS_PER_SECOND).astype(np.int64).view("datetime64[us]")
            draws = keys[name]
            per_column = [draws] if callable(draws) else list(draws)
            keys_of_rows = [
                per_column[min(i, len(per_column) - 1)](random, rows) for i in range(len(columns))
            ]
            ids = number * 1_000_000 + np.arange(rows)
            epoch[name] = pa.table([ids, micros, *keys_of_rows], schema=schema_of(columns))
        epochs.append(epoch)
    return epochs


def statistics_of(
    query: Query,
    epochs: Sequence[Epoch],
    seconds: float = EPOCH_SECONDS,
    partitions: int = 1,
    before: Statistics | None = None,
) -> Statistics:
    """The statistics after some epochs whose rows came to so many partitions; no plan has made any rows."""
    statistics = before or Statistics()
    if before is None:
        statistics = advance_by(query, statistics, 0.0, {})
    for epoch in epochs:
        keys: dict[str, KeyCounts] = {}
        sampling = samplings(query, statistics)
        for name, table in epoch.items():
            by_class = pa.table(
                {
                    time_column(name): table.column("t").cast(pa.int64()),
                    **{
                        key_column(name, c.id): table.column(
                            next(r.path[0] for r in c.members if r.stream == name)
                        )
                        for c in query.classes
                        if name in c.streams
                    },
                }
            )
            for partition in range(partitions):
                rows = by_class.take(pa.array(np.arange(partition, by_class.num_rows, partitions)))
                counted = count_keys(query, name, (), rows, sampling)
                for column, counts in counted.items():
                    keys[column] = KeyCounts.merge([keys.get(column, KeyCounts()), counts])
        row_counts = {name: table.num_rows for name, table in epoch.items()}
        sizes = {name: ROW_BYTES * rows for name, rows in row_counts.items()}
        statistics = advance_by(query, statistics, seconds, row_counts, sizes, keys)
    return statistics


def advance_by(
    query: Query,
    before: Statistics,
    seconds: float,
    rows: Mapping[str, int],
    sizes: Mapping[str, int] = MappingProxyType({}),
    keys: Mapping[str, KeyCounts] = MappingProxyType({}),
) -> Statistics:
    """The statistics after an epoch in which event time advances by some seconds, from 0 on, in each stream.

    The first such epoch only says when time begins.
    """
    start = next((s.position for s in before.streams.values() if s.position is not None), 0)
    end = start + _micros(seconds)
    ranges = {name: TimeRange(start, end, rows.get(name, 0)) for name in query.names}
    return advance(query, before, ranges=ranges, sizes=sizes, keys=keys, produced=None)


def in_any_order(plan: Plan, *, pairs: bool = False) -> Iterator[Plan]:
    """The plan with the inputs of its nodes in every order; those of nodes with two only if ``pairs``."""
    if not plan.inputs:
        yield plan
        return
    for inputs in product(*(list(in_any_order(child, pairs=pairs)) for child in plan.inputs)):
        orders = permutations(inputs) if pairs or len(inputs) > 2 else [inputs]
        yield from (join(*order) for order in orders)

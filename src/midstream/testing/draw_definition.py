"""Drawing another definition that may replace that of a query of the simulator."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.testing.draw_aggregates import aggregated
from midstream.testing.random_streams import SECOND
from midstream.testing.workload import RESIDUALS
from midstream.values import Micros


def draw_definition(chance: random.Random, query: Query) -> Query:
    """The query with other conditions, windows, outputs or aggregates; the streams stay."""
    joined = build_query(
        query.streams,
        [*_draw_keys(chance, query), *_draw_residuals(chance, query)],
        pairs=_draw_windows(chance, query),
        select=_draw_outputs(chance, query),
        cross=True,
        zone=query.zone,
    )
    if query.aggregation is not None and chance.random() < 0.5:
        columns, aggregation = query.aggregation.columns, query.aggregation
        return replace(joined, outputs=columns, kept=columns, aggregation=aggregation)
    return aggregated(chance, joined) if chance.random() < 0.25 else joined


def _draw_keys(chance: random.Random, query: Query) -> list[str]:
    keys = [str(equality) for equality in query.equalities]
    if chance.random() < 0.2:
        # Rows whose key was null are missing where it is compared no more.
        changed = chance.randrange(len(keys))
        keys[changed] = " = ".join(_with_other_key(side) for side in keys[changed].split(" = "))
    return keys


def _with_other_key(column: str) -> str:
    stream, _, key = column.rpartition(".")
    return f"{stream}.{'k' if key == 'k2' else 'k2'}"


def _draw_residuals(chance: random.Random, query: Query) -> list[str]:
    kept = [residual.text for residual in query.residuals if chance.random() < 0.5]
    if chance.random() < 0.4:
        x, y = chance.sample(query.names, 2)
        kept.append(chance.choice(RESIDUALS).format(x=x, y=y))
    return kept


def _draw_windows(chance: random.Random, query: Query) -> dict[tuple[str, str], Micros]:
    factor = chance.choice((1, 1, 0.5, 1.5, 3))
    pairs = {(a, b): Micros(int(bound * factor)) for a, b, bound in query.windows.bounds}
    if chance.random() < 0.7:
        # Streams without a window can seldom be replaced.
        for a, b in combinations(sorted(query.names), 2):
            pairs.setdefault((a, b), Micros(chance.randint(10, 60) * SECOND))
    return pairs


def _draw_outputs(chance: random.Random, query: Query) -> list[str]:
    if query.aggregation is not None:
        return [f"{name}.id" for name in query.names]
    if chance.random() < 0.6:
        # Under the same names, so that results go where those of the old definition go.
        refs = [output.ref for output in query.outputs]
        if chance.random() < 0.5:
            refs = chance.sample(refs, len(refs))
        return [f"{ref} AS {output.name}" for ref, output in zip(refs, query.outputs, strict=True)]
    columns = [f"{name}.{chance.choice(('id', 'id', 'v', 'k2'))}" for name in query.names]
    chosen = chance.sample(columns, chance.randint(1, len(columns)))
    return [f"{column} AS x{number}" for number, column in enumerate(chosen)]

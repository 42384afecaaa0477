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


def draw_definition(rng: random.Random, query: Query) -> Query:
    """The query with other conditions, windows, outputs or aggregates; the streams stay."""
    joined = build_query(
        query.streams,
        [*_draw_keys(rng, query), *_draw_residuals(rng, query)],
        pairs=_draw_windows(rng, query),
        select=_draw_outputs(rng, query),
        cross=True,
        zone=query.zone,
    )
    if query.aggregation is not None and rng.random() < 0.5:
        columns, aggregation = query.aggregation.columns, query.aggregation
        return replace(joined, outputs=columns, kept=columns, aggregation=aggregation)
    return aggregated(rng, joined) if rng.random() < 0.25 else joined


def _draw_keys(rng: random.Random, query: Query) -> list[str]:
    keys = [str(equality) for equality in query.equalities]
    if rng.random() < 0.2:
        # Rows whose key was null are missing where it is compared no more.
        changed = rng.randrange(len(keys))
        keys[changed] = " = ".join(_with_other_key(side) for side in keys[changed].split(" = "))
    return keys


def _with_other_key(column: str) -> str:
    stream, _, key = column.rpartition(".")
    return f"{stream}.{'k' if key == 'k2' else 'k2'}"


def _draw_residuals(rng: random.Random, query: Query) -> list[str]:
    kept = [residual.text for residual in query.residuals if rng.random() < 0.5]
    if rng.random() < 0.4:
        x, y = rng.sample(query.names, 2)
        kept.append(rng.choice(RESIDUALS).format(x=x, y=y))
    return kept


def _draw_windows(rng: random.Random, query: Query) -> dict[tuple[str, str], Micros]:
    factor = rng.choice((1, 1, 0.5, 1.5, 3))
    pairs = {(a, b): Micros(int(width * factor)) for a, b, width in query.windows.widths}
    if rng.random() < 0.7:
        # Streams without a window can seldom be replaced.
        for a, b in combinations(sorted(query.names), 2):
            pairs.setdefault((a, b), Micros(rng.randint(10, 60) * SECOND))
    return pairs


def _draw_outputs(rng: random.Random, query: Query) -> list[str]:
    if query.aggregation is not None:
        return [f"{name}.id" for name in query.names]
    if rng.random() < 0.6:
        # Under the same names, so that results go where those of the old definition go.
        refs = [output.ref for output in query.outputs]
        if rng.random() < 0.5:
            refs = rng.sample(refs, len(refs))
        return [f"{ref} AS {output.name}" for ref, output in zip(refs, query.outputs, strict=True)]
    columns = [f"{name}.{rng.choice(('id', 'id', 'v', 'k2'))}" for name in query.names]
    chosen = rng.sample(columns, rng.randint(1, len(columns)))
    return [f"{column} AS x{number}" for number, column in enumerate(chosen)]

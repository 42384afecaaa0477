"""Drawing what a query of the simulator aggregates, if it does, and in which mode."""

from __future__ import annotations

import random
from dataclasses import replace

from midstream.aggregate.read_aggregation import check_output_time, read_aggregation
from midstream.aggregate.window import Window, window
from midstream.errors import QueryError
from midstream.query.query import Query

_RATE = 0.15
_SECONDS = ((20, 5), (10, 10), (60, 20), (7, 3), (300, 100))
_CALLS = (
    *("count({}.id)", "sum({}.v)", "avg({}.v)", "min({}.v)", "max({}.k2)", "stddev({}.v)"),
    *("count(DISTINCT {}.k2)", "median({}.v)", "first({}.v)", "last({}.k2)", "collect_list({}.id)"),
)


def draw_aggregation(seed: int, query: Query) -> Query:
    """The query, sometimes with aggregates of its results."""
    # Drawn separately, so that seeds have the same rows with and without.
    rng = random.Random(f"aggregates {seed}")  # noqa: S311  # it must be reproducible
    return query if rng.random() >= _RATE else aggregated(rng, query)


def aggregated(rng: random.Random, query: Query) -> Query:
    """The query with aggregates of its results."""
    length, slide = rng.choice(_SECONDS)
    time = str(rng.choice(query.streams).time) if rng.random() < 0.3 else None
    keys: list[str | Window] = [
        f"{name}.{rng.choice(('k', 'k2', 'v'))} AS g{i}"
        for i, name in enumerate(rng.sample(query.names, rng.choice((0, 1, 1, 2))))
    ]
    calls = [call.format(rng.choice(query.names)) for call in rng.sample(_CALLS, rng.randint(0, 4))]
    items = [f"{call} AS a{i}" for i, call in enumerate(["count(*)", *calls])]
    updates = rng.random() < 0.5
    for of_time in (time, None):
        asked = window(f"{length} seconds", f"{slide} seconds", time=of_time)
        aggregation = replace(read_aggregation([*keys, asked], items, query.streams), is_update_mode=updates)
        columns = aggregation.columns
        aggregated = replace(query, outputs=columns, kept=columns, aggregation=aggregation)
        try:
            check_output_time(aggregated)
        except QueryError:
            continue
        return aggregated
    raise AssertionError("windows by the time of the latest component are always possible")

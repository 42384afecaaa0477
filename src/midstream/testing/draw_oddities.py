"""Oddities of streams that the simulator draws: what users do that is not wrong, but easily forgotten."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pyarrow as pa

from midstream.testing.random_streams import SECOND, START

_SIMILAR_NAMES = ("a", "aa", "a_a", "b", "ab", "a_b", "b1", "bb")
_NAMES = tuple("abcdefgh")
_SIMILAR_RATE = _EARLY_RATE = _TWINS_RATE = 0.06
_EARLY = START + 35 * SECOND
"""Event times are so much earlier: the first ones are before 1970, later ones not."""


def draw_names(seed: int, count: int) -> tuple[str, ...]:
    """The names of so many streams, some of which are parts of others."""
    rng = random.Random(f"names {seed}")  # noqa: S311  # it must be reproducible
    return (_SIMILAR_NAMES if rng.random() < _SIMILAR_RATE else _NAMES)[:count]


def with_oddities(
    seed: int, names: Sequence[str], epochs: Sequence[Mapping[str, pa.Table]]
) -> tuple[dict[str, pa.Table], ...]:
    """The rows of all epochs, sometimes with two streams of the same rows, or with times around 1970."""
    # Drawn separately, so that seeds differ only where there are any.
    rng = random.Random(f"oddities {seed}")  # noqa: S311  # it must be reproducible
    odd = [dict(epoch) for epoch in epochs]
    if rng.random() < _TWINS_RATE:
        one, other = rng.sample(names, 2)
        for epoch in odd:
            epoch.pop(other, None)
            if one in epoch:
                epoch[other] = epoch[one]
    if rng.random() < _EARLY_RATE:
        odd = [{name: _earlier(table) for name, table in epoch.items()} for epoch in odd]
    return tuple(odd)


def features_of_rows(names: Sequence[str], epochs: Sequence[Mapping[str, pa.Table]]) -> set[str]:
    """Which oddities there are."""
    tables = [table for epoch in epochs for table in epoch.values() if table.num_rows]
    twins = any(
        one is other
        for epoch in epochs
        for number, one in enumerate(epoch.values())
        for other in list(epoch.values())[:number]
    )
    times = [time for table in tables for time in table.column("t").cast(pa.int64()).to_pylist()]
    features = {
        "names that resemble each other": not set(names) <= set(_NAMES),
        "two streams of the same rows": twins,
        "times around 1970": any(time is not None and -60 * SECOND < time < 0 for time in times),
    }
    return {name for name, present in features.items() if present}


def _earlier(table: pa.Table) -> pa.Table:
    position, time_type = table.column_names.index("t"), table.schema.field("t").type
    times = [
        time if time is None or time < _EARLY // 2 or time > 2 * _EARLY else time - _EARLY
        for time in table.column("t").cast(pa.int64()).to_pylist()
    ]
    return table.set_column(position, "t", pa.array(times, pa.int64()).cast(time_type))

"""Hypothesis strategies: any query, any plan of it, and any epochs of rows, small enough for an oracle.

Rows are drawn as bytes that pick from short lists of values, so that drawing is fast, values are often equal,
and a failing example shrinks towards few rows of first values. The number of rows is bounded such that even
if all of them joined, there would be no more than about :data:`MAX_RESULTS` results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from midstream.plan.tree import Plan, join, leaf
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.testing.domains import DOMAINS, RESIDUALS, TIMES, VALUES, Domain
from midstream.testing.draw_rows import SECOND, KeyColumn, draw_epochs
from midstream.values import Micros

MAX_RESULTS = 5_000
NAMES = ("a", "b", "c", "d", "e", "f")


@dataclass(frozen=True)
class Case:
    """All that a run needs."""

    query: Query
    plan: Plan
    settings: Settings
    epochs: tuple[dict[str, pa.Table], ...]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What Hypothesis shows of a failing example."""
        printer.text(str(self))

    def __str__(self) -> str:
        query = self.query
        rows = [
            f"  {e} {name}: {list(row.values())}"
            for e, epoch in enumerate(self.epochs)
            for name, table in epoch.items()
            for row in table.to_pylist()
        ]
        return "\n".join(
            [
                "Case(",
                *(f"  {s.name} lateness={s.lateness} {dict(_types(s))}" for s in query.streams),
                f"  on={[*map(str, query.equalities), *(r.text for r in query.residuals)]}",
                f"  within={query.windows.widths}",
                f"  plan='{self.plan}' {self.settings}",
                *rows,
                ")",
            ]
        )


def _types(stream: Stream) -> list[tuple[str, str]]:
    return [(field.name, str(field.type)) for field in stream.schema]


@st.composite
def plans(draw: st.DrawFn, streams: Sequence[str]) -> Plan:
    """Any tree over the streams, nodes of more than two inputs included."""
    order = draw(st.permutations(list(streams)))
    return _tree(draw, order)


def _tree(draw: st.DrawFn, names: Sequence[str]) -> Plan:
    if len(names) == 1:
        return leaf(names[0])
    ways = draw(st.integers(2, len(names)))
    cuts = sorted(draw(st.sets(st.integers(1, len(names) - 1), min_size=ways - 1, max_size=ways - 1)))
    edges = [0, *cuts, len(names)]
    parts = [names[a:b] for a, b in pairwise(edges)]
    return join(*(_tree(draw, part) for part in parts))


@st.composite
def cases(
    draw: st.DrawFn,
    max_streams: int = 6,
    max_epochs: int = 6,
    residuals: bool = True,
    max_results: int = MAX_RESULTS,
    domains: Sequence[Domain] = DOMAINS,
) -> Case:
    """Any query, plan, settings and epochs; ``domains`` are the kinds of keys that it may have."""
    names = NAMES[: draw(st.integers(2, max_streams))]
    keys, equalities = draw(key_columns(names, domains))
    streams = [_stream(draw, name, keys[name]) for name in names]
    query = build_query(
        streams,
        [*equalities, *(_residuals(draw, names) if residuals else [])],
        default_window=draw(st.none() | _durations),
        pairs=draw(_windows(names)),
        select=draw(st.sampled_from([[], [f"{name}.id" for name in names]])),
    )
    partitions = draw(st.integers(1, 3))
    groups = draw(st.sampled_from([partitions, 4, 16]))
    idle = draw(st.none() | _durations)
    epochs = draw(st.integers(1, max_epochs))
    rows_each = max(2, int(max_results ** (1 / len(names))))
    tables = {s.name: draw_epochs(draw, s, keys[s.name], epochs, min(rows_each, 60)) for s in streams}
    return Case(
        query,
        draw(plans(names)),
        Settings(partitions, groups, idle),
        tuple({n: parts[e] for n, parts in tables.items() if parts[e] is not None} for e in range(epochs)),
    )


_durations = st.sampled_from([25, 100, 50, 1000, 10, 0]).map(lambda s: Micros(s * SECOND))


@st.composite
def key_columns(
    draw: st.DrawFn, names: Sequence[str], domains: Sequence[Domain] = DOMAINS
) -> tuple[dict[str, list[KeyColumn]], list[str]]:
    """A connected graph of equalities, and the key columns that they need."""
    columns: dict[str, list[KeyColumn]] = {name: [] for name in names}
    domain_of: dict[tuple[str, int], Domain] = {}
    equalities: list[str] = []

    def column(name: str, domain: Domain) -> int:
        """A column of the domain: an existing one, or a new one."""
        existing = [i for (n, i), d in domain_of.items() if n == name and d is domain]
        if existing and draw(st.integers(0, 3)) > 0:
            return draw(st.sampled_from(existing))
        kind, values = draw(st.sampled_from(domain.columns))
        number = len(columns[name])
        nested = draw(st.integers(0, 4)) == 4
        path = ("s", f"k{number}") if nested else (f"k{number}",)
        columns[name].append(KeyColumn(path, kind, values))
        domain_of[name, number] = domain
        return number

    def edge(a: str, b: str) -> None:
        used = [d for (n, _), d in domain_of.items() if n in (a, b)]
        fresh = st.sampled_from(domains)
        domain = draw(st.sampled_from(used) | fresh if used else fresh)
        ends = [(n, columns[n][column(n, domain)]) for n in (a, b)]
        equalities.append(" = ".join(".".join((n, *c.path)) for n, c in ends))

    for i, name in enumerate(names[1:], start=1):
        edge(draw(st.sampled_from(names[:i])), name)
    for _ in range(draw(st.integers(0, 2))):
        a, b = draw(st.permutations(list(names)))[:2]
        edge(a, b)
    return columns, equalities


def _stream(draw: st.DrawFn, name: str, keys: Sequence[KeyColumn]) -> Stream:
    nested = [pa.field(k.path[1], k.type) for k in keys if len(k.path) == 2]
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("t", draw(st.sampled_from(TIMES))),
            *((k.path[0], k.type) for k in keys if len(k.path) == 1),
            *((n, values.type) for n, values in VALUES.items()),
            *([("s", pa.struct(nested))] if nested else []),
        ]
    )
    return Stream(name, schema, ColumnRef(name, ("t",)), draw(_durations))


def _residuals(draw: st.DrawFn, names: Sequence[str]) -> list[str]:
    """Up to two residuals over two or three of the streams."""
    residuals = []
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2]))):
        x, y, z = (draw(st.permutations(list(names))) * 2)[:3]
        residuals.append(draw(st.sampled_from(RESIDUALS)).format(x=x, y=y, z=z))
    return residuals


@st.composite
def _windows(draw: st.DrawFn, names: Sequence[str]) -> dict[tuple[str, str], Micros]:
    windows: dict[tuple[str, str], Micros] = {}
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        a, b = draw(st.permutations(list(names)))[:2]
        if (b, a) not in windows:
            windows[a, b] = draw(_durations)
    return windows

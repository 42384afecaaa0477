"""Building a query from streams, predicates, windows and outputs, and checking it before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from midstream.errors import QueryError
from midstream.query import error_hints
from midstream.query.aggregation import Aggregation
from midstream.query.clauses import Equality, Residual
from midstream.query.keys import KeyClass, key_classes
from midstream.query.predicate import compare_exactly, read_predicate
from midstream.query.query import Query
from midstream.query.select import read_outputs
from midstream.query.stream import Stream
from midstream.query.topology import Topology
from midstream.query.window import imply_windows
from midstream.values import Micros


def build_query(  # noqa: PLR0913  # all parts of a query
    streams: Sequence[Stream],
    predicates: Sequence[str],
    *,
    default_window: Micros | None = None,
    pairs: Mapping[tuple[str, str], Micros] | None = None,
    select: Sequence[str] = (),
    cross: bool = False,
    zone: str = "UTC",
    aggregation: Aggregation | None = None,
    topology: Topology | None = None,
) -> Query:
    """Check all parts of a query and put them together; the first problem found is an error.

    ``default_window`` is the window between streams that ``pairs`` does not mention. With an ``aggregation``,
    results have the columns that it needs.
    """
    if len(streams) < 2:
        raise QueryError(
            "a join must have two or more streams",
            got=", ".join(s.name for s in streams) or "none",
            hint="add streams with .stream(name, df, time=...)",
        )
    equalities: list[Equality] = []
    residuals: list[Residual] = []
    for text in predicates:
        new_equalities, new_residuals = read_predicate(text, streams, zone)
        equalities += [e for e in new_equalities if e not in equalities]
        residuals += [r for r in new_residuals if r not in residuals]
    classes, coarse = key_classes(equalities, streams)
    residuals += [compare_exactly(e, streams, zone) for e in coarse]
    if not cross:
        _check_connected([s.name for s in streams], classes, residuals)
    outputs = read_outputs(select, streams) if aggregation is None else aggregation.columns
    return Query(
        streams=tuple(streams),
        equalities=tuple(equalities),
        residuals=tuple(residuals),
        windows=imply_windows([s.name for s in streams], default_window, dict(pairs or {})),
        outputs=outputs,
        classes=classes,
        zone=zone,
        kept=outputs,
        aggregation=aggregation,
        topology=topology,
    )


def _check_connected(
    names: Sequence[str], classes: Sequence[KeyClass], residuals: Sequence[Residual]
) -> None:
    connected = {names[0]}
    while True:
        neighbours = {n for c in classes if c.streams & connected for n in c.streams} - connected
        if not neighbours:
            break
        connected |= neighbours
    unconnected = [name for name in names if name not in connected]
    if unconnected:
        raise QueryError(
            "every stream must be connected to the others by an equality",
            got=f"nothing between {', '.join(sorted(connected))} and {', '.join(unconnected)}",
            hint=error_hints.for_unconnected(residuals, connected),
        )

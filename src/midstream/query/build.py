"""Building a query from what was asked, and the checks that it must pass before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from midstream.errors import QueryError
from midstream.query.clauses import Equality, Residual
from midstream.query.keys import KeyClass, key_classes
from midstream.query.predicate import compare_exactly, read_predicate
from midstream.query.query import Query
from midstream.query.select import read_outputs
from midstream.query.stream import Stream
from midstream.query.window import close_windows
from midstream.values import Micros


def build_query(
    streams: Sequence[Stream],
    predicates: Sequence[str],
    *,
    everywhere: Micros | None = None,
    pairs: Mapping[tuple[str, str], Micros] | None = None,
    select: Sequence[str] = (),
    cross: bool = False,
    zone: str = "UTC",
) -> Query:
    """Check everything that was asked and make it one value; the first thing wrong is an error."""
    if len(streams) < 2:
        raise QueryError(
            "a join must have two or more streams",
            got=", ".join(s.name for s in streams) or "none",
            hint="add streams with .stream(name, df, time=...)",
        )
    equalities: list[Equality] = []
    residuals: list[Residual] = []
    for text in predicates:
        equal, rest = read_predicate(text, streams, zone)
        equalities += [e for e in equal if e not in equalities]
        residuals += [r for r in rest if r not in residuals]
    classes, coarse = key_classes(equalities, streams)
    residuals += [compare_exactly(e, streams, zone) for e in coarse]
    if not cross:
        _must_connect([s.name for s in streams], classes)
    return Query(
        streams=tuple(streams),
        equalities=tuple(equalities),
        residuals=tuple(residuals),
        windows=close_windows([s.name for s in streams], everywhere, dict(pairs or {})),
        outputs=read_outputs(select, streams),
        classes=classes,
        zone=zone,
    )


def _must_connect(names: Sequence[str], classes: Sequence[KeyClass]) -> None:
    reached = {names[0]}
    while True:
        more = {n for c in classes if c.streams & reached for n in c.streams} - reached
        if not more:
            break
        reached |= more
    isolated = [name for name in names if name not in reached]
    if isolated:
        raise QueryError(
            "every stream must be connected to the others by an equality",
            got=f"nothing between {', '.join(sorted(reached))} and {', '.join(isolated)}",
            hint="add .on('a.x = b.y'), or ask for all combinations with .cross()",
        )

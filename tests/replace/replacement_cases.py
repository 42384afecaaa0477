"""Drawing definitions that may replace another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from hypothesis import assume
from hypothesis import strategies as st

from midstream.migration.strategies import BLACK_BOX_STRATEGIES
from midstream.plan.tree import Plan
from midstream.protocol.settings import definition_of
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.testing.domains import RESIDUALS
from midstream.testing.hypothesis_aggregates import aggregated
from midstream.testing.hypothesis_strategies import Case, cases, plans
from midstream.values import Micros


@dataclass(frozen=True)
class ReplacementCase:
    """A run with a replacement: when, by what, how; and which epochs begin with a restart."""

    case: Case
    old: Query
    new: Query
    old_plan: Plan
    new_plan: Plan
    strategy: str
    epoch: int
    path: str
    paces: tuple[int | None, ...]
    stops: tuple[bool | None, ...]
    """Before which epochs it is started again, with the new definition if that is asked for by then."""


@st.composite
def replacement_cases(
    draw: st.DrawFn, *, aggregates: bool = False, with_stops: bool = False, max_streams: int = 4
) -> ReplacementCase:
    case = draw(cases(max_streams=max_streams, max_epochs=8, max_results=800))
    whole = _windowed(case.query, Micros(draw(st.sampled_from([50, 10, 200])) * 1_000_000))
    first = draw(_varied(whole))
    second = draw(_varied(whole))
    # At most one of them lacks a stream of the other.
    if len(whole.names) > 2 and draw(st.integers(0, 2)) == 0:
        dropped = draw(st.sampled_from(whole.names))
        second = _without(second, dropped)
        if draw(st.booleans()):
            first, second = second, first
    same = [str(ref) for ref in _columns(first) if ref in _columns(second)]
    chosen = draw(st.lists(st.sampled_from(same), min_size=1, max_size=4, unique=True))
    old, new = (_selecting(query, chosen) for query in (first, second))
    path = ""
    if draw(st.integers(0, 3)) == 0:
        new, path = _selecting(second, [f"{column} AS x{i}" for i, column in enumerate(chosen)]), "elsewhere"
    if aggregates:
        old = draw(aggregated(first))
        new, path = (draw(aggregated(second)), "elsewhere") if draw(st.booleans()) else (second, "elsewhere")
        if draw(st.booleans()) and first.names == second.names:
            new, path = replace_aggregation(second, old), ""
    if set(old.names) != set(new.names):
        settings = replace(case.settings, idle_timeout=None)
        case = replace(case, settings=settings)
    old_plan, new_plan = draw(plans(old.names)), draw(plans(new.names))
    assume((definition_of(old, case.settings), old_plan) != (definition_of(new, case.settings), new_plan))
    count = len(case.epochs)
    paces = tuple(draw(st.lists(st.sampled_from([1, 2, None, 0]), min_size=count, max_size=count)))
    stop = st.sampled_from([None, None, False, True]) if with_stops else st.none()
    return ReplacementCase(
        case=case,
        old=old,
        new=new,
        old_plan=old_plan,
        new_plan=new_plan,
        strategy=draw(st.sampled_from(sorted(BLACK_BOX_STRATEGIES))),
        epoch=draw(st.integers(0, count - 1)),
        path=path,
        paces=paces,
        stops=tuple(draw(st.lists(stop, min_size=count, max_size=count))),
    )


def replace_aggregation(query: Query, old: Query) -> Query:
    """A query with the aggregates of another one."""
    return replace(query, outputs=old.outputs, kept=old.kept, aggregation=old.aggregation)


def _columns(query: Query) -> list[object]:
    return [output.ref for output in query.outputs]


def _windowed(query: Query, window: Micros) -> Query:
    """The query with a window for all pairs."""
    pairs = {
        (a, b): window if (width := query.windows.width(a, b)) is None else width
        for a, b in combinations(query.names, 2)
    }
    return _rebuilt(query, pairs=pairs)


@st.composite
def _varied(draw: st.DrawFn, query: Query) -> Query:
    """The query with other windows and other conditions, perhaps."""
    factor = draw(st.sampled_from([1, 1, 2, 0.5, 4]))
    pairs = {(a, b): Micros(int(width * factor)) for a, b, width in query.windows.widths}
    texts = [residual.text for residual in query.residuals]
    kept = [text for text in texts if draw(st.booleans())]
    if draw(st.integers(0, 2)) == 0:
        x, y, z = (draw(st.permutations(list(query.names))) * 2)[:3]
        kept.append(draw(st.sampled_from(RESIDUALS)).format(x=x, y=y, z=z))
    return _rebuilt(query, pairs=pairs, residuals=kept)


def _rebuilt(
    query: Query,
    *,
    pairs: Mapping[tuple[str, str], Micros],
    residuals: Sequence[str] | None = None,
    names: Sequence[str] = (),
) -> Query:
    names = names or query.names
    texts = [residual.text for residual in query.residuals] if residuals is None else residuals
    equalities = [str(e) for e in query.equalities if {e.left.stream, e.right.stream} <= set(names)]
    return build_query(
        [stream for stream in query.streams if stream.name in names],
        [*equalities, *texts],
        pairs={pair: width for pair, width in pairs.items() if set(pair) <= set(names)},
        cross=True,
        zone=query.zone,
    )


def _without(query: Query, name: str) -> Query:
    names = [other for other in query.names if other != name]
    residuals = [r.text for r in query.residuals if r.streams <= set(names)]
    pairs = {(a, b): width for a, b, width in query.windows.widths}
    return _rebuilt(query, pairs=pairs, residuals=residuals, names=names)


def _selecting(query: Query, columns: list[str]) -> Query:
    pairs = {(a, b): width for a, b, width in query.windows.widths}
    return build_query(
        query.streams,
        [*map(str, query.equalities), *(residual.text for residual in query.residuals)],
        pairs=pairs,
        select=columns,
        cross=True,
        zone=query.zone,
    )

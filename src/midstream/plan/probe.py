"""Making one step of a probe order: by which key a state is searched, and what is checked then."""

from __future__ import annotations

from collections.abc import Iterable

from midstream.plan.layout import Key, Probe
from midstream.plan.placement import search_classes
from midstream.plan.state_id import StateId
from midstream.query.query import Query


def make_probe(
    query: Query, joined: frozenset[str], state: StateId, key: Key, open_residuals: Iterable[int]
) -> Probe:
    """Extending rows of ``joined`` streams by those of a state, in a fragment that is placed by ``key``.

    Of the residuals that are open, it checks those whose streams have all met then.
    """
    common = query.classes_of(joined) & query.classes_of(frozenset(state.streams))
    search = tuple(sorted(search_classes(frozenset(key), common)))
    exact = len(search) == 1 and query.classes[search[0]].exact_hash
    verify = tuple(sorted(common - set(search))) if exact else tuple(sorted(common))
    met = joined.union(state.streams)
    ready = tuple(i for i in open_residuals if query.residuals[i].streams <= met)
    return Probe(state, search, verify, ready)

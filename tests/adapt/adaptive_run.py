"""Recorded runs of a query that may adapt, and the explanation of its last decision."""

from __future__ import annotations

from midstream.adapt.explain import explain_adaptive
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from tests.adapt.synthetic_streams import clique, query_of
from tests.recorded_run import RecordedRun

QUERY = query_of("abc", clique("abc"), window=8)
ADAPTING = Settings(1, 1, adapt=True)
FIXED = Settings(1, 1)


def adaptive_run(plan: str, settings: Settings = ADAPTING, query: Query = QUERY) -> RecordedRun:
    """A run that begins with a plan, and may leave it unless the settings are ``FIXED``."""
    return RecordedRun(query, plan, settings)


def explanation(run: RecordedRun) -> str:
    context = run.join.coordinator.decision_context(run.last)
    return explain_adaptive(context, run.last.adaptation, adapts=run.settings.adapt)

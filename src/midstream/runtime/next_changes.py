"""What the next epoch changes, if it was not begun before: what was requested, and what was decided."""

from __future__ import annotations

from msgspec.structs import replace

from midstream.protocol.coordinator import still_holds
from midstream.protocol.intent import Intent
from midstream.protocol.rescaling import may_rescale
from midstream.replace.query_coordinator import QueryCoordinator
from midstream.runtime.plan_decider import TimedDecision
from midstream.state.adaptation import Verdict
from midstream.state.manifest import Manifest
from midstream.storage.request_queue import RequestQueue


def with_changes(
    intent: Intent,
    coordinator: QueryCoordinator,
    manifest: Manifest,
    requests: RequestQueue,
    decided: TimedDecision | None,
) -> Intent:
    """The intent of the epoch after ``manifest``, with all that it changes.

    What was decided is dropped if a plan is requested, or if it no longer holds.
    """
    applied, request = requests.due(manifest)
    waiting = None
    if request is not None and not coordinator.may_begin(manifest, request.plan):
        applied, request, waiting = manifest.applied_requests, None, request
    replaced, replacement = manifest.applied_replacements, None
    if request is None:
        replaced, replacement = requests.due_replacement(manifest, coordinator.must_wait)
        if replacement is not None and not coordinator.may_replace(manifest, replacement):
            replacement = None
    rescales, asked = requests.partitions.due(manifest.applied_rescales)
    # A new box begins with as many partitions as there are.
    rescales_now = asked is not None and replacement is None and may_rescale(manifest)
    verdict = None if request or replacement else _verdict(coordinator, manifest, decided)
    return replace(
        intent,
        terms=coordinator.next_terms(manifest),
        applied_requests=applied,
        request=request,
        verdict=verdict,
        waiting=waiting,
        applied_rescales=rescales if rescales_now else manifest.applied_rescales,
        partitions=asked if rescales_now else None,
        waiting_partitions=None if rescales_now else asked,
        applied_replacements=replaced,
        replacement=replacement,
    )


def _verdict(
    coordinator: QueryCoordinator, manifest: Manifest, decided: TimedDecision | None
) -> Verdict | None:
    """What was decided, if it may be carried out now."""
    if decided is None or decided.verdict is None or not still_holds(decided.manifest, manifest):
        return None
    migration = decided.verdict.migration
    if migration is not None and not coordinator.may_begin(manifest, migration.best_plan):
        # It is decided again, from the statistics at that time.
        return None
    return decided.verdict

"""Adapting in the manifest: what an epoch carries out of what was decided, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from midstream.adapt.decision import DecisionContext, after_migration
from midstream.adapt.outcome import begin_trial, is_watched, migration_outcome
from midstream.engine.program import Program
from midstream.protocol.intent import BEFORE_VERDICTS, Intent
from midstream.query.query import Query
from midstream.state.adaptation import Adaptation, Verdict
from midstream.state.costs import Cost
from midstream.state.manifest import Manifest


def verdict_of(manifest: Manifest, intent: Intent) -> Verdict | None:
    """What was decided about the plan, for the epoch after ``manifest`` to carry out."""
    return pending_decision(manifest) if intent.format <= BEFORE_VERDICTS else intent.verdict


def pending_decision(manifest: Manifest) -> Verdict | None:
    """What a manifest of a format before 7 has decided, with its own epoch, for the next one to carry out."""
    verdict = Verdict(manifest.epoch, manifest.adaptation)
    return None if verdict.migration is None else verdict


def next_adaptation(query: Query, before: Manifest, after: Manifest, intent: Intent) -> Adaptation:
    """What the next decision depends on after an epoch, apart from what its migration turned out to be."""
    verdict = verdict_of(before, intent)
    adaptation = before.adaptation if verdict is None else verdict.adaptation
    if not intent.settings.adapt:
        return adaptation
    if intent.request is not None:
        adaptation = replace(adaptation, requested_plan=intent.request.plan, restored_plan="", baseline={})
    if after.migration is not None or after.ended_migration is not None:
        return after_migration(query, after.statistics, adaptation)
    return adaptation


@dataclass(frozen=True)
class ObservedEpoch:
    """An epoch, as far as it may tell what a migration turned out to be."""

    before: DecisionContext
    after: DecisionContext
    program: Program
    spent: Cost
    """The work that it did."""


def with_trial_outcome(epoch: ObservedEpoch, before: Manifest, after: Manifest, intent: Intent) -> Adaptation:
    """The adaptation after an epoch, with what is known of the last migration."""
    adaptation, trial = after.adaptation, after.adaptation.trial
    if after.migrations > before.migrations:
        migration = after.migration or after.ended_migration
        verdict = verdict_of(before, intent)
        decision = None if intent.request is not None or verdict is None else verdict.migration
        if migration is None or (epoch.program.migration_step is None):
            return adaptation
        trial = begin_trial(
            epoch.before,
            migration,
            is_final=decision is None or bool(decision.takes_back),
            changed=decision is not None and bool(decision.changed),
        )
    if trial is None:
        return adaptation
    if epoch.program.migration_step is not None:
        seconds = after.statistics.elapsed - before.statistics.elapsed
        trial = replace(trial, spent=trial.spent + epoch.spent, seconds=trial.seconds + seconds)
    elif not epoch.after.streams_without_statistics and is_watched(epoch.after):
        return replace(adaptation, trial=None, last_outcome=migration_outcome(epoch.after, trial))
    return replace(adaptation, trial=trial)

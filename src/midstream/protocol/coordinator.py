"""The coordinator: from a committed manifest to the program of the next epoch, and on to its manifest.

It owns no state. Everything it decides follows from the manifest, the intent of the epoch and the reports, so
that a restarted driver, or the same epoch run again, decides the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import replace as replace_field

from msgspec.structs import replace

from midstream.adapt.decision import DecisionContext, after_migration, decide
from midstream.adapt.policy import best_migration
from midstream.adapt.statistics import samplings
from midstream.engine.program import MigrationStep, Program
from midstream.engine.send import WAITING
from midstream.errors import CheckpointError, PlanError
from midstream.migration.lifecycle import after_epoch, check_migration, layout_of, plan_epoch
from midstream.migration.request import Request
from midstream.plan.layout import Layout, streams_of
from midstream.plan.tree import Plan, parse_plan
from midstream.protocol.intent import Intent
from midstream.protocol.report import Report
from midstream.protocol.settings import Settings, describe, must_agree
from midstream.protocol.statistics_update import update_statistics
from midstream.protocol.watermark import advance_marks, latest_accepted
from midstream.query.query import Query
from midstream.state.adaptation import Adaptation
from midstream.state.manifest import Manifest, Retired, StreamProgress
from midstream.state.purge import Purge
from midstream.state.slices import Slice, StateKey

# Manifests are kept for this many epochs: a damaged one must have a valid one before it, and people look.
EPOCHS_KEPT = 10
# A slice outlives its last manifest by this many epochs: the manifest before the newest must find all of its
# own, and a task of an epoch that has been given up may still be reading. More would cost disk for nothing.
RETIRED_KEPT = 2


@dataclass(frozen=True)
class Coordinator:
    """Plans and commits the epochs of one query."""

    query: Query
    settings: Settings

    @classmethod
    def resume(cls, query: Query, settings: Settings, manifest: Manifest) -> Coordinator:
        """The coordinator that goes on from a manifest, if its state was made for this query."""
        must_agree(manifest.query, query, settings)
        try:
            parse_plan(manifest.plan, query.names)
            if manifest.migration is not None:
                parse_plan(manifest.migration.plan, query.names)
            if manifest.adaptation.last is not None:
                parse_plan(manifest.adaptation.last.best, query.names)
        except PlanError as error:
            raise CheckpointError("a manifest must have a plan of its streams", got=error.got) from None
        if set(manifest.streams) != set(query.names):
            raise CheckpointError("a manifest must have a mark for each stream", got=list(manifest.streams))
        check_migration(query, manifest)
        for slice_ in manifest.slices:
            owner, streams = slice_.owner, streams_of(slice_.owner.state)
            known = set(streams) <= set(query.names) and 0 <= owner.partition < settings.partitions
            if not known or len(slice_.latest) != len(streams):
                raise CheckpointError("a slice must belong to a state of the query", got=owner)
            if not 0 <= slice_.lower <= slice_.upper <= manifest.epoch:
                raise CheckpointError(
                    f"a slice must have rows of epochs up to {manifest.epoch}, the last that is committed",
                    got=f"{slice_.lower} to {slice_.upper} in a slice of {owner.state}",
                    hint="restore the manifests from a copy",
                )
        return cls(query, settings)

    def first_manifest(self, query_id: str, plan: Plan) -> Manifest:
        """What holds before the first epoch."""
        return Manifest(
            id=query_id,
            epoch=-1,
            source="",
            query=describe(self.query, self.settings),
            plan=str(plan),
            initial_plan=str(plan),
            streams={name: StreamProgress() for name in self.query.names},
        )

    def layout(self, manifest: Manifest) -> Layout:
        """The layout of the plan that a manifest names."""
        return layout_of(self.query, manifest.plan, manifest.states)

    def program(self, manifest: Manifest, intent: Intent, *, decides: bool = True) -> Program:
        """The program of the epoch after ``manifest``; slices of which nothing is alive are not in it.

        A request for another plan is applied unless a migration is under way. Unless it ``decides``, what was
        decided about the plan is not carried out.
        """
        watermarks = {name: mark.watermark for name, mark in manifest.streams.items()}
        purge = Purge(self.query.windows, watermarks)
        slices: dict[StateKey, tuple[Slice, ...]] = {}
        for slice_ in _alive(manifest, purge):
            slices[slice_.owner] = (*slices.get(slice_.owner, ()), slice_)
        wanted = self._chosen_migration(manifest, intent, decides=decides)
        return Program(
            manifest.epoch + 1,
            self.query,
            self.settings.routing(),
            watermarks,
            plan_epoch(self.query, manifest, purge, wanted, intent.background_epochs),
            slices,
            samplings(self.query, manifest.statistics),
            latest_accepted(manifest.streams, intent),
        )

    def commit(self, manifest: Manifest, intent: Intent, program: Program, report: Report) -> Manifest:
        """The manifest of the program's epoch, given what all its partitions report."""
        step = program.course
        before = [slice_ for owned in program.slices.values() for slice_ in owned]
        # By owner as well: two states that get the same rows have slices of the same name.
        merged = {(s.owner, s.name) for s in report.merged}
        kept = (s for s in before if (s.owner, s.name) not in merged)
        slices = _slices_in_use(step, (*kept, *report.slices))
        used = {slice_.name for slice_ in slices}
        gone = dict.fromkeys(s.name for s in manifest.slices if s.name not in used)
        retired = [r for r in manifest.retired if r.epoch > program.epoch - RETIRED_KEPT]
        after = replace(
            manifest,
            epoch=program.epoch,
            plan=step.plan,
            states=dict(step.states),
            ended=step.ended,
            applied_requests=intent.applied_requests,
            migrations=manifest.migrations + step.begins,
            streams=advance_marks(self.query, manifest.streams, report.counts, intent.settings.idle_timeout),
            slices=tuple(sorted(slices, key=lambda s: (s.owner, s.lower))),
            retired=(*retired, *(Retired(name, program.epoch) for name in gone)),
            outputs=report.outputs,
            results=manifest.results + report.results,
        )
        statistics = update_statistics(self.query, manifest, after, step, report)
        after = replace(after, migration=after_epoch(self.query, step, after), statistics=statistics)
        return replace(after, adaptation=self._adapt(after, intent))

    def _chosen_migration(self, manifest: Manifest, intent: Intent, *, decides: bool) -> Request | None:
        """The change of plan that was asked for, or else what was decided with the last epoch.

        A decision is committed with its manifest. It is carried out whatever the options are by then.
        """
        request = None if intent.request is None else intent.request.read(self.query)
        decided = manifest.adaptation.wants(manifest.epoch + 1) if decides else None
        if request is None and decided is not None:
            plan = parse_plan(decided.best, self.query.names)
            return Request(plan, decided.strategy, decided.background, decided.isolated)
        if request is None or not request.leaves_a_choice:
            return request
        policy = intent.settings.policy
        policy = replace_field(policy, strategy=request.strategy, background=request.background)
        price = best_migration(self.layout(manifest), request.plan, manifest.statistics, self.query, policy)
        if request.strategy == "auto":
            return Request(request.plan, price.strategy, price.background, price.isolated)
        return replace_field(request, isolated=price.isolated)

    def decision_context(self, manifest: Manifest) -> DecisionContext:
        """What decisions about the plan are made from."""
        return DecisionContext(
            query=self.query,
            layout=self.layout(manifest),
            statistics=manifest.statistics,
            partitions=self.settings.partitions,
            epoch=manifest.epoch,
        )

    def _adapt(self, manifest: Manifest, intent: Intent) -> Adaptation:
        known, migration = manifest.adaptation, manifest.migration or manifest.ended
        if not intent.settings.adapt:
            return known
        if intent.request is not None:
            known = replace(known, asked=intent.request.plan, baseline={})
        decision_context = self.decision_context(manifest)
        if migration is not None:
            return after_migration(decision_context, known)
        return decide(decision_context, known, intent.settings.policy)


def deletable_slices(before: Manifest, after: Manifest) -> list[str]:
    """Files that were retired long enough ago and that ``after`` does not use.

    Names are digests of contents, so a file may come back into use: what is used is never expendable.
    """
    kept = {slice_.name for slice_ in after.slices} | {r.name for r in after.retired}
    return sorted({r.name for r in before.retired} - kept)


def _alive(manifest: Manifest, purge: Purge) -> list[Slice]:
    return [
        slice_
        for slice_ in manifest.slices
        # Results that wait are results, however old.
        if slice_.owner.kind == "held" or not purge.is_dead(streams_of(slice_.owner.state), slice_.latest)
    ]


def _slices_in_use(step: MigrationStep, slices: Iterable[Slice]) -> list[Slice]:
    """The slices of states that are still somebody's; what has waited for its state to be whole joins it."""
    waiting = {f"{rebuilt}{WAITING}" for rebuilt in (step.migration.computed if step.migration else ())}
    done = f"{step.finishes}{WAITING}"
    found = []
    for slice_ in slices:
        owner = slice_.owner
        if owner.state == done:
            found.append(replace(slice_, owner=replace(owner, state=step.finishes)))
        elif owner.kind == "held":
            found += [slice_] if step.holds else []
        elif owner.kind == "index" and step.layout.retention_bounds.get(owner.state) == ():
            continue  # no row that is yet to come makes anything of it
        elif owner.state in step.layout.states or owner.state in waiting:
            found.append(slice_)
    return found

"""The coordinator: from a committed manifest to the program of the next epoch, and on to its manifest.

It owns no state. Everything it decides follows from the manifest, the intent of the epoch and the reports, so
that a restarted driver, or the same epoch run again, decides the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import replace as replace_field

from msgspec.structs import replace

from midstream.adapt.decision import DecisionContext, decide
from midstream.adapt.policy import best_migration
from midstream.adapt.statistics import samplings
from midstream.aggregate.next_step import is_out, next_aggregate_step, windows_are_due
from midstream.engine.migration_step import MigrationStep
from midstream.engine.program import Program
from midstream.engine.result_time_range import results_after
from midstream.engine.spill_retention import SpillRetention
from midstream.errors import CheckpointError, PlanError
from midstream.memory.check_memory import check_memory
from midstream.memory.next_step import memory_context
from midstream.migration.check_migration import check_migration
from midstream.migration.lifecycle import after_epoch, layout_of, next_epoch_layout
from midstream.migration.request import MigrationRequest
from midstream.migration.state_match import match_states
from midstream.migration.strategies import AUTO
from midstream.plan.build_layout import build_layout
from midstream.plan.fragment_name import same_fragments
from midstream.plan.layout import Layout
from midstream.plan.sited_layout import check_kind
from midstream.plan.tree import Plan, parse_plan
from midstream.protocol import adapting
from midstream.protocol.check_site_support import check_settings_of_sites, check_sites_state
from midstream.protocol.epoch_balance import balance_after, balance_with, next_balance
from midstream.protocol.epoch_memory import (
    check_windows_stay,
    memory_after,
    next_memory_step,
    owes_results,
)
from midstream.protocol.epoch_statistics import update_statistics, work_done
from midstream.protocol.intent import Intent
from midstream.protocol.query_terms import (
    QueryTerms,
    active_window_changes,
    check_terms,
    check_window_changes,
    committed_terms,
    outputs_before,
    query_on,
    terms_of,
    window_changes_for,
    with_terms,
)
from midstream.protocol.report import Report
from midstream.protocol.rescaling import (
    check_routings,
    first_routing,
    next_places,
    places_of,
    with_places,
)
from midstream.protocol.settings import Settings, check_same_definition, definition_of
from midstream.protocol.watermark import advance_progress, latest_allowed
from midstream.query.query import Query
from midstream.sites.decision import decide_at_sites
from midstream.state.adaptation import Verdict
from midstream.state.expiry import Expiry
from midstream.state.json_with_digest import RESTORE
from midstream.state.manifest import Manifest, Retired, StreamProgress
from midstream.state.slices import Slice, SliceOwner

# Manifests are kept for this many epochs: recovery needs a valid one before a damaged one, operators more.
EPOCHS_KEPT = 10
# A slice outlives its last manifest by this many epochs: recovery may go back to the manifest before the
# newest, and a task of an abandoned attempt may still be reading. More would only cost disk space.
RETIRED_KEPT = 2


@dataclass(frozen=True)
class Coordinator:
    """Plans and commits the epochs of one query."""

    query: Query
    """As it is asked now; an epoch that was begun before may run on other terms."""
    settings: Settings

    @classmethod
    def resume(cls, query: Query, settings: Settings, manifest: Manifest) -> Coordinator:
        """The coordinator that goes on from a manifest, if its state was made for this query."""
        query = check_same_definition(manifest, query, settings)
        check_settings_of_sites(query, settings)
        try:
            plan = parse_plan(manifest.plan, query.names)
            if manifest.migration is not None:
                parse_plan(manifest.migration.new_plan, query.names)
            if manifest.adaptation.last_decision is not None:
                parse_plan(manifest.adaptation.last_decision.best_plan, query.names)
            check_sites_state(query, manifest.adaptation.sites)
        except PlanError as error:
            must = "a manifest must have a plan of its streams"
            raise CheckpointError(must, got=error.got, hint=RESTORE) from None
        if set(manifest.streams) != set(query.names):
            got = f"that of {', '.join(manifest.streams) or 'none'}"
            raise CheckpointError("a manifest must have the progress of each stream", got=got, hint=RESTORE)
        check_migration(query, manifest)
        check_routings(manifest, settings.groups)
        context = memory_context(query, manifest, places_of(manifest))
        check_memory(manifest, settings.groups, context.fragment_names)
        check_windows_stay(manifest, query)
        if not settings.adapt and manifest.migration is None:
            # A query that adapts leaves such a plan by itself.
            settings.check_plan(query, plan, settings.partitions or places_of(manifest).partitions)
        check_window_changes(manifest)
        for slice_ in manifest.slices:
            owner, streams = slice_.owner, slice_.owner.state.streams
            if not set(streams) <= set(query.names) or len(slice_.latest) != len(streams):
                got = f"{slice_.name} of state {owner.state} in partition {owner.partition}"
                raise CheckpointError("a slice must belong to a state of the query", got=got, hint=RESTORE)
            if not 0 <= slice_.first_epoch <= slice_.last_epoch <= manifest.epoch:
                raise CheckpointError(
                    f"a slice must have rows of epochs up to {manifest.epoch}, the last that is committed",
                    got=f"{slice_.first_epoch} to {slice_.last_epoch} in a slice of {owner.state}",
                    hint="restore the manifests from a copy",
                )
        return cls(query, settings)

    def initial_manifest(self, query_id: str, plan: Plan) -> Manifest:
        """What holds before the first epoch."""
        check_kind(self.query, plan)
        check_settings_of_sites(self.query, self.settings)
        routing = first_routing(self.settings, self.query.topology)
        self.settings.check_plan(self.query, plan, routing.partitions)
        return Manifest(
            id=query_id,
            epoch=-1,
            spark_query="",
            definition=definition_of(self.query, self.settings),
            plan=str(plan),
            initial_plan=str(plan),
            routings=(routing,),
            streams={name: StreamProgress() for name in self.query.names},
        )

    def next_terms(self, manifest: Manifest) -> QueryTerms:
        """The terms of the epoch after ``manifest``, if it was not begun before: the current ones.

        An epoch that another driver had begun may have changed what is possible since the query was resumed.
        """
        check_terms(manifest, self.query)
        check_windows_stay(manifest, self.query)
        return terms_of(self.query)

    def layout(self, manifest: Manifest) -> Layout:
        """The layout of the plan that a manifest names."""
        return layout_of(self.query, manifest.plan, manifest.state_ids)

    def decide(self, manifest: Manifest) -> Verdict | None:
        """What follows from the statistics of a manifest for the plan; None if nothing is decided.

        It takes long, and depends on nothing but its arguments: a shell may call it beside an epoch.
        """
        adaptation = manifest.adaptation
        if not self.settings.adapt:
            return None
        if (undone := adapting.pending_decision(manifest)) is not None:
            return undone
        # Statistics that were kept for other windows say little about what a plan will cost with these.
        if manifest.migration is not None or committed_terms(manifest) != terms_of(self.query):
            return None
        context = self.decision_context(manifest)
        if self.query.topology is not None:
            decided = decide_at_sites(context, adaptation, self.settings.sites)
        else:
            decided = decide(context, adaptation, self.settings.policy)
        return None if decided == adaptation else Verdict(manifest.epoch, decided)

    def program(self, manifest: Manifest, intent: Intent, *, decides: bool = True) -> Program:
        """The program of the epoch after ``manifest``, on the terms of its intent.

        Slices whose rows have all expired are not in it. A request for another plan is applied unless a
        migration is under way. Without ``decides``, the verdict of the intent is not carried out.
        """
        terms = intent.terms or committed_terms(manifest)
        query, changes = query_on(terms, self.query), window_changes_for(manifest, terms)
        watermarks = {name: stream.watermark for name, stream in manifest.streams.items()}
        places = next_places(manifest, intent)
        memory = memory_context(query, manifest, places)
        memory = replace_field(memory, windows_have_changed=bool(changes))
        expiry = Expiry(query.windows, watermarks, changes, memory.holds)
        slices: dict[SliceOwner, tuple[Slice, ...]] = {}
        for slice_ in _useful_slices(manifest, memory.retention(expiry)):
            slices[slice_.owner] = (*slices.get(slice_.owner, ()), slice_)
        request = self._chosen_migration(query, manifest, intent, decides=decides)
        plan = next_epoch_layout(
            query,
            manifest,
            expiry,
            request,
            intent.background_epochs,
            intent.settings.rows_moved_at_once,
        )
        memory = memory.during(plan.migration_step)
        balance = next_balance(memory, manifest, intent)
        memory = replace_field(memory, places=balance.places(places, manifest.epoch + 1))
        memory_step = next_memory_step(memory, manifest, intent, balance.forced)
        return Program(
            epoch=manifest.epoch + 1,
            query=query,
            places=memory.places,
            watermarks=watermarks,
            layout=plan.layout,
            migration_step=plan.migration_step,
            memory=memory_step,
            balance=balance_with(memory, manifest.balance, balance, memory_step),
            aggregation=next_aggregate_step(query, manifest, plan.layout),
            slices=slices,
            sampling=samplings(query, manifest.statistics),
            window_changes=changes,
            latest_allowed=latest_allowed(manifest.streams, intent),
            result_range=results_after(manifest.handed_over),
        )

    def commit(self, manifest: Manifest, intent: Intent, program: Program, report: Report) -> Manifest:
        """The manifest of the program's epoch, given what all its partitions report."""
        earlier = [slice_ for owned in program.slices.values() for slice_ in owned]
        # Whole slices, as a name says only what is in one: two states that get the same rows have slices of
        # the same name, and so have partial aggregates of two epochs that are equal. Slices that are equal in
        # all have the same epochs and level, so they merge together or not at all.
        merged = set(report.replaced)
        unmerged = (slice_ for slice_ in earlier if slice_ not in merged)
        slices = _slices_in_use(program, (*unmerged, *report.slices))
        used = {slice_.name for slice_ in slices}
        unused = dict.fromkeys(s.name for s in manifest.slices if s.name not in used)
        retired = [r for r in manifest.retired if r.epoch > program.epoch - RETIRED_KEPT]
        terms = intent.terms or committed_terms(manifest)
        query = program.query
        after = replace(
            manifest,
            epoch=program.epoch,
            definition=with_terms(manifest.definition, terms),
            window_changes=program.window_changes,
            earlier_outputs=outputs_before(manifest, terms),
            ended_migration=None,
            ended_replacement=None,
            applied_requests=intent.applied_requests,
            epochs_without_batch=manifest.epochs_without_batch + intent.without_batch,
            streams=advance_progress(query, manifest.streams, report.counts, intent.settings.idle_timeout),
            slices=tuple(sorted(slices, key=lambda s: (s.owner, s.first_epoch))),
            retired=(*retired, *(Retired(name, program.epoch) for name in unused)),
            outputs=report.outputs,
            results=manifest.results + report.results,
            emitted=program.aggregation.until if program.aggregation is not None else None,
        )
        # What a plan produces depends on the windows as well.
        alone = program.migration_step is None and program.window_changes == manifest.window_changes
        spent = work_done(program, report)
        measured = intent.measurements
        statistics = update_statistics(
            query, manifest.statistics, report, spent=spent, measurements=measured, alone=alone
        )
        after = replace(after, statistics=statistics, window_changes=active_window_changes(after))
        after = with_places(after, intent, program.places)
        after = replace(after, balance=balance_after(manifest, after, program, report))
        after = replace(after, memory=memory_after(manifest, after, intent, program, report))
        if program.migration_step is not None:
            after = self._commit_migration(query, after, program.migration_step)
        after = replace(after, adaptation=adapting.next_adaptation(query, manifest, after, intent))
        if query.topology is not None:
            # What sites cost is latency and bytes of links, not the work that trials compare.
            return after
        contexts = self.decision_context(manifest), self.decision_context(after)
        epoch = adapting.ObservedEpoch(*contexts, program, spent)
        return replace(after, adaptation=adapting.with_trial_outcome(epoch, manifest, after, intent))

    def owes(self, manifest: Manifest) -> bool:
        """Whether an epoch without rows may have results: groups owe some, or windows are complete."""
        owes = owes_results(self.query, manifest, places_of(manifest))
        return owes or windows_are_due(self.query, manifest)

    def _commit_migration(self, query: Query, manifest: Manifest, step: MigrationStep) -> Manifest:
        manifest = replace(
            manifest,
            migrations=manifest.migrations + step.begins,
            migration=after_epoch(query, step, manifest),
        )
        if not step.ends:
            return manifest
        ended = step.migration
        return replace(manifest, plan=ended.new_plan, state_ids=ended.state_ids, ended_migration=ended)

    def _chosen_migration(
        self, query: Query, manifest: Manifest, intent: Intent, *, decides: bool
    ) -> MigrationRequest | None:
        """The change of plan that was requested, or else decided; None if neither was.

        What was decided is carried out even if the options have changed since.
        """
        request = None if intent.request is None else intent.request.read(query)
        verdict = adapting.verdict_of(manifest, intent)
        decision = verdict.migration if verdict is not None and decides else None
        if request is None and decision is not None:
            plan = parse_plan(decision.best_plan, query.names)
            return MigrationRequest(plan, decision.strategy, decision.background, decision.isolated)
        if request is None or not request.leaves_a_choice:
            return request
        policy = replace_field(
            intent.settings.policy, strategy=request.strategy, background=request.background
        )
        best = best_migration(self.layout(manifest), request.plan, manifest.statistics, query, policy)
        if request.strategy == AUTO:
            return MigrationRequest(request.plan, best.strategy, best.background, best.isolated)
        return replace_field(request, isolated=best.isolated)

    def may_begin(self, manifest: Manifest, plan: str) -> bool:
        """Whether the epoch after ``manifest`` may change to a plan: not if that changes what owes rows."""
        return self._keeps_owing_fragments(self.query, manifest, parse_plan(plan, self.query.names))

    def _keeps_owing_fragments(self, query: Query, manifest: Manifest, plan: Plan) -> bool:
        """Whether another plan leaves the fragments as they are, or no group is spilled."""
        if not manifest.memory.cuts:
            return True
        old = self.layout(manifest)
        return same_fragments(old, match_states(old, build_layout(query, plan), old.unused_number).plans.new)

    def decision_context(self, manifest: Manifest) -> DecisionContext:
        """What decisions about the plan are made from."""
        return DecisionContext(
            query=self.query,
            layout=self.layout(manifest),
            statistics=manifest.statistics,
            partitions=places_of(manifest).partitions,
            epoch=manifest.epoch,
            single_partition=self.settings.single_partition,
        )


def still_holds(decided_from: Manifest, manifest: Manifest) -> bool:
    """Whether what was decided about the plan from one manifest may be carried out after a later one.

    It may not if another plan or definition has begun since, or was requested: what was compared is gone.
    """
    then, now = ((m.migrations, m.replacements, m.adaptation) for m in (decided_from, manifest))
    return then == now


def deletable_slices(before: Manifest, after: Manifest) -> list[str]:
    """Files that were retired long enough ago and that ``after`` does not use.

    Names are digests of contents, so a retired file may come back into use.
    """
    needed = {slice_.name for slice_ in after.all_slices} | {r.name for r in after.all_retired}
    return sorted({r.name for r in before.all_retired} - needed)


def _useful_slices(manifest: Manifest, retention: SpillRetention) -> list[Slice]:
    return [
        slice_
        for slice_ in manifest.slices
        # Results, and aggregates of them, do not expire.
        if not slice_.owner.has_rows_of_streams
        or not retention.is_useless(slice_.owner, slice_.latest, slice_.last_epoch)
    ]


def _slices_in_use(program: Program, slices: Iterable[Slice]) -> list[Slice]:
    """The slices that the next epoch may need; those of a state that is now complete become searchable."""
    step = program.migration_step
    migration = step.migration if step is not None and not step.ends else None
    pending = {*migration.rebuilding, *migration.moving} if migration is not None else set()
    retention = program.handover.retention if program.handover is not None else {}
    in_use = []
    for slice_ in slices:
        kind, state = slice_.owner.kind, slice_.owner.state
        if kind == "pending" and step is not None and state == step.completed_state:
            in_use.append(replace(slice_, owner=replace(slice_.owner, kind="index")))
        elif kind == "pending":
            in_use += [slice_] if state in pending else []
        elif kind == "deferred":
            in_use += [slice_] if step is not None and step.defers_results else []
        elif kind == "partial":
            in_use += [] if _is_out(program, slice_) else [slice_]
        elif kind == "index" and retention.get(state) == ():
            continue  # no future row will join with it
        elif state in program.layout.states:
            in_use.append(slice_)
    return in_use


def _is_out(program: Program, slice_: Slice) -> bool:
    """Whether all windows of a slice of partial aggregates have left."""
    step, aggregation = program.aggregation, program.query.aggregation
    return step is None or aggregation is None or is_out(aggregation.windows, slice_, step.until)

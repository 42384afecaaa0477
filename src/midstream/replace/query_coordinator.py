"""The coordinator of a query whose definition may be replaced while it runs.

A *box* is a whole query: definition, plan and states. Usually there is one. While a replacement runs,
each epoch runs two, over the same rows, and its manifest has both: the old box as ever, the new one in
``replacement``. Each runs independently: only the rows that the old one has stored pass over, and the
hand-over time says which results leave which (``replace/handover_time.py``).
When the old box is done, the new one's part of the manifest becomes the manifest.

As with one box, everything follows from the manifest, the intent and the reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as replace_field
from typing import Any

from msgspec.structs import replace

from midstream.adapt.decision import DecisionContext
from midstream.engine.program import Program, ReplacementStep
from midstream.plan.layout import Layout
from midstream.protocol.coordinator import Coordinator
from midstream.protocol.intent import Intent
from midstream.protocol.query_terms import QueryTerms, committed_terms, described_terms, query_on
from midstream.protocol.report import Report
from midstream.protocol.settings import Settings, check_same_definition, first_difference, with_kept
from midstream.query.query import Query
from midstream.replace.definition import read_query
from midstream.replace.given_definition import check_windows_may_change, is_new_definition
from midstream.replace.lifecycle import (
    initial_replacement,
    intent_of_new_box,
    intent_of_old_box,
    manifest_after_end,
    next_box_step,
    replacement_after,
    without_handover,
)
from midstream.state.adaptation import Verdict
from midstream.state.manifest import Manifest, Replacement
from midstream.state.replacement import ReplacementRequest


@dataclass(frozen=True)
class QueryCoordinator:
    """Plans and commits the epochs of one query, whatever its definition."""

    current: Coordinator
    """That of the query, or of the old box."""
    known: tuple[Query, ...] = ()
    """Other definitions that the query was asked to get, or is about to get."""
    started_with_new: bool = False
    """Whether it was started with the new definition of a replacement."""

    @classmethod
    def resume(
        cls, given: Query, settings: Settings, manifest: Manifest, asked: ReplacementRequest | None
    ) -> QueryCoordinator:
        """Go on from a manifest with one of the definitions that there are: the old one or the new one.

        ``asked`` is the request for another definition that waits, or that the next epoch has begun with.
        """
        replacement = manifest.replacement
        if replacement is not None and not replacement.plan_only:
            new = _with_results(replacement.successor, manifest, replacement.path)
        elif asked is not None and asked.definition:
            new = _with_results(replace(manifest, definition=asked.definition), manifest, asked.path)
        else:
            new = None
        if new is None:
            coordinator = cls(Coordinator.resume(given, settings, manifest))
        else:
            coordinator = cls._of(given, settings, manifest, new)
        if replacement is not None:
            query = coordinator.new_query(replacement)
            Coordinator.resume(query, settings, replacement.successor)
        return coordinator

    @classmethod
    def resume_with_another(cls, given: Query, settings: Settings, manifest: Manifest) -> QueryCoordinator:
        """Go on from a manifest, whose definition the given one is going to replace."""
        old = read_query(manifest.definition, given, settings)
        return cls(Coordinator.resume(old, settings, manifest), (given,))

    @classmethod
    def _of(cls, given: Query, settings: Settings, manifest: Manifest, new: Manifest) -> QueryCoordinator:
        is_running = manifest.replacement is not None
        if is_new_definition(given, settings, manifest, new, is_running=is_running):
            query = check_same_definition(new, given, settings)
            check_windows_may_change(settings, new, query)
            old = read_query(manifest.definition, given, settings)
            return cls(Coordinator.resume(old, settings, manifest), (query,), started_with_new=True)
        current = Coordinator.resume(given, settings, manifest)
        return cls(current, (read_query(new.definition, given, settings),))

    @property
    def query(self) -> Query:
        """The current definition, or that of the old box."""
        return self.current.query

    @property
    def settings(self) -> Settings:
        """The current options."""
        return self.current.settings

    def with_candidate(self, query: Query) -> QueryCoordinator:
        """The same, with a definition that it may get."""
        return replace_field(self, known=(*self.known, query))

    def initial_manifest(self, *arguments: Any) -> Manifest:
        """What holds before the first epoch."""
        return self.current.initial_manifest(*arguments)

    def definition(self, definition: dict[str, Any]) -> Query:
        """The query of a definition, on the terms in it: one that is known, or else read back."""
        return query_on(described_terms(definition), self._known_or_read(definition))

    def _known_or_read(self, definition: dict[str, Any]) -> Query:
        """The same; one that is known may have been given on other terms since it was asked for."""
        for query in reversed(self.known):
            if first_difference(definition, query, self.settings) is None:
                return with_kept(definition, query)
        return read_query(definition, self.query, self.settings)

    def new_query(self, replacement: Replacement) -> Query:
        """The definition of the new box."""
        if replacement.plan_only:
            return query_on(committed_terms(replacement.successor), self.query)
        return self.definition(replacement.successor.definition)

    def _begin(self, manifest: Manifest, intent: Intent, request: ReplacementRequest) -> Replacement:
        if request.definition:
            query = self.definition(request.definition)
        else:
            query = query_on(intent.terms or committed_terms(manifest), self.query)
        return initial_replacement(manifest, request, self.current, Coordinator(query, self.settings))

    def next_terms(self, manifest: Manifest) -> QueryTerms:
        """The terms of the epoch after ``manifest``: they stay while a replacement runs."""
        return committed_terms(manifest) if manifest.replacement else self.current.next_terms(manifest)

    def may_begin(self, manifest: Manifest, plan: str) -> bool:
        """Whether the epoch after ``manifest`` may change to a plan."""
        return manifest.replacement is None and self.current.may_begin(manifest, plan)

    def must_wait(self, manifest: Manifest, request: ReplacementRequest) -> bool:
        """Whether rows are stored for which other windows hold than the current ones.

        The rule of changed windows goes by when rows arrived, which a box that gets them again does not know.
        Another definition has windows of its own.
        """
        if request.definition:
            return False
        changes = self.next_terms(manifest).within != committed_terms(manifest).within
        return changes or bool(manifest.window_changes)

    def may_replace(self, manifest: Manifest, request: ReplacementRequest) -> bool:
        """Whether results of a definition that was asked for still go where they are to go.

        The query may have been started with other outputs since then.
        """
        if not request.definition or request.path:
            return True
        return bool(self.definition(request.definition).output_schema.equals(self.query.output_schema))

    def decide(self, manifest: Manifest) -> Verdict | None:
        """What follows from the statistics for the plan: nothing while a replacement runs."""
        return None if manifest.replacement is not None else self.current.decide(manifest)

    def layout(self, manifest: Manifest) -> Layout:
        """The layout of the plan that a manifest names."""
        return self.current.layout(manifest)

    def decision_context(self, manifest: Manifest) -> DecisionContext:
        """What decisions about the plan are made from."""
        return self.current.decision_context(manifest)

    def owes(self, manifest: Manifest) -> bool:
        """Whether an epoch without rows may have results, or may end a replacement."""
        replacement = manifest.replacement
        if replacement is None:
            return self.current.owes(manifest)
        new = Coordinator(self.new_query(replacement), self.settings)
        if next_box_step(self._old_query(manifest), manifest, replacement, new.query, 0).ends:
            return True
        return self.current.owes(manifest) or (
            replacement.live_since is not None and new.owes(replacement.successor)
        )

    def _old_query(self, manifest: Manifest) -> Query:
        """The definition of the old box on the terms that its states were stored with."""
        return query_on(committed_terms(manifest), self.query)

    def program(self, manifest: Manifest, intent: Intent, *, decides: bool = True) -> Program:
        """The program of the epoch after ``manifest``, of both boxes if there are two."""
        replacement, request = manifest.replacement, intent.replacement
        if replacement is None and request is None:
            return self.current.program(manifest, intent, decides=decides)
        if replacement is None:
            assert request is not None, "without either there is one box"  # noqa: S101
            replacement = self._begin(manifest, intent, request)
        new = Coordinator(self.new_query(replacement), self.settings)
        begins = manifest.replacement is None
        budget = intent.background_epochs
        old = self._old_query(manifest)
        step = next_box_step(old, manifest, replacement, new.query, budget)
        before = step.replacement.successor
        theirs = new.program(before, intent_of_new_box(intent, step.replacement))
        if replacement.path:
            theirs = replace_field(theirs, output_table="successor", output_path=replacement.path)
        if step.ends:
            alone = ReplacementStep(replacement=step.replacement, program=None)
            return replace_field(theirs, replacement=alone)
        drains = step.is_overdue(old, manifest)
        ours = self.current.program(manifest, intent_of_old_box(intent, drains=drains), decides=False)
        theirs = replace_field(
            theirs,
            result_range=step.new_result_range(theirs.result_range),
            withheld_streams=step.withheld_streams,
            late_rows_elsewhere=frozenset(self.query.names),
            fragment_offset=1 + max(fragment.id for fragment in ours.fragments),
            replay=step.replay(ours),
        )
        both = ReplacementStep(replacement=step.replacement, program=theirs, begins=begins)
        return replace_field(ours, result_range=step.old_result_range(ours.result_range), replacement=both)

    def commit(self, manifest: Manifest, intent: Intent, program: Program, report: Report) -> Manifest:
        """The manifest of the program's epoch, given what all its partitions report."""
        step = program.replacement
        if step is None:
            after = self.current.commit(manifest, intent, program, report)
            # A request that is dropped is applied as well: it must not wait for ever.
            after = replace(after, applied_replacements=intent.applied_replacements)
            return without_handover(self.query, after)
        before = step.replacement.successor
        new = Coordinator(self.new_query(step.replacement), self.settings)
        their_intent = intent_of_new_box(intent, step.replacement)
        if step.program is None:
            after = new.commit(before, their_intent, program, report)
            return manifest_after_end(manifest, intent, step.replacement, after, report)
        ours = self.current.commit(manifest, intent_of_old_box(intent, drains=intent.drains), program, report)
        their_report = report.successor or Report()
        theirs = new.commit(before, their_intent, step.program, their_report)
        return replacement_after(intent, step, ours, theirs, their_report)

    def after(self, manifest: Manifest) -> QueryCoordinator:
        """The coordinator of the epochs after a manifest: of another definition once it has replaced.

        Terms on which that was given at a start since it was asked for hold from then on.
        """
        ended = manifest.ended_replacement
        if ended is None or ended.plan_only:
            return self
        return QueryCoordinator(Coordinator(self._known_or_read(manifest.definition), self.settings))


def _with_results(new: Manifest, old: Manifest, path: str) -> Manifest:
    """The manifest of a new box with the outputs of earlier results where its own go."""
    return replace(new, earlier_outputs=() if path else old.earlier_outputs)

"""The lifecycle of a replacement: its first epoch, those of catching up, those of two boxes, and its end."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as replace_field

from msgspec.structs import replace

from midstream.engine.epoch_filter import EpochSpan
from midstream.engine.program import Program, ReplacementStep, Replay
from midstream.engine.result_time_range import ResultTimeRange
from midstream.migration.strategies import BLACK_BOX_STRATEGIES
from midstream.plan.tree import parse_plan
from midstream.protocol.coordinator import Coordinator
from midstream.protocol.intent import Intent
from midstream.protocol.report import Report
from midstream.protocol.rescaling import places_of
from midstream.query.query import Query
from midstream.replace.handover_time import handover_time, is_done, last_window_end
from midstream.replace.shared_streams import shared_streams
from midstream.state.manifest import EndedReplacement, Manifest, Replacement, Retired
from midstream.state.replacement import ReplacementRequest


@dataclass(frozen=True)
class BoxStep:
    """What both boxes do in one epoch."""

    replacement: Replacement
    """The replacement while the epoch runs, with the new box as it was before."""
    is_live: bool
    """Whether the new box takes new rows."""
    ends: bool
    """Whether it runs alone from now on."""
    replayed: EpochSpan | None = None
    """The epochs whose stored rows it gets."""

    def old_result_range(self, result_range: ResultTimeRange | None) -> ResultTimeRange | None:
        """Which results leave the old box, of those that did; None for all."""
        until = self.replacement.until
        if not self.is_live:
            return result_range
        return (
            ResultTimeRange(is_empty=True)
            if until is None
            else replace_field(result_range or ResultTimeRange(), until=until)
        )

    def new_result_range(self, result_range: ResultTimeRange | None) -> ResultTimeRange | None:
        """Which results leave the new box: none as long as it catches up."""
        return result_range if self.is_live else ResultTimeRange(is_empty=True)

    @property
    def withheld_streams(self) -> frozenset[str]:
        """The streams whose new rows the new box gets later."""
        return frozenset() if self.is_live else frozenset(self.replacement.history)

    def replay(self, old: Program) -> Replay | None:
        """The rows that the new box gets from the old one."""
        span = self.replayed
        if span is None or span.first >= span.end or not self.replacement.history:
            return None
        # Partitions that share a hot key each have all rows of some streams: those must arrive once.
        return Replay(replace_field(old, places=old.places.gathered), self.replacement.history, span)

    def is_overdue(self, old: Query, manifest: Manifest) -> bool:
        """Whether only what spilled groups owe keeps the old box from being done: then it has to be made."""
        until = self.replacement.until
        if not self.is_live or until is None or not manifest.memory.cuts:
            return False
        watermarks = [progress.watermark for progress in manifest.streams.values()]
        end = last_window_end(old, until)
        return all(mark is not None and mark >= end for mark in watermarks)


def initial_replacement(
    manifest: Manifest, request: ReplacementRequest, old: Coordinator, new: Coordinator
) -> Replacement:
    """A replacement before its first epoch."""
    settings = replace_field(new.settings, partitions=places_of(manifest).partitions, shares=())
    first = Coordinator(new.query, settings).initial_manifest(
        manifest.id, parse_plan(request.plan, new.query.names)
    )
    streams = shared_streams(old.query, new.query)
    sources = manifest.sources or old.query.names
    gets_rows = BLACK_BOX_STRATEGIES[request.strategy].history != "none"
    return Replacement(
        number=manifest.replacements + 1,
        strategy=request.strategy,
        start_epoch=manifest.epoch + 1,
        replayed_in=manifest.epoch,
        plan_only=not request.definition,
        path=request.path,
        old_path=request.old_path,
        history=streams if gets_rows else (),
        successor=replace(
            first,
            epoch=manifest.epoch,
            spark_query=manifest.spark_query,
            migrations=manifest.migrations,
            sources=(*sources, *(name for name in new.query.names if name not in sources)),
        ),
    )


def next_box_step(
    old: Query, manifest: Manifest, replacement: Replacement, new: Query, background_epochs: int | None
) -> BoxStep:
    """What both boxes do in the epoch after ``manifest``.

    While the new box catches up, it gets the rows of as many epochs as there is time for in the background,
    and of as many more as have come since it got some last. Epochs whose rows have all expired take no time:
    there are twice as many in a portion as long as nothing is found.
    """
    epoch = manifest.epoch + 1
    if replacement.live_since is not None:
        return BoxStep(replacement, is_live=True, ends=is_done(old, manifest, replacement.until))
    portion = background_epochs
    if BLACK_BOX_STRATEGIES[replacement.strategy].history != "in portions":
        portion = None
    first = _first_stored(manifest, replacement)
    meanwhile = epoch - replacement.replayed_in
    end = epoch
    if portion is not None:
        end = min(epoch, first + max(meanwhile + portion, 2 * replacement.empty_portion))
    if portion == 0 and end < epoch:
        end = replacement.replayed_before
    # Until then it knows of the streams what the old box does, since it sees no rows of theirs.
    marks = manifest.streams
    successor = replacement.successor
    streams = {name: marks.get(name, progress) for name, progress in successor.streams.items()}
    replacement = replace(replacement, successor=replace(successor, streams=streams))
    span = EpochSpan(replacement.replayed_before, end)
    if end < epoch:
        last = epoch if portion else replacement.replayed_in
        caught_up = replace(replacement, replayed_before=end, replayed_in=last)
        return BoxStep(caught_up, is_live=False, ends=False, replayed=span)
    until = handover_time(old, manifest, new, replacement.history)
    # What it has made of rows of streams that were added, while it caught up, has not left.
    latest = [p.latest for n, p in streams.items() if n not in manifest.streams and p.latest is not None]
    until = max([*latest, *([] if until is None else [until])], default=None)
    live = replace(
        replacement,
        replayed_before=epoch,
        live_since=epoch,
        until=until,
        successor=replace(replacement.successor, handed_over=until),
    )
    return BoxStep(live, is_live=True, ends=False, replayed=span)


def _first_stored(manifest: Manifest, replacement: Replacement) -> int:
    """The first epoch, of those that are still to be replayed, whose rows may be stored."""
    first = [
        slice_.first_epoch
        for slice_ in manifest.slices
        if slice_.owner.kind == "index"
        and slice_.owner.state.is_base
        and slice_.last_epoch >= replacement.replayed_before
    ]
    return max(replacement.replayed_before, min(first, default=manifest.epoch + 1))


def intent_of_old_box(intent: Intent, *, drains: bool) -> Intent:
    """What an epoch of two boxes asks of the old one: its plan and its place stay."""
    return replace(
        intent, request=None, verdict=None, waiting=None, measurements=(), drains=intent.drains or drains
    )


def intent_of_new_box(intent: Intent, replacement: Replacement) -> Intent:
    """What an epoch of two boxes asks of the new one.

    It spills nothing while it gets stored rows, which may be older than what spilled groups are cut by.
    """
    before, settings = replacement.successor, intent.settings
    if replacement.live_since in (None, intent.epoch):
        settings = replace_field(settings, memory=None)
    return replace(
        intent_of_old_box(intent, drains=False),
        settings=settings,
        terms=None,
        applied_requests=before.applied_requests,
        applied_rescales=before.applied_rescales,
        partitions=None,
        waiting_partitions=None,
    )


def replacement_after(
    intent: Intent,
    step: ReplacementStep,
    old: Manifest,
    new: Manifest,
    new_report: Report,
) -> Manifest:
    """The manifest of an epoch of two boxes, from those that each would have by itself."""
    assert step.program is not None, "both boxes have run"  # noqa: S101
    replay = step.program.replay
    is_empty = replay is not None and not new_report.work.inserted_rows
    portion = replay.epochs.end - replay.epochs.first if replay is not None and is_empty else 0
    replacement = replace(step.replacement, empty_portion=portion, successor=replace(new, outputs=()))
    return replace(
        old,
        replacement=replacement,
        replacements=step.replacement.number,
        applied_replacements=intent.applied_replacements,
        outputs=(*old.outputs, *new_report.outputs),
        results=old.results + new_report.results,
    )


def manifest_after_end(
    manifest: Manifest, intent: Intent, replacement: Replacement, new: Manifest, report: Report
) -> Manifest:
    """The manifest of the first epoch of the new box alone: what is the query's, it has from the old one."""
    used = {slice_.name for slice_ in new.slices}
    known = {retired.name for retired in new.retired}
    unused = dict.fromkeys(s.name for s in manifest.slices if s.name not in used)
    gone = [Retired(name, new.epoch) for name in unused if name not in known]
    before = [retired for retired in manifest.retired if retired.name not in known | set(unused)]
    assert replacement.live_since is not None, "a box that catches up is not alone"  # noqa: S101
    return replace(
        new,
        initial_plan=manifest.initial_plan,
        spark_query=manifest.spark_query,
        applied_requests=intent.applied_requests,
        applied_rescales=manifest.applied_rescales,
        applied_replacements=intent.applied_replacements,
        replacements=manifest.replacements,
        sources=tuple(name if name in new.streams else "" for name in new.sources),
        waiting_partitions=intent.waiting_partitions or 0,
        epochs_without_batch=manifest.epochs_without_batch + intent.without_batch,
        results=manifest.results + report.results,
        retired=(*new.retired, *before, *gone),
        earlier_outputs=() if replacement.path else manifest.earlier_outputs,
        ended_replacement=EndedReplacement(
            number=replacement.number,
            strategy=replacement.strategy,
            start_epoch=replacement.start_epoch,
            live_since=replacement.live_since,
            until=replacement.until,
            plan_only=replacement.plan_only,
            path=replacement.path,
        ),
    )


def without_handover(query: Query, manifest: Manifest) -> Manifest:
    """The manifest without the hand-over time once no result can come that is up to it."""
    over = manifest.handed_over
    if over is None or not is_done(query, manifest, over):
        return manifest
    return replace(manifest, handed_over=None)

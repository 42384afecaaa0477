"""The coordinator: from a committed manifest to the program of the next epoch, and on to its manifest.

It owns no state. Everything it decides follows from the manifest and the reports, so that a restarted
driver, or the same epoch run again, decides the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from midstream.engine.program import Program
from midstream.errors import CheckpointError, PlanError
from midstream.plan.layout import Layout, lay_out, streams_of
from midstream.plan.tree import Plan, parse_plan
from midstream.protocol.report import Report
from midstream.protocol.settings import Settings, describe, must_agree
from midstream.protocol.watermark import advance_marks
from midstream.query.query import Query
from midstream.state.manifest import Manifest, Retired, StreamMark, digest_of
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
    layout: Layout

    @classmethod
    def of(cls, query: Query, settings: Settings, plan: Plan) -> Coordinator:
        """The coordinator of a query that runs ``plan``."""
        return cls(query, settings, lay_out(query, plan))

    @classmethod
    def resume(cls, query: Query, settings: Settings, manifest: Manifest) -> Coordinator:
        """The coordinator that goes on from a manifest, if its state was made for this query."""
        must_agree(manifest.query, query, settings)
        try:
            plan = parse_plan(manifest.plan, query.names)
        except PlanError as error:
            raise CheckpointError("a manifest must have a plan of its streams", got=error.got) from None
        if set(manifest.streams) != set(query.names):
            raise CheckpointError("a manifest must have a mark for each stream", got=list(manifest.streams))
        for slice_ in manifest.slices:
            owner, streams = slice_.owner, streams_of(slice_.owner.state)
            known = set(streams) <= set(query.names) and 0 <= owner.partition < settings.partitions
            if not known or len(slice_.latest) != len(streams):
                raise CheckpointError("a slice must belong to a state of the query", got=owner)
        return cls.of(query, settings, plan)

    def first_manifest(self, query_id: str) -> Manifest:
        """What holds before the first epoch."""
        return Manifest(
            id=query_id,
            epoch=-1,
            source="",
            query=describe(self.query, self.settings),
            plan=str(self.layout.plan),
            streams={name: StreamMark() for name in self.query.names},
        )

    def program(self, manifest: Manifest) -> Program:
        """The program of the epoch after ``manifest``; slices of which nothing is alive are not in it."""
        watermarks = {name: mark.watermark for name, mark in manifest.streams.items()}
        slices: dict[StateKey, tuple[Slice, ...]] = {}
        for slice_ in _alive(manifest, Purge(self.query.windows, watermarks)):
            slices[slice_.owner] = (*slices.get(slice_.owner, ()), slice_)
        return Program(
            manifest.epoch + 1,
            self.query,
            self.layout,
            self.settings.routing(),
            watermarks,
            slices,
        )

    def commit(self, manifest: Manifest, program: Program, report: Report) -> Manifest:
        """The manifest of the program's epoch, given what all its partitions report."""
        before = [slice_ for owned in program.slices.values() for slice_ in owned]
        merged = set(report.merged)
        slices = (*(s for s in before if s.name not in merged), *report.slices)
        used = {slice_.name for slice_ in slices}
        gone = dict.fromkeys(s.name for s in manifest.slices if s.name not in used)
        retired = [r for r in manifest.retired if r.epoch > program.epoch - RETIRED_KEPT]
        return replace(
            manifest,
            epoch=program.epoch,
            plan=str(program.layout.plan),
            streams=advance_marks(self.query, manifest.streams, report.counts, self.settings.idle_timeout),
            slices=tuple(sorted(slices, key=lambda s: (s.owner, s.lower))),
            retired=(*retired, *(Retired(name, program.epoch) for name in gone)),
            outputs=report.outputs,
            results=manifest.results + report.results,
            previous=digest_of(manifest),
        )


def expendable(before: Manifest, after: Manifest) -> list[str]:
    """Files that were retired long enough ago and that ``after`` does not use.

    Names are digests of contents, so a file may come back into use: what is used is never expendable.
    """
    kept = {slice_.name for slice_ in after.slices} | {r.name for r in after.retired}
    return sorted({r.name for r in before.retired} - kept)


def _alive(manifest: Manifest, purge: Purge) -> list[Slice]:
    return [
        slice_
        for slice_ in manifest.slices
        if not purge.is_dead(streams_of(slice_.owner.state), slice_.latest)
    ]

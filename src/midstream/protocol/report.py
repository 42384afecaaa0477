"""What an engine partition tells the coordinator after its part of an epoch."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from midstream.engine.joiner import WorkCounts
from midstream.engine.key_sample import KeyCounts
from midstream.engine.program import InputCount
from midstream.plan.layout import Side
from midstream.state.manifest import OutputFile
from midstream.state.slices import Slice


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The facts of one engine partition, or of several added up."""

    slices: tuple[Slice, ...] = ()
    merged: tuple[Slice, ...] = ()
    """Slices that new ones replace."""
    outputs: tuple[OutputFile, ...] = ()
    counts: dict[str, InputCount] = msgspec.field(default_factory=dict)
    results: int = 0
    work: WorkCounts = WorkCounts()
    work_by_plan: dict[Side, WorkCounts] = msgspec.field(default_factory=dict)
    """The work of nodes that only the old or only the new plan of a migration has, or both have."""
    keys: dict[str, KeyCounts] = msgspec.field(default_factory=dict)
    """Samples of the keys of new rows, by the streams' key columns."""
    made: dict[str, int] = msgspec.field(default_factory=dict)
    """Rows that each node of the plan has made."""
    millis: dict[str, float] = msgspec.field(default_factory=dict)
    """How long the parts took; of several partitions, the longest."""

    def __add__(self, other: Report) -> Report:
        names = dict.fromkeys([*self.counts, *other.counts])
        none = InputCount()
        sides = dict.fromkeys([*self.work_by_plan, *other.work_by_plan])
        keys = dict.fromkeys([*self.keys, *other.keys])
        made = dict.fromkeys([*self.made, *other.made])
        parts = dict.fromkeys([*self.millis, *other.millis])
        return Report(
            (*self.slices, *other.slices),
            (*self.merged, *other.merged),
            (*self.outputs, *other.outputs),
            {n: self.counts.get(n, none) + other.counts.get(n, none) for n in names},
            self.results + other.results,
            self.work + other.work,
            {
                s: self.work_by_plan.get(s, WorkCounts()) + other.work_by_plan.get(s, WorkCounts())
                for s in sides
            },
            {n: self.keys.get(n, KeyCounts()) + other.keys.get(n, KeyCounts()) for n in keys},
            {s: self.made.get(s, 0) + other.made.get(s, 0) for s in made},
            {n: max(self.millis.get(n, 0.0), other.millis.get(n, 0.0)) for n in parts},
        )


def encode_report(report: Report) -> bytes:
    """A report as it travels to the driver."""
    return msgspec.json.encode(report)


def add_reports(encoded: Iterable[bytes]) -> Report:
    """All partitions' reports as one."""
    reports = [msgspec.json.decode(data, type=Report) for data in encoded]
    return sum(reports, Report())

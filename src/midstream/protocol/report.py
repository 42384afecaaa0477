"""What an engine partition tells the coordinator after its part of an epoch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from midstream.engine.key_sample import KeyCounts
from midstream.engine.program import StreamCounts
from midstream.engine.work import WorkCounts
from midstream.plan.handover import PlanSide
from midstream.plan.state_id import StateId, decode_state_id, encode_state_id
from midstream.state.manifest import OutputFile
from midstream.state.slices import Slice

K = TypeVar("K")
V = TypeVar("V")


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The report of one engine partition, or of several added up."""

    slices: tuple[Slice, ...] = ()
    replaced: tuple[Slice, ...] = ()
    """Slices that new ones replace."""
    outputs: tuple[OutputFile, ...] = ()
    counts: dict[str, StreamCounts] = msgspec.field(default_factory=dict)
    results: int = 0
    work: WorkCounts = WorkCounts()
    work_by_plan: dict[PlanSide, WorkCounts] = msgspec.field(default_factory=dict)
    """The work of nodes that only the old or only the new plan of a migration has, or both have."""
    keys: dict[str, KeyCounts] = msgspec.field(default_factory=dict)
    """Samples of the keys of new rows, by the streams' key columns."""
    produced: dict[StateId, int] = msgspec.field(default_factory=dict)
    """Rows that the nodes of the plan have produced of each state."""
    millis: dict[str, float] = msgspec.field(default_factory=dict)
    """How long the parts took; of several partitions, the longest."""

    def __add__(self, other: Report) -> Report:
        return Report(
            slices=(*self.slices, *other.slices),
            replaced=(*self.replaced, *other.replaced),
            outputs=(*self.outputs, *other.outputs),
            counts=_merge(self.counts, other.counts, operator.add),
            results=self.results + other.results,
            work=self.work + other.work,
            work_by_plan=_merge(self.work_by_plan, other.work_by_plan, operator.add),
            keys=_merge(self.keys, other.keys, operator.add),
            produced=_merge(self.produced, other.produced, operator.add),
            millis=_merge(self.millis, other.millis, max),
        )


def _merge(left: dict[K, V], right: dict[K, V], combine: Callable[[V, V], V]) -> dict[K, V]:
    """Two dictionaries as one; values of keys that both have are combined."""
    return left | {k: combine(left[k], value) if k in left else value for k, value in right.items()}


def encode_report(report: Report) -> bytes:
    """A report as it travels to the driver."""
    return msgspec.json.encode(report, enc_hook=encode_state_id)


def add_reports(encoded: Iterable[bytes]) -> Report:
    """All partitions' reports as one."""
    reports = [msgspec.json.decode(data, type=Report, dec_hook=decode_state_id) for data in encoded]
    return sum(reports, Report())

"""What an engine partition tells the coordinator after its part of an epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TypeVar

import msgspec

from midstream.engine.key_sample import KeyCounts
from midstream.engine.link_traffic import LinkName, LinkTraffic, add_links
from midstream.engine.program import StreamCounts
from midstream.engine.work import WorkCounts
from midstream.plan.fragment_name import FragmentName
from midstream.plan.handover import PlanSide
from midstream.plan.state_id import StateId, decode_state_id, encode_state_id
from midstream.state.costs import MeasuredPart
from midstream.state.manifest import OutputFile
from midstream.state.slices import Slice

K = TypeVar("K")
V = TypeVar("V")


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The report of one engine partition, or of several."""

    slices: tuple[Slice, ...] = ()
    replaced: tuple[Slice, ...] = ()
    """Slices that new ones replace."""
    outputs: tuple[OutputFile, ...] = ()
    counts: dict[str, StreamCounts] = msgspec.field(default_factory=dict)
    results: int = 0
    work: WorkCounts = WorkCounts()
    work_by_plan: dict[PlanSide, WorkCounts] = msgspec.field(default_factory=dict)
    """The work of nodes that only the old or only the new plan of a migration has, or both have."""
    unplaced_work: WorkCounts = WorkCounts()
    """The work of fragments that no key places: of all partitions one does it, and the others wait."""
    steps: int = 0
    """How many fragments were run, in how many partitions."""
    keys: dict[str, KeyCounts] = msgspec.field(default_factory=dict)
    """Samples of the keys of new rows, by the streams' key columns."""
    produced: dict[StateId, int] = msgspec.field(default_factory=dict)
    """Rows that the nodes of the plan have produced of each state."""
    flows: dict[FragmentName, bytes] = msgspec.field(default_factory=dict)
    """From which groups, and to which, rows have left fragments (``engine/group_counts.py``)."""
    partition_work: dict[int, float] = msgspec.field(default_factory=dict)
    """The work of each engine partition, in units."""
    touched_bytes: int = 0
    """The size of the slices that were opened."""
    links: dict[LinkName, LinkTraffic] = msgspec.field(default_factory=dict)
    """What was sent from one site to another, if streams live at sites."""
    elsewhere: dict[LinkName, int] = msgspec.field(default_factory=dict)
    """Tasks that did not run at their site: from where they should have run to where they did."""
    millis: dict[str, float] = msgspec.field(default_factory=dict)
    """How long the parts took; of several tasks, the longest."""
    cpu_seconds: dict[MeasuredPart, float] = msgspec.field(default_factory=dict)
    """Time of the processor that parts took, in all tasks together; nothing if it was not measured."""
    received_rows: int = 0
    """Rows that were passed on to the tasks."""
    receives: int = 0
    """How many tasks received them."""
    stage_times: dict[int, tuple[float, float]] = msgspec.field(default_factory=dict)
    """By stage: when its first task began and its last one ended, by the clocks of their machines."""
    successor: Report | None = None
    """What the new box reports, while it runs beside the old one; tasks report of one box at a time."""


def merge_reports(reports: Sequence[Report]) -> Report:
    """Several reports as one, in time that follows their size, not the square of their number."""
    if len(reports) == 1:
        return reports[0]
    return Report(
        slices=tuple(chain.from_iterable(report.slices for report in reports)),
        replaced=tuple(chain.from_iterable(report.replaced for report in reports)),
        outputs=tuple(chain.from_iterable(report.outputs for report in reports)),
        counts=_merge((report.counts for report in reports), lambda counts: sum(counts, StreamCounts())),
        results=sum(report.results for report in reports),
        work=sum((report.work for report in reports), WorkCounts()),
        work_by_plan=_merge(
            (report.work_by_plan for report in reports), lambda work: sum(work, WorkCounts())
        ),
        unplaced_work=sum((report.unplaced_work for report in reports), WorkCounts()),
        steps=sum(report.steps for report in reports),
        keys=_merge((report.keys for report in reports), KeyCounts.merge),
        produced=_merge((report.produced for report in reports), sum),
        flows=_merge((report.flows for report in reports), b"".join),
        partition_work=_merge((report.partition_work for report in reports), sum),
        links=_merge((report.links for report in reports), add_links),
        elsewhere=_merge((report.elsewhere for report in reports), sum),
        touched_bytes=sum(report.touched_bytes for report in reports),
        millis=_merge((report.millis for report in reports), max),
        cpu_seconds=_merge((report.cpu_seconds for report in reports), math.fsum),
        received_rows=sum(report.received_rows for report in reports),
        receives=sum(report.receives for report in reports),
        stage_times=_merge((report.stage_times for report in reports), _whole_span),
    )


def _merge(parts: Iterable[dict[K, V]], combine: Callable[[list[V]], V]) -> dict[K, V]:
    """Several dictionaries as one; the values of a key are combined.

    Most reports say nothing of most things, and then there is nothing to combine.
    """
    filled = [part for part in parts if part]
    if len(filled) < 2:
        return filled[0] if filled else {}
    values: dict[K, list[V]] = {}
    for part in filled:
        for key, value in part.items():
            values.setdefault(key, []).append(value)
    return {key: combine(each) for key, each in values.items()}


def _whole_span(spans: list[tuple[float, float]]) -> tuple[float, float]:
    return min(begin for begin, _ in spans), max(end for _, end in spans)


def encode_report(report: Report) -> bytes:
    """A report as it travels to the driver."""
    return msgspec.json.encode(report, enc_hook=encode_state_id)


def add_reports(encoded: Iterable[bytes]) -> Report:
    """The reports of all tasks as one."""
    return merge_reports([_DECODER.decode(data) for data in encoded])


_DECODER = msgspec.json.Decoder(Report, dec_hook=decode_state_id)

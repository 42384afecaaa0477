"""The part of the progress of an epoch that is about memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from midstream.memory.decision import owing_groups
from midstream.memory.next_step import memory_context
from midstream.memory.sizes import stored_bytes
from midstream.protocol.json_time import show_event_time
from midstream.protocol.report import Report
from midstream.protocol.rescaling import places_of
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.memory import Memory


@dataclass(frozen=True, kw_only=True)
class MemoryProgress:
    """How much state is active, and what is owed, after an epoch."""

    touched_bytes: int = 0
    """The size of the slices that the epoch has opened."""
    busiest_partition_bytes: int | None = None
    """Active bytes of the partition that has most, which is what ``stateMemory`` limits; None if that is
    not known: without a budget, rows of slices that partitions share are not counted by group."""
    spilled_bytes: int = 0
    owed_groups: int = 0
    """The spilled groups that may owe something."""
    owed_rows: int = 0
    """Their rows that are not probed."""
    owed_since: int | None = None
    """The newest event time when the first of them was spilled."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "busiestPartitionBytes": self.busiest_partition_bytes,
            "owedGroups": self.owed_groups,
            "owedRows": self.owed_rows,
            "owedSince": show_event_time(self.owed_since),
        }


def memory_progress(query: Query, manifest: Manifest, report: Report) -> MemoryProgress:
    """How much state is active after an epoch, and what is owed."""
    memory, places = manifest.memory, places_of(manifest)
    if memory == Memory():
        stored = stored_bytes(manifest.slices, places)
        busiest = max(stored) if stored is not None else None
        return MemoryProgress(touched_bytes=report.touched_bytes, busiest_partition_bytes=busiest)
    context = memory_context(query, manifest, places)
    sizes = context.sizes(manifest.slices)
    spilled = [sizes.fragments[fragment] for fragment in memory.cuts]
    owing = owing_groups(context, sizes)
    first = min((memory.cuts[f][group][0] for f, groups in owing.items() for group in groups), default=None)
    return MemoryProgress(
        touched_bytes=report.touched_bytes,
        busiest_partition_bytes=round(max(sizes.active)),
        spilled_bytes=round(sum(float((f.total - f.active).clip(0).sum()) for f in spilled)),
        owed_groups=sum(len(groups) for groups in owing.values()),
        owed_rows=round(
            sum(float(sizes.fragments[f].spilled_rows[groups].sum()) for f, groups in owing.items())
        ),
        owed_since=memory.marks[first].latest if first is not None else None,
    )

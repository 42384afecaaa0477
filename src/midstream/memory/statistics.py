"""Statistics of groups: what each has produced lately, traced to results through the fragments above.

A fragment counts how many of its rows go from which of its groups to which group of the fragment above, from
a sample. The results of a group above are due to the groups below in proportion to the rows that these sent
it. So every result counts for one group of each fragment, as if it had been traced back by its keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from midstream.adapt.statistics import decay_seconds
from midstream.engine.group_counts import GroupFigures, read_flows, sums_by_group
from midstream.memory.sizes import GroupSizes, bytes_per_row
from midstream.plan.fragment_name import FragmentName, fragment_name, fragment_output
from midstream.plan.layout import Layout
from midstream.plan.state_id import StateId
from midstream.query.query import Query
from midstream.state.memory import GroupStatistics
from midstream.state.slices import Slice

_FIGURE = np.dtype("<f4")


@dataclass(frozen=True)
class GroupOutput:
    """What the groups of a fragment have produced, faded."""

    rows: GroupFigures
    """Rows that the fragment produced."""
    results: GroupFigures
    """Results that these were part of."""
    stored_bytes: GroupFigures
    """Bytes that these take in states of the fragments above."""
    intermediate: GroupFigures
    """How many bytes intermediate states have for each byte of the inputs."""

    def __add__(self, other: GroupOutput) -> GroupOutput:
        return GroupOutput(
            self.rows + other.rows,
            self.results + other.results,
            self.stored_bytes + other.stored_bytes,
            self.intermediate + other.intermediate,
        )

    def times(self, factor: float) -> GroupOutput:
        """All figures multiplied."""
        columns = (self.rows, self.results, self.stored_bytes, self.intermediate)
        return GroupOutput(*(column * factor for column in columns))

    @staticmethod
    def none(groups: int) -> GroupOutput:
        """Nothing produced."""
        return GroupOutput(*(np.zeros(groups) for _ in range(4)))

    def write(self) -> GroupStatistics:
        """The figures for the manifest."""
        columns = (self.rows, self.results, self.stored_bytes, self.intermediate)
        return GroupStatistics(*(column.astype(_FIGURE).tobytes() for column in columns))


def read_statistics(statistics: GroupStatistics | None, groups: int) -> GroupOutput:
    """The figures of a fragment from the manifest."""
    if statistics is None:
        return GroupOutput.none(groups)
    columns = (statistics.rows, statistics.results, statistics.stored_bytes, statistics.intermediate)
    figures = (np.frombuffer(column, _FIGURE).astype(np.float64) for column in columns)
    return GroupOutput(*(figure if len(figure) else np.zeros(groups) for figure in figures))


def with_intermediate(
    before: Mapping[FragmentName, GroupStatistics], sizes: GroupSizes
) -> dict[FragmentName, GroupStatistics]:
    """The statistics before an epoch, with what intermediate states have of each group.

    Of a spilled group they have only rows of its newest generation, so less than for the whole: what was
    known before counts until it has faded. By then all older rows have expired.
    """
    after = dict(before)
    for name, of in sizes.fragments.items():
        if of.intermediate.any():
            known = read_statistics(before.get(name), len(of.active))
            share = of.intermediate / np.maximum(of.active - of.intermediate, 1.0)
            after[name] = replace(known, intermediate=np.maximum(share, known.intermediate)).write()
    return after


def update_statistics(
    query: Query,
    layout: Layout,
    before: Mapping[FragmentName, GroupStatistics],
    flows: Mapping[FragmentName, bytes],
    slices: Iterable[Slice],
    *,
    groups: int,
    seconds: float,
) -> dict[FragmentName, GroupStatistics]:
    """The statistics after an epoch of the running plan alone, in which ``seconds`` of event time passed."""
    decay = math.exp(-seconds / decay_seconds(query))
    sent = {fragment_output(fragment) for fragment in layout.fragments} - {layout.root}
    produced = _produced(layout, flows, bytes_per_row(slices, sent), groups)
    after = {}
    for name, output in produced.items():
        after[name] = (read_statistics(before.get(name), groups).times(decay) + output).write()
    return after


def _produced(
    layout: Layout, flows: Mapping[FragmentName, bytes], row_bytes: Mapping[StateId, float], groups: int
) -> dict[FragmentName, GroupOutput]:
    """What each group has produced in one epoch; fragments above come first."""
    produced: dict[FragmentName, GroupOutput] = {}
    for fragment in reversed(layout.fragments):
        name, output = fragment_name(fragment), fragment_output(fragment)
        sources, targets, rows = read_flows(flows.get(name, b""))
        made = sums_by_group(sources, rows, groups)
        if output == layout.root:
            produced[name] = replace(GroupOutput.none(groups), rows=made, results=made)
            continue
        above = produced[fragment_name(layout.fragment_of_input[output])]
        shares = rows / np.maximum(sums_by_group(targets, rows, groups)[targets], 1.0)
        results = sums_by_group(sources, shares * above.results[targets], groups)
        stored = sums_by_group(sources, shares * above.stored_bytes[targets], groups)
        stored += made * row_bytes[output]
        produced[name] = replace(GroupOutput.none(groups), rows=made, results=results, stored_bytes=stored)
    return produced

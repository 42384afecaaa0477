"""Cleanup: making what spilled groups owe, and rebuilding the states of groups that come back.

Generations take the role of epochs in the delta rule. The rows of input i are joined with the rows of no
later generation of the inputs before i, and with the rows of earlier generations of the inputs after i. So
every combination whose rows are of several generations is found exactly once. Those whose rows are all of one
were made when these arrived, and are left out.

The rows of a group are brought together first, from whatever slices they are in: so they are searched once,
and what a cleanup costs does not depend on the number of slices and generations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from midstream.engine.generations import GenerationFilter, Generations
from midstream.engine.hashing import group_bounds
from midstream.engine.index_rows import IndexRows, in_groups, in_time_order, merge_rows
from midstream.engine.joiner import Joiner, OpenRuns
from midstream.engine.memory_step import Cleanup
from midstream.engine.probed_epochs import Mask, ProbedEpochs
from midstream.engine.work import WorkCounts
from midstream.plan.layout import Node
from midstream.plan.state_id import StateId

_ROWS_AT_ONCE = 1 << 18
"""Groups are joined some at a time, with about so many rows of all inputs, so that few are in memory."""

_Choice = Callable[[IndexRows], Mask]


def owed_rows(joiner: Joiner, cleanup: Cleanup, groups: int, open_runs: OpenRuns) -> Iterator[IndexRows]:
    """The combinations of several of the generations that become one."""
    node = cleanup.node
    become_one = ProbedEpochs.between(groups, {g: (0, of[-1]) for g, of in cleanup.generations.items()})
    runs = {head: list(open_runs(head, _key(node, head), become_one.may_have_rows)) for head in node.inputs}
    # Which rows are joined follows from their generations.
    joiner = replace(joiner, probed={})
    for chosen in _batches(runs, sorted(cleanup.generations), groups):
        generations = Generations.of(groups, {group: cleanup.generations[group] for group in chosen})
        stored = {
            head: _brought_together(joiner, runs[head], chosen, groups, become_one.is_probed)
            for head in node.inputs
        }
        for i in range(len(node.inputs)):
            rows = _join_generations(joiner, node, i, stored, generations)
            if rows is not None:
                yield rows


def restored_rows(
    joiner: Joiner, node: Node, restored: Sequence[int], groups: int, open_runs: OpenRuns
) -> IndexRows | None:
    """All rows of a node, of groups that come back, that may still be in a result."""

    def live(state: StateId) -> IndexRows | None:
        probed = joiner.probed.get(state)

        def is_of_use(rows: IndexRows) -> Mask:
            live = joiner.expiry.is_live(rows.times)
            return live if probed is None else live & probed.is_probed(rows)

        runs = open_runs(state, _key(node, state), joiner.searched(state, lambda _slice: True))
        return _brought_together(joiner, runs, restored, groups, is_of_use)

    rows = live(node.inputs[0])
    for probe in node.probes[0]:
        found = live(probe.input) if rows is not None else None
        if rows is None or found is None:
            return None
        rows = joiner.extend(rows, probe, [found])
    return rows


def _join_generations(
    joiner: Joiner,
    node: Node,
    first: int,
    stored: dict[StateId, IndexRows | None],
    generations: Generations,
) -> IndexRows | None:
    """What rows of an input owe to those of no later generations of other inputs."""
    head = node.inputs[first]
    rows = stored[head]
    # Rows of the first generation have only rows of their own to be joined with.
    rows = None if rows is None else rows.take(generations.numbers(rows, head) > 0)
    for number, probe in enumerate(node.probes[first], start=2):
        found = stored[probe.input]
        if rows is None or found is None:
            return None
        is_joined = GenerationFilter(
            generations,
            head,
            generations.numbers(found, probe.input),
            is_earlier=node.inputs.index(probe.input) > first,
            differs=number == len(node.inputs),
        )
        rows = joiner.extend(rows, probe, [found], is_joined=is_joined)
    return rows


def _brought_together(
    joiner: Joiner, runs: Sequence[IndexRows], chosen: Sequence[int], groups: int, is_of_use: _Choice
) -> IndexRows | None:
    """The rows of some groups that are of use, from all runs, to be searched; None if there are none."""
    parts = []
    for run in runs:
        rows = in_groups(run, chosen, groups)
        joiner.record(WorkCounts(scanned_rows=len(rows)))
        of_use = rows.take(is_of_use(rows))
        parts += [of_use] if len(of_use) else []
    return in_time_order(merge_rows(parts)) if parts else None


def _batches(
    runs: dict[StateId, list[IndexRows]], chosen: Sequence[int], groups: int
) -> Iterator[Sequence[int]]:
    """The groups, some at a time."""
    first, last = group_bounds(chosen, groups)
    rows = np.zeros(len(chosen), np.int64)
    for run in (run for of_input in runs.values() for run in of_input):
        rows += np.searchsorted(run.hashes, last, side="right") - np.searchsorted(run.hashes, first)
    batch = np.cumsum(rows) // _ROWS_AT_ONCE
    for groups_of_one in np.split(np.array(chosen), np.flatnonzero(np.diff(batch)) + 1):
        yield groups_of_one.tolist()


def _key(node: Node, state: StateId) -> tuple[int, ...]:
    """A key by which an input of a node is arranged."""
    return next(probe.key for probes in node.probes for probe in probes if probe.input == state)

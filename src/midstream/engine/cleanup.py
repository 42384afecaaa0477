"""Cleanup: making what spilled groups owe, and rebuilding the states of groups that come back.

Generations take the role of epochs in the delta rule. For the second generation, and each after it: its rows
of input i are joined with the rows up to this generation of the inputs before i, and with the rows before
this generation of the inputs after i. So every combination whose rows are of several generations is found
exactly once. Those whose rows are all of one were made when these arrived, and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from midstream.engine.index_rows import IndexRows, in_groups, merge_rows
from midstream.engine.joiner import Joiner, OpenRuns
from midstream.engine.memory_step import Cleanup
from midstream.engine.probed_rows import ProbedRows
from midstream.engine.work import WorkCounts
from midstream.plan.layout import Node
from midstream.plan.state_id import StateId
from midstream.state.slices import Slice


def owed_rows(
    joiner: Joiner, cleanup: Cleanup, groups: int, scan: OpenRuns, open_runs: OpenRuns
) -> Iterator[IndexRows]:
    """The combinations of several of the generations that become one.

    ``scan`` opens runs with nothing but rows of this partition, ``open_runs`` those to be searched.
    """
    node, probed = cleanup.node, joiner.probed
    for number in range(1, max(map(len, cleanup.generations.values()))):
        # Groups with fewer generations are done.
        bounds = {g: of_group for g, of_group in cleanup.generations.items() if number < len(of_group)}
        before = ProbedRows.between(groups, {g: (0, of[number - 1]) for g, of in bounds.items()})
        this = ProbedRows.between(groups, {g: (of[number - 1], of[number]) for g, of in bounds.items()})
        until = ProbedRows.between(groups, {g: (0, of[number]) for g, of in bounds.items()})
        for i, head in enumerate(node.inputs):
            joiner.probed = {s: until if j < i else before for j, s in enumerate(node.inputs)}
            joiner.probed[head] = this
            scanned = _scan(joiner, head, node, bounds, this, groups, scan)
            rows = _join(joiner, node, i, scanned, open_runs)
            if rows is not None and i == len(node.inputs) - 1:
                # Only the last input is joined with nothing but rows up to this generation.
                rows = rows.take(~this.is_probed(rows))
            if rows is not None and len(rows):
                yield rows
    joiner.probed = probed


def restored_rows(
    joiner: Joiner, node: Node, restored: Sequence[int], groups: int, scan: OpenRuns, open_runs: OpenRuns
) -> IndexRows | None:
    """All rows of a node, of groups that come back, that may still be in a result."""
    head = node.inputs[0]
    scanned = _scan(joiner, head, node, restored, joiner.probed.get(head), groups, scan)
    live = None if scanned is None else scanned.take(joiner.expiry.is_live(scanned.times))
    return _join(joiner, node, 0, live, open_runs, live_only=True)


def _join(
    joiner: Joiner,
    node: Node,
    first: int,
    rows: IndexRows | None,
    open_runs: OpenRuns,
    *,
    live_only: bool = False,
) -> IndexRows | None:
    for probe in node.probes[first]:
        if rows is None:
            break
        runs = open_runs(probe.input, probe.key, joiner.searched(probe.input, _any_slice))
        rows = joiner.extend(rows, probe, runs, live_only=live_only)
    return rows


def _scan(
    joiner: Joiner,
    head: StateId,
    node: Node,
    chosen: Iterable[int],
    probed: ProbedRows | None,
    groups: int,
    open_runs: OpenRuns,
) -> IndexRows | None:
    """The rows of an input, of some groups, that are probed; all of them if that is None."""
    key = next(probe.key for probes in node.probes for probe in probes if probe.input == head)
    scanned = []
    for run in open_runs(head, key, joiner.searched(head, _any_slice)):
        rows = in_groups(run, sorted(chosen), groups)
        joiner.record(WorkCounts(scanned_rows=len(rows)))
        rows = rows if probed is None else rows.take(probed.is_probed(rows))
        scanned += [rows] if len(rows) else []
    return merge_rows(scanned) if scanned else None


def _any_slice(_slice: Slice) -> bool:
    return True

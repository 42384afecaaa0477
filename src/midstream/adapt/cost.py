"""What a plan costs, in one unit: the time of one probe, some fifty billionths of a second.

The same weights turn what a running plan did, as its tasks count it, into the same unit, so that
estimates can be held against what came of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from midstream.adapt.estimate import Estimator, Streams
from midstream.engine.work import WorkCounts
from midstream.plan.layout import Fragment, Layout, Node
from midstream.plan.state_id import StateId

PROBE = 1.0
MATCH = 1.0
"""A row of the state with the hash that was looked for."""
EXPIRED_MATCH_FACTOR = 1.5
"""So many times as many are found as are alive: a slice leaves as a whole."""
ROW = 2.0
"""A combined row."""
INSERT = 4.0
"""A row that is put into a state: sorted, written, and merged with others later."""
HELD = 0.002
"""A byte of state for a second: what is held must be searched, merged and kept in memory."""
SENT = 20.0
"""A row that is shuffled to another stage."""
STAGE = 1_000_000.0
"""A stage more in the job of an epoch: some fifty thousandths of a second."""
INDEX_BYTES = 8.0
"""What a row in a state takes for its hash, and for each stream its reference and its time."""


@dataclass(frozen=True)
class Cost:
    """What a plan costs in a second of event time, by what the time goes into."""

    probes: float = 0.0
    matches: float = 0.0
    rows: float = 0.0
    inserts: float = 0.0
    held: float = 0.0
    sent: float = 0.0
    stages: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return float(sum(getattr(self, part.name) for part in fields(self)))

    def times(self, factor: float) -> Cost:
        """So many times as much."""
        return Cost(*(getattr(self, part.name) * factor for part in fields(self)))

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))


def cost_of(layout: Layout, estimator: Estimator, partitions: int) -> Cost:
    """What a plan costs."""
    total = Cost(stages=STAGE * (layout.stages - 1) * estimator.epochs())
    for fragment in layout.fragments:
        here = Cost()
        for node in fragment.nodes:
            here += node_cost(node, estimator)
        for state, keys in fragment.arrangements.items():
            here += _state_cost(fragment, state, len(keys), estimator)
        for fragment_input in fragment.inputs:
            # Rows for a later stage pass through the earlier ones.
            hops = 1 if not fragment_input.is_stream else 1 + fragment.stage
            here += Cost(sent=SENT * hops * estimator.rate(fragment_input.streams))
        # Without a key all rows are in one partition, and the others wait.
        total += here.times(1 if fragment.key else partitions)
    return total


def node_cost(node: Node, estimator: Estimator) -> Cost:
    """What the probes of a node cost."""
    total = Cost()
    for mine, seen, other in probings(node):
        # Of the rows that are made, the head has the newest component in its share.
        going, found = (estimator.rate(s) * len(mine) / len(s) for s in (seen, seen | other))
        total += probing_cost(going, found, other, estimator)
    return total


def probings(node: Node) -> Iterator[tuple[Streams, Streams, Streams]]:
    """All steps of a node: the streams of new rows, of what they have become, and of what they probe next."""
    for head, order in zip(node.inputs, node.probes, strict=True):
        mine = seen = frozenset(head.streams)
        for probe in order:
            other = frozenset(probe.input.streams)
            yield mine, seen, other
            seen |= other


def probing_cost(going: float, found: float, other: Streams, estimator: Estimator) -> Cost:
    """What it costs if rows search a state, and so many are made of them."""
    # A joined row is dead once its oldest component is, but is found until its newest one is.
    return Cost(
        PROBE * going * estimator.runs(other), MATCH * EXPIRED_MATCH_FACTOR * found * len(other), ROW * found
    )


def _state_cost(fragment: Fragment, state: StateId, arrangements: int, estimator: Estimator) -> Cost:
    streams = state.streams
    size = INDEX_BYTES * (1 + 2 * len(streams)) * arrangements
    # Joined rows that enter from below bring their payload along; others only refer to it.
    size += estimator.row_bytes(streams) if state in fragment.inputs_by_id else 0.0
    return Cost(
        inserts=INSERT * arrangements * estimator.rate(streams), held=HELD * size * estimator.held(streams)
    )


def work_in_units(work: WorkCounts) -> float:
    """What tasks have done, in the same unit."""
    return (
        PROBE * work.probes
        + MATCH * work.candidates
        + ROW * work.intermediate_rows
        + INSERT * work.inserted
        + SENT * work.sent
    )

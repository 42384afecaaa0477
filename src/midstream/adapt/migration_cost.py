"""The price of a migration, by each strategy, beyond what the new plan costs anyway.

Moving state computes all that is missing at once. The others run two plans side by side, and what that
costs changes as old rows expire: so the way is gone through in steps, with the same hand-over tables that the
migration will have, from which follows the share of its rows that each plan makes. What the new plan cannot
make yet, it saves: a migration may cost less than nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf, prod
from types import MappingProxyType

from midstream.adapt.cost import INSERT, SENT, cost_of, probing_cost, probings
from midstream.adapt.estimate import Estimator, Streams
from midstream.adapt.statistics import half_window
from midstream.migration.combined_layout import copies_of
from midstream.migration.handover import ReplacedSubplan, complete, first_tables, replaced_subplans
from midstream.migration.state_match import StateMatch, match_states
from midstream.plan.build_layout import build_layout
from midstream.plan.handover import needs_future_rows
from midstream.plan.layout import Layout, Node
from midstream.plan.state_id import StateId
from midstream.plan.tree import Plan
from midstream.state.migration import HandoverEntry, HandoverTables

# A window is gone through in so many steps at most; epoch by epoch if it has fewer.
_STEPS = 16
# Background work goes on until the oldest slice is through, and slices are merged: by the rules of compaction
# the oldest one has, on average, this part of a window of rows that have expired.
_OVERHANG = 1 / 3
# If epochs take up to so many times as long as ever, nobody minds.
UNNOTICEABLE_SLOWDOWN = 1.1


@dataclass(frozen=True)
class MigrationCost:
    """What a migration costs by one strategy."""

    strategy: str
    background: bool
    work: float
    """All of its work; below zero if the two plans together do less than the new one will."""
    seconds: float
    """How long it lasts, in event time."""
    worst: float
    """How much an epoch takes where it takes most, in epochs of the plan that runs now."""
    isolated: bool = False
    """Whether a hybrid begins without any rows, and leaves all that has an old one to the old plan."""
    delays: bool = False
    """Whether results wait for its end."""


def migration_costs(old: Layout, plan: Plan, estimator: Estimator) -> list[MigrationCost]:
    """What it would cost to go from one plan to another."""
    way = _MigrationSimulation(old, match_states(old, build_layout(estimator.query, plan), 0), estimator)
    at_once = way.shipped + sum(way.whole(state, _everything) for state in sorted(way.found.empty))
    moving = MigrationCost("moving_state", False, at_once, 0.0, way.slowdown(at_once))
    if not way.expires:
        # Nothing old ever goes, and only background work brings a migration to its end.
        return [way.hybrid(background=True), moving]
    sharing = [way.hybrid(background=False), way.hybrid(background=True)]
    return [*sharing, way.isolated("hybrid"), moving, way.isolated("parallel_track")]


_Share = Callable[[Streams, str], float]
"""Of rows with these streams, the newest component being of this one: the share that a plan makes."""


def _everything(*_: object) -> float:
    return 1.0


class _MigrationSimulation:
    """The way from one plan to another, gone through step by step."""

    def __init__(self, old: Layout, found: StateMatch, estimator: Estimator) -> None:
        window = 2 * half_window(estimator.query)
        self.expires = window < inf
        # Without a window, states have rows of all the time since the first statistics.
        self.window = window if self.expires else max(estimator.statistics.elapsed, 1.0)
        epochs = max(1.0, self.window * estimator.epochs())
        self.steps = min(_STEPS, round(epochs))
        self.fading = 1 / self.steps if self.expires else 0.0
        self.epochs_in_step = epochs / self.steps
        self.epoch = self.window / epochs
        self.found = found
        self.new = new = found.layout
        self.before, self.after = (cost_of(layout, estimator, 1).total for layout in (old, new))
        self.estimator = estimator
        shipped = ((SENT + INSERT) * estimator.rows(m.target.streams) for m in found.moves)
        self.shipped = sum(shipped, 0.0)
        self.shared = old.states & new.states
        self.tasks = replaced_subplans(old, new, self.shared)
        self.sent = old.fragment_of_input.keys() | new.fragment_of_input.keys()
        self.nodes = {node.id: node for fragment in new.fragments for node in fragment.nodes}
        # Streams that the new plan wants elsewhere come in twice as long as both plans run.
        own = (s for s in old.fragment_of_input if s.is_base and s not in new.states)
        self.twice = sum(((SENT + INSERT) * estimator.rate(s.streams) for s in own), 0.0)

    def slowdown(self, work: float) -> float:
        """How long an epoch takes with so much work beyond that of the new plan."""
        return max(UNNOTICEABLE_SLOWDOWN, (work / self.epoch + self.after) / max(self.before, 1e-9))

    def hybrid(self, *, background: bool) -> MigrationCost:
        """Both plans on what they share; the old one makes only what the new one cannot."""
        tables = first_tables(self.tasks, self.found.empty, {}, 0)
        computed: dict[StateId, int] = {}
        work, worst, step = self.shipped, self.shipped, 0
        while any(tables.values()) and (step < self.steps or not self.expires):
            here = self._both(tables, step, early=True)
            if background:
                # At the least pace there is: with each epoch, an epoch's worth, the newest rows first.
                lowest = min((e for t in tables.values() for e in t), key=lambda e: (len(e.bounds), e.state))
                state, stream = lowest.state, min(lowest.bounds, key=lambda s: lowest.bounds[s])
                computed[state] = computed.get(state, lowest.bounds[stream]) - 1
                oldest = (step if self.expires else 0) - self.steps
                if computed[state] >= oldest:
                    here += self.whole(state, partial(self._piece, lowest.bounds, stream, step))
                if computed[state] <= oldest + (1 - self.steps * _OVERHANG if self.expires else 0):
                    tables = complete(tables, self.new, state, step + 1)
            work += here
            # States are shipped with the first epoch.
            worst = max(worst, here / self.epochs_in_step + (0.0 if step else self.shipped))
            step += 1
        return MigrationCost(
            "hybrid", background, work, self.window * step / self.steps, self.slowdown(worst)
        )

    def isolated(self, strategy: str) -> MigrationCost:
        """The old plan makes all that has an old row; the plans have nothing in common but what comes in."""
        delays = strategy == "parallel_track"
        copies = copies_of(self.tasks, self.shared, 0)
        empty = self.found.empty | set(copies.values()) | {move.target for move in self.found.moves}
        tables = first_tables(self.tasks, empty, copies, 0)
        kept = sum(INSERT * self.estimator.rate(s.streams) for s in copies) * self.window / self.steps
        each = [kept + self._both(tables, step, early=not delays) for step in range(self.steps)]
        worst = self.slowdown(max(each) / self.epochs_in_step)
        return MigrationCost(
            strategy, False, sum(each), self.window, worst, isolated=not delays, delays=delays
        )

    def whole(self, state: StateId, part: Callable[[Streams], float]) -> float:
        """What it costs to compute a state, or a part of it: its share of the rows with some streams."""
        node, cost = self.nodes[state], 0.0
        for mine, seen, other in probings(node):
            if mine != frozenset(node.inputs[0].streams):
                break
            going, found = (self.estimator.rows(streams) * part(streams) for streams in (seen, seen | other))
            cost += probing_cost(going, found, other, self.estimator).total
        whole = frozenset(state.streams)
        return cost + INSERT * self.estimator.rows(whole) * part(whole)

    def _both(self, tables: HandoverTables, step: int, *, early: bool) -> float:
        """What both plans cost in a step, beyond the new one alone."""
        cost = self.twice
        for task in (task for task in self.tasks if tables[task.root]):
            entries = tables[task.root]
            cost += self._old_nodes(task, entries, step, early=early)
            cost += self._nodes(task, task.new, partial(self._makes, entries, step))
            cost -= self._nodes(task, task.new, _everything)
        return cost * self.window / self.steps

    def _old_nodes(
        self, task: ReplacedSubplan, entries: Iterable[HandoverEntry], step: int, *, early: bool
    ) -> float:
        """What the old plan costs in a second; ``early`` if it drops at once what is not its to make."""
        if not early:
            return self._nodes(task, task.old, _everything)
        keeps = {}
        for parent, state in ((node, state) for node in task.old for state in node.inputs):
            retention_bounds = [entry for entry in entries if needs_future_rows(parent, state, entry.bounds)]
            keeps[state] = partial(self._within, retention_bounds, step)
        return self._nodes(task, task.old, partial(self._within, entries, step), keeps)

    def _within(self, entries: Iterable[HandoverEntry], step: int, seen: Streams, newest: str) -> float:
        """Of such rows, the share that may become something that is the old plan's to make."""
        return 1 - prod(1 - self._old(e.bounds, seen, step) for e in entries if newest not in e.bounds)

    def _makes(self, entries: Iterable[HandoverEntry], step: int, seen: Streams, newest: str) -> float:
        """The share that the new plan makes: rows without a part that one of its states lacks."""
        met = (e for e in entries if newest not in e.bounds and e.bounds.keys() <= seen)
        return prod(1 - self._old(e.bounds, seen, step) for e in met)

    def _old(self, bounds: Mapping[str, int], seen: Iterable[str], step: int) -> float:
        """The share of rows whose components all came before their bounds, in the middle of a step."""
        return prod(max(0.0, 1 - (step + 0.5 - bounds[s]) * self.fading) for s in sorted(seen) if s in bounds)

    def _piece(self, bounds: Mapping[str, int], stream: str, step: int, seen: Streams) -> float:
        """The part of a state that is computed with a step: what came of one stream in as long a time."""
        return self._old(bounds, seen - {stream}, step) / (self.steps if stream in seen else 1)

    def _nodes(
        self,
        task: ReplacedSubplan,
        nodes: Iterable[Node],
        share: _Share,
        keeps: Mapping[StateId, _Share] = MappingProxyType({}),
    ) -> float:
        """What nodes cost in a second, and the states that they make for their own plan alone.

        ``keeps`` are the shares of their rows that states keep, where these are other than are made.
        """
        cost = 0.0
        for node in nodes:
            for mine, seen, other in probings(node):
                going, found = (self._rate(streams, mine, share) for streams in (seen, seen | other))
                cost += probing_cost(going, found, other, self.estimator).total
            if node.id != task.root:
                streams = node.id.streams
                cost += INSERT * self._rate(frozenset(streams), streams, keeps.get(node.id, share))
                if node.id in self.sent:
                    cost += SENT * self._rate(frozenset(streams), streams, share)
        return cost

    def _rate(self, seen: Streams, heads: Iterable[str], share: _Share) -> float:
        """Rows that a plan makes in a second with these streams, the newest component being a head's."""
        return self.estimator.rate(seen) / len(seen) * sum(share(seen, newest) for newest in sorted(heads))

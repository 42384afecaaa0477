"""What a migration costs by each strategy, beyond what the new plan costs anyway.

A strategy that does not run the old plan rebuilds at once all rows that the new plan lacks. The others run
both plans side by side, and what that costs changes as old rows expire. So the migration is simulated in
steps, with the same hand-over tables that will carry it out: they say which share of its rows each plan
produces. Rows that the new plan cannot produce yet save it work, so a migration may cost less than nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf, prod
from types import MappingProxyType

from midstream.adapt.cost import CostModel
from midstream.adapt.estimate import Estimator, Streams
from midstream.adapt.plan_cost import input_steps, layout_cost, probe_steps
from midstream.adapt.statistics import decay_seconds
from midstream.migration.combined_layout import combine
from midstream.migration.handover_tables import ReplacedSubplan, complete, first_tables
from midstream.migration.lifecycle import ROWS_MOVED_AT_ONCE
from midstream.migration.state_match import match_states
from midstream.migration.strategies import STRATEGIES, Strategy, Variant
from midstream.plan.build_layout import build_layout
from midstream.plan.handover import needs_future_rows
from midstream.plan.layout import Layout, Node
from midstream.plan.state_id import StateId
from midstream.plan.tree import Plan
from midstream.state.costs import Cost
from midstream.state.migration import HandoverEntry, HandoverTables

# A window is simulated in at most this many steps, and epoch by epoch if it has fewer epochs.
_MAX_STEPS_PER_WINDOW = 16
# Background work ends with the oldest slice. Compaction has merged it: by its rules, on average, such a slice
# begins this many windows before the oldest live row.
_OVERHANG_WINDOWS = 1 / 3
UNNOTICEABLE_SLOWDOWN = 1.1
"""Epochs that take up to this many times as long as before the migration are as good as undisturbed."""


@dataclass(frozen=True, kw_only=True)
class MigrationCost:
    """What a migration costs by one strategy."""

    strategy: str
    background: bool
    """Whether the new plan's missing rows are computed in the background."""
    work: float
    """Units in all; below zero if the two plans together do less than the new one will."""
    seconds: float
    """How long it takes, in event time."""
    peak_slowdown: float
    """How long the longest epoch takes, as a multiple of an epoch of the plan that runs now."""
    isolated: bool = False
    """Whether a hybrid begins without any rows, and leaves all that has an old one to the old plan."""
    defers_results: bool = False
    """Whether results wait for its end."""


def migration_costs(old: Layout, plan: Plan, estimator: Estimator) -> list[MigrationCost]:
    """What it would cost to change to a plan, by each variant of a strategy that would come to an end."""
    simulation = _MigrationSimulation(old, build_layout(estimator.query, plan), estimator)
    return [
        simulation.cost(strategy, variant)
        for strategy in STRATEGIES.values()
        for variant in strategy.variants()
        # Where rows never expire, nothing can be waited for.
        if simulation.rows_expire or not strategy.waits_for_expiry(background=variant.background)
    ]


_Share = Callable[[Streams, str], float]
"""Of the rows with these streams whose newest component is of this stream: the share that a plan produces."""


def _full_share(*_: object) -> float:
    return 1.0


class _Start:
    """What a migration starts with."""

    def __init__(
        self, old: Layout, new: Layout, *, isolated: bool = False, large: frozenset[StateId] = frozenset()
    ) -> None:
        match = match_states(old, new, old.unused_number, isolated=isolated, large=large)
        self.plans = plans = match.plans
        self.moving = match.moving
        """The states of the new plan that are moved in portions."""
        self.empty = match.empty
        """The states of the new plan that start without rows."""
        self.tables = first_tables(plans.subplans, match.incomplete, plans.copies, 0)
        self.new_nodes = {node.id: node for node in plans.new.nodes}
        self.shuffled = old.fragment_of_input.keys() | plans.new.fragment_of_input.keys()
        self.produced_by_both = {state.streams for state in (*plans.borders, plans.new.root)}
        own_streams = (s for s in old.fragment_of_input if s.is_base and s not in plans.new.states)
        sent_borders = (
            s for s in plans.sources_of(plans.moved_borders).values() if s in old.fragment_of_input
        )
        self.taken_in_twice = {*own_streams, *sent_borders}
        """Inputs of the old plan that the new one wants elsewhere: both plans take their rows in."""


class _MigrationSimulation:
    """A migration from one plan to another, in steps of some epochs each; step 0 begins with it."""

    def __init__(self, old: Layout, new: Layout, estimator: Estimator) -> None:
        self.estimator = estimator
        self.model = CostModel(estimator)
        self.weights = self.model.weights
        sizes = {state: estimator.live_rows(state.streams) for state in old.states}
        large = frozenset(state for state, rows in sizes.items() if rows > ROWS_MOVED_AT_ONCE)
        self.at_once = _Start(old, new)
        self.sharing = _Start(old, new, large=large)
        self.isolated = _Start(old, new, isolated=True)
        self.new_stages = new.stages
        self.stages_of_both: dict[tuple[_Start, frozenset[StateId]], int] = {}
        """By the subplans that the old plan still produces."""
        self.old_cost, self.new_cost = (layout_cost(layout, estimator, 1) for layout in (old, new))
        window = 2 * decay_seconds(estimator.query)
        self.rows_expire = window < inf
        # Without a window, states have rows of all the time since the first statistics.
        self.window = window if self.rows_expire else max(estimator.statistics.elapsed, 1.0)
        epochs = max(1.0, self.window * estimator.epochs_per_second)
        self.steps = min(_MAX_STEPS_PER_WINDOW, round(epochs))
        """Steps in a window."""
        self.epochs_per_step = epochs / self.steps
        self.seconds_per_step = self.window / self.steps
        self.seconds_per_epoch = self.window / epochs
        self.expired_per_step = 1 / self.steps if self.rows_expire else 0.0
        """The share of a state's old rows that expires with each step."""

    def cost(self, strategy: Strategy, variant: Variant) -> MigrationCost:
        """What a variant of a strategy costs."""
        if not strategy.runs_old_plan:
            return self._rebuilding_at_once(strategy)
        return self._isolated(strategy) if variant.isolated else self._sharing(strategy, variant)

    def _rebuilding_at_once(self, strategy: Strategy) -> MigrationCost:
        """All missing rows are computed before the next epoch."""
        work = self._moving(self.at_once)
        for state in sorted(self.at_once.empty):
            node = self.at_once.new_nodes[state]
            driving_rows = self.estimator.live_rows(node.inputs[0].streams)
            work += self._rebuilding(self.at_once, node, 0, driving_rows, _full_share)
        return MigrationCost(
            strategy=strategy.name,
            background=False,
            work=work,
            seconds=0.0,
            peak_slowdown=self._slowdown(work),
        )

    def _sharing(self, strategy: Strategy, variant: Variant) -> MigrationCost:
        """Both plans use the states that they share; the old one produces only what the new one cannot."""
        start, tables = self.sharing, self.sharing.tables
        replaced_from: dict[StateId, int] = {}
        at_first = self._moving(start)
        work, peak_work, step = at_first, at_first, 0
        while any(tables.values()) and (step < self.steps or not self.rows_expire):
            step_work = self._both_plans(start, tables, step, prunes=strategy.prunes)
            entries = (entry for table in tables.values() for entry in table)
            lacking = [e for e in entries if variant.background or e.state in start.moving]
            if lacking:
                # At the slowest pace: in the time of an epoch one epoch of old rows, the newest first.
                lowest = min(lacking, key=lambda entry: (len(entry.bounds), entry.state))
                state, stream = lowest.state, min(lowest.bounds, key=lambda s: lowest.bounds[s])
                replaced_from[state] = replaced_from.get(state, lowest.bounds[stream]) - 1
                oldest_live = (step if self.rows_expire else 0) - self.steps
                if replaced_from[state] >= oldest_live:
                    step_work += self._portion(start, lowest, stream, step)
                overhang = self.steps * _OVERHANG_WINDOWS - 1 if self.rows_expire else 0
                if replaced_from[state] <= oldest_live - overhang:
                    tables = complete(tables, start.plans.new, state, step + 1)
            work += step_work
            peak_work = max(peak_work, step_work / self.epochs_per_step + (0.0 if step else at_first))
            step += 1
        return MigrationCost(
            strategy=strategy.name,
            background=variant.background,
            work=work,
            seconds=step * self.seconds_per_step,
            peak_slowdown=self._slowdown(peak_work),
        )

    def _isolated(self, strategy: Strategy) -> MigrationCost:
        """The old plan produces all that has an old row; the plans share nothing but the streams."""
        start = self.isolated
        copied_rows = sum(self.estimator.rate(s.streams) for s in start.plans.copies) * self.seconds_per_step
        copy_work = Cost(inserted_rows=copied_rows).units(self.weights)
        work = [
            copy_work + self._both_plans(start, start.tables, step, prunes=strategy.prunes)
            for step in range(self.steps)
        ]
        return MigrationCost(
            strategy=strategy.name,
            background=False,
            work=sum(work),
            seconds=self.window,
            peak_slowdown=self._slowdown(max(work) / self.epochs_per_step),
            isolated=strategy.isolation == "optional",
            defers_results=strategy.defers_results,
        )

    def _slowdown(self, epoch_work: float) -> float:
        """How long an epoch takes with so much work beyond that of the new plan."""
        cost = epoch_work / self.seconds_per_epoch + self.new_cost
        return max(UNNOTICEABLE_SLOWDOWN, cost / max(self.old_cost, 1e-9))

    def _moving(self, start: _Start) -> float:
        """Units for shuffling states in the first epoch that the new plan wants elsewhere."""
        return self._moved(sum((self.estimator.live_rows(s.streams) for s in start.plans.moved), 0.0))

    def _moved(self, rows: float) -> float:
        """Units for sending rows to another partition and storing them there."""
        return Cost(sent_rows=rows, inserted_rows=rows).units(self.weights)

    def _portion(self, start: _Start, entry: HandoverEntry, stream: str, step: int) -> float:
        """Units for what a step moves or rebuilds of a state that lacks rows."""
        if entry.state in start.moving:
            rows = self.estimator.live_rows(entry.state.streams)
            return self._moved(rows / self.steps) + Cost(scanned_rows=rows * self.epochs_per_step).units(
                self.weights
            )
        node = start.new_nodes[entry.state]
        driving = next(i for i, name in enumerate(node.inputs) if stream in name.streams)
        share = partial(self._epoch_share, entry, stream, step)
        scanned_rows = self.epochs_per_step * self.estimator.live_rows((stream,))
        return self._rebuilding(start, node, driving, scanned_rows, share)

    def _rebuilding(
        self,
        start: _Start,
        node: Node,
        driving: int,
        scanned_rows: float,
        share: Callable[[Streams], float],
    ) -> float:
        """Units for rebuilding a share of a state: from some rows of one input, which probe the others."""
        cost = Cost(scanned_rows=scanned_rows).units(self.weights)
        for step in input_steps(node, driving):
            probing, matched = (
                self.estimator.live_rows(streams) * share(streams) for streams in (step.probing, step.matched)
            )
            cost += self._probe_step(step.probed, probing, matched)
        streams = frozenset(node.id.streams)
        rows = self.estimator.live_rows(streams) * share(streams)
        return cost + Cost(inserted_rows=rows, sent_rows=rows if node.id in start.shuffled else 0.0).units(
            self.weights
        )

    def _both_plans(self, start: _Start, tables: HandoverTables, step: int, *, prunes: bool) -> float:
        """Units that both plans need in a step, beyond the new one alone."""
        stages = self._stages(start, tables) - self.new_stages
        cost = (self.model.additional_stage() * stages).units(self.weights)
        for subplan in (subplan for subplan in start.plans.subplans if tables[subplan.root]):
            entries = tables[subplan.root]
            cost += self._old_nodes(start, subplan, entries, step, prunes=prunes)
            cost += self._nodes(start, subplan.new, partial(self._produced_by_new, entries, step))
            cost -= self._nodes(start, subplan.new, _full_share)
        return cost * self.seconds_per_step

    def _stages(self, start: _Start, tables: HandoverTables) -> int:
        """How many stages an epoch of both plans has."""
        unfinished = frozenset(root for root, table in tables.items() if table)
        if (start, unfinished) not in self.stages_of_both:
            combined = combine(start.plans, tables, prunes=False)
            self.stages_of_both[start, unfinished] = combined.layout.stages
        return self.stages_of_both[start, unfinished]

    def _old_nodes(
        self,
        start: _Start,
        subplan: ReplacedSubplan,
        entries: Iterable[HandoverEntry],
        step: int,
        *,
        prunes: bool,
    ) -> float:
        """What the old plan costs per second; ``prunes`` if it drops at once what it need not produce."""
        share: _Share = partial(self._produced_by_old, entries, step) if prunes else _full_share
        stored_shares: dict[StateId, _Share] = {}
        cost = 0.0
        for node, state in ((n, s) for n in subplan.old for s in n.inputs):
            needed = [entry for entry in entries if needs_future_rows(node, state, entry.bounds)]
            stored_shares[state] = partial(self._produced_by_old, needed, step) if prunes else _full_share
            if state in start.taken_in_twice:
                streams = frozenset(state.streams)
                # All rows of a stream are sent to both plans, of a border only those that the old one needs.
                border_shares = (share, stored_shares[state])
                shares = (_full_share, _full_share) if state.is_base else border_shares
                sent, stored = (self._rate(streams, streams, of_plan) for of_plan in shares)
                cost += Cost(sent_rows=sent, inserted_rows=stored).units(self.weights)
        return cost + self._nodes(start, subplan.old, share, stored_shares)

    def _nodes(
        self,
        start: _Start,
        nodes: Iterable[Node],
        share: _Share,
        stored_shares: Mapping[StateId, _Share] = MappingProxyType({}),
    ) -> float:
        """What nodes cost per second, with the states that they produce for their own plan alone.

        ``stored_shares`` are the shares of rows that states store, where that is not all that is produced.
        """
        cost = 0.0
        for node in nodes:
            for step in probe_steps(node):
                probing, matched = (
                    self._rate(streams, step.new, share) for streams in (step.probing, step.matched)
                )
                cost += self._probe_step(step.probed, probing, matched)
            if node.id.streams not in start.produced_by_both:
                streams = frozenset(node.id.streams)
                stored = self._rate(streams, streams, stored_shares.get(node.id, share))
                sent = self._rate(streams, streams, share) if node.id in start.shuffled else 0.0
                cost += Cost(inserted_rows=stored, sent_rows=sent).units(self.weights)
        return cost

    def _probe_step(self, probed: Streams, probing_rows: float, matched_rows: float) -> float:
        return self.model.probe_step(probed, probing_rows=probing_rows, matched_rows=matched_rows).units(
            self.weights
        )

    def _rate(self, streams: Streams, newest: Iterable[str], share: _Share) -> float:
        """Rows of a join that a plan produces per second, the newest component being of some streams."""
        shares = sum(share(streams, stream) for stream in sorted(newest))
        return self.estimator.rate_by_newest(streams) * shares

    def _produced_by_old(
        self, entries: Iterable[HandoverEntry], step: int, streams: Streams, newest: str
    ) -> float:
        """The share of rows that may become part of something that the old plan has to produce."""
        open_entries = (entry for entry in entries if newest not in entry.bounds)
        return 1 - prod(1 - self._old_share(entry.bounds, streams, step) for entry in open_entries)

    def _produced_by_new(
        self, entries: Iterable[HandoverEntry], step: int, streams: Streams, newest: str
    ) -> float:
        """The share of rows that the new plan produces: those without a part that one of its states lacks."""
        complete_entries = (e for e in entries if newest not in e.bounds and e.bounds.keys() <= streams)
        return prod(1 - self._old_share(entry.bounds, streams, step) for entry in complete_entries)

    def _old_share(self, bounds: Mapping[str, int], streams: Iterable[str], step: int) -> float:
        """The share of rows whose components all came before their bounds, in the middle of a step."""
        ages = (step + 0.5 - bounds[stream] for stream in sorted(streams) if stream in bounds)
        return prod(max(0.0, 1 - age * self.expired_per_step) for age in ages)

    def _epoch_share(self, entry: HandoverEntry, stream: str, step: int, streams: Streams) -> float:
        """The share of a state that background work computes in a step: of one stream, one step of rows."""
        return self._old_share(entry.bounds, streams - {stream}, step) / (
            self.steps if stream in streams else 1
        )

"""The step: one fragment, one engine partition, one epoch.

A pure function: it may run again, or twice at the same time, and always returns the same. The shells around
it read and write the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from midstream.engine.cleanup import owed_rows, restored_rows
from midstream.engine.epoch_filter import filter_by_epoch
from midstream.engine.error_context import error_context
from midstream.engine.group_counts import count_flows, count_results
from midstream.engine.hashing import Hashes
from midstream.engine.index_rows import IndexRows, in_time_order, merge_rows
from midstream.engine.intake import (
    Ingested,
    admit,
    backfill_batches,
    concat_arrivals,
    ingest,
    ingest_backfilled,
    with_replayed,
)
from midstream.engine.joiner import Joiner, no_hot_keys
from midstream.engine.key_sample import KeyCounts, count_keys
from midstream.engine.memory_step import Cleanup
from midstream.engine.merge_slices import OpenSlice, count_rows, merge_slices
from midstream.engine.migration_step import Rebuild
from midstream.engine.payload import Payload
from midstream.engine.program import NewSlice, Program, StepOutput, StreamCounts
from midstream.engine.results import merge_by_time, timed_results, without_times
from midstream.engine.routed_rows import Arrivals, RoutedRows, RowsKind
from midstream.engine.send import CountFlows, send
from midstream.engine.stored_states import StoredStates
from midstream.engine.work import WorkCounts
from midstream.plan.fragment_name import fragment_name
from midstream.plan.handover import PlanSide
from midstream.plan.layout import Fragment, FragmentInput, Key, Node
from midstream.plan.state_id import StateId
from midstream.state.slices import Slice, SliceKind, SliceOwner


def run_step(
    program: Program, fragment: Fragment, partition: int, arrivals: Arrivals, open_slice: OpenSlice
) -> StepOutput:
    """Ingest the rows that arrived, join them, and return results, rows to send and new slices."""
    step = _Step(program, fragment, partition, open_slice)
    for target in fragment.inputs:
        with error_context(streams=target.streams):
            step.ingest_backfill(target, arrivals)
            step.ingest(target, arrivals)
    step.collect(arrivals)
    step.insert_backfill()
    for rebuild in program.migration_step.rebuilds if program.migration_step else ():
        step.rebuild(rebuild)
    for cleanup in program.memory.cleanups if program.memory else ():
        with error_context(streams=cleanup.node.id.streams):
            step.clean_up(cleanup)
    for node in fragment.nodes:
        with error_context(streams=node.id.streams):
            step.join(node)
    return step.output()


class _BackfillRows(NamedTuple):
    """Rows that a state lacked; they are inserted once all payload, by which they are arranged, is here."""

    state: StateId
    rows: IndexRows
    first_epoch: int
    kind: RowsKind


class _Step:
    """The state of a step while it runs."""

    def __init__(self, program: Program, fragment: Fragment, partition: int, open_slice: OpenSlice) -> None:
        self.program = program
        self.handover = program.handover
        self.fragment = fragment
        self.partition = partition
        self.open_slice = open_slice
        self.counts: dict[str, StreamCounts] = {}
        self.late: dict[str, pa.Table] = {}
        self.deltas: dict[StateId, IndexRows] = {}
        self.new_slices: list[NewSlice] = []
        self.outgoing: list[RoutedRows] = []
        self.keys: dict[str, KeyCounts] = {}
        self.produced: dict[StateId, int] = {}
        self.flows = b""
        self.results: list[IndexRows] = []
        self.collected: Sequence[pa.Table] = ()
        self.deferred: list[IndexRows] = []
        self.missing: list[_BackfillRows] = []
        self.states = StoredStates(program, fragment, partition, open_slice)
        self.new_payload: dict[StateId, list[pa.Table]] = {state: [] for state in fragment.inputs_by_id}
        # Without reference to this step: what it has would stay in memory until cycles are looked for.
        payloads = {
            state: Payload(partial(self.states.payload, state, fragment.key, new))
            for state, new in self.new_payload.items()
        }
        hidden = partial(program.places.hidden, partition=partition) if fragment.key else no_hot_keys
        query, expiry, epoch = program.query, program.expiry, program.epoch
        probed = program.retention.probed
        self.joiner = Joiner(query, payloads, expiry, epoch, partition, hidden, probed=probed)
        self.joiner.live_only = program.replay is not None

    def ingest_backfill(self, target: FragmentInput, arrivals: Arrivals) -> None:
        """Give references to rows that an input's state lacks."""
        kinds: tuple[RowsKind, ...] = ("backfill", "pending")
        batches = ((kind, t) for kind in kinds for t in backfill_batches(arrivals.get((target.id, kind), ())))
        for number, (kind, table) in enumerate(batches):
            ingested = ingest_backfilled(
                self.program, self.partition, self.fragment.key, target, table, number
            )
            self._store_payload(target, ingested)
            self.joiner.side = "new"
            self.joiner.record(WorkCounts(sent_rows=table.num_rows))
            self.missing.append(_BackfillRows(target.id, ingested.rows, ingested.first_epoch, kind))

    def ingest(self, target: FragmentInput, arrivals: Arrivals) -> None:
        """Admit new rows of an input and give them references."""
        tables, copied = arrivals.get((target.id, "arriving")), arrivals.get((target.id, "copied"), ())
        replayed = list(arrivals.get((target.id, "replayed"), ()))
        if tables is None and not copied and not replayed:
            return
        program = self.program
        accepted = [] if tables is None else [concat_arrivals(target.id, tables)]
        copies = [concat_arrivals(target.id, copied)] if copied else []
        if target.is_stream:
            (stream,) = target.streams
            admitted = [admit(program, stream, table) for table in accepted]
            accepted = [each.table for each in admitted]
            copies = [admit(program, stream, table).table for table in copies]
            for each in admitted if self._counts(target) else ():
                self.counts[stream] = each.count
                key = self.fragment.key
                self.keys |= count_keys(program.query, stream, key, each.table, program.sampling)
                if each.late is not None:
                    self.late[stream] = each.late
        table = concat_arrivals(target.id, with_replayed(target, replayed, [*accepted, *copies]))
        if table.num_rows:
            ingested = ingest(program, self.partition, self.fragment.key, target, table)
            self._store_payload(target, ingested)
            self._add_delta(target.id, ingested.rows)

    def collect(self, arrivals: Arrivals) -> None:
        """Take results that another fragment has sent, if all leave from this one."""
        if self.fragment == self.program.collector:
            self.collected = arrivals.get((self.program.layout.root, "results"), ())

    def insert_backfill(self) -> None:
        """Insert rows into the states that lacked them."""
        for state, rows, first_epoch, kind in self.missing:
            self._insert(state, rows, first_epoch, kind)

    def rebuild(self, rebuild: Rebuild) -> None:
        """Join the rows that a state of this fragment, or of one that it sends to, lacks."""
        node = self._producer(rebuild.state)
        if node is None:
            return
        self.joiner.side = "new"
        base = self._base_state(node, rebuild.epochs.stream) if rebuild.epochs else None
        scan, search = self.states.own_rows, self.states.runs
        rows = self.joiner.rebuild(node, scan, search, rebuild.bounds, rebuild.epochs, base)
        if rows is None:
            return
        kind: RowsKind = "pending" if rebuild.epochs else "backfill"
        if rebuild.state in self.program.layout.fragment_of_input:
            self.outgoing += self._send(rebuild.state, rows, kind)
        else:
            self._insert(rebuild.state, rows, self.program.epoch, kind)

    def clean_up(self, cleanup: Cleanup) -> None:
        """Make what groups owe of rows stored so far, and rebuild the states of groups that come back."""
        program, inputs = self.program, set(cleanup.node.inputs)
        fragment = next(f for f in program.layout.fragments if inputs <= f.inputs_by_id.keys())
        if fragment is not self.fragment:
            return
        cleanup = cleanup.among(self.states.groups)
        if not cleanup.generations:
            return
        groups = program.places.groups
        self.joiner.side = "both"
        # Only rows of this partition: all of a group are brought together.
        stored = self.states.own_rows
        for rows in owed_rows(self.joiner, cleanup, groups, stored):
            if cleanup.node.id == program.layout.root:
                self.results.append(rows)
            else:
                self.outgoing += self._send(cleanup.node.id, rows, "arriving", arrived=program.epoch)
                self.joiner.record(WorkCounts(sent_rows=len(rows)))
        for node in fragment.nodes if cleanup.restored else ():
            if node.id in fragment.arrangements:
                restored = restored_rows(self.joiner, node, sorted(cleanup.restored), groups, stored)
                if restored is not None:
                    self._insert(node.id, restored, program.epoch, "backfill", "both")

    def join(self, node: Node) -> None:
        """Produce the new rows of a node, and add them to those of the other plan for the same state."""
        restriction = self.handover.restrictions.get(node) if self.handover else None
        self.joiner.side = self._side(node)
        rows = self.joiner.delta(node, self.deltas, self.states.runs, restriction)
        if rows is None:
            return
        routing = self.program.places.routing(self.fragment.key, self.fragment.site)
        made = routing.count(rows.hashes, node.id.streams, self.partition)
        self.produced[node.id] = self.produced.get(node.id, 0) + made
        migration = self.program.migration_step
        if node.id == self.program.layout.root:
            if self._counts_flows:
                self.flows += count_results(rows.hashes, self.program.places.groups)
            defers = migration is not None and migration.defers_results and self._side(node) == "new"
            (self.deferred if defers else self.results).append(rows)
            return
        destinations = self.handover.destinations if self.handover else {}
        for state in destinations.get(node.id, (node.id,)):
            self._pass_on(state, rows)

    def _pass_on(self, state: StateId, rows: IndexRows) -> None:
        """Send new rows of a state to the fragment that they enter, or keep them if it is this one."""
        if state not in self.program.layout.fragment_of_input:
            other_rows = self.deltas.get(state)
            parts = [rows] if other_rows is None else [other_rows, self.joiner.arrange(rows, other_rows.key)]
            self._add_delta(state, in_time_order(merge_rows(parts)))
            return
        # The shares of both plans are merged where they arrive: their references lead to different payload.
        relevance = self.handover.relevance if self.handover else {}
        relevant = filter_by_epoch(rows, relevance.get(state), self.joiner.epochs)
        if relevant is not None:
            count = self._count_flows if self._counts_flows else None
            self.outgoing += self._send(state, relevant, "arriving", count=count)
            self.joiner.record(WorkCounts(sent_rows=len(relevant)))

    def output(self) -> StepOutput:
        """The output of the step, once all nodes have joined."""
        retention = self.handover.retention if self.handover else {}
        for state, keys in self.fragment.arrangements.items():
            rows = filter_by_epoch(self.deltas.get(state), retention.get(state), self.joiner.epochs)
            if rows is not None and self._stores(state):
                self.joiner.side = self._side_of_state(state)
                for key in keys:
                    self._add_index_slice("index", state, key, rows, self.program.epoch)
        layout = self.program.layout
        for rows in self.deferred:
            query = self.program.query
            table = without_times(query, timed_results(self.joiner, rows, query.kept))
            self.new_slices.append(self._slice("deferred", layout.root, (), rows, table, self.program.epoch))
        results = self._results()
        complete_here = self.program.results_complete_in(self.fragment)
        if results is not None and not complete_here:
            to = self.program.collecting_partition(self.partition)
            self.outgoing.append(RoutedRows(to, layout.root, "results", results))
        is_placed = bool(self.fragment.key)
        slices, replaced = merge_slices(self.program, self.new_slices, self.open_slice, is_placed=is_placed)
        return StepOutput(
            results=self._released_results(results) if complete_here else None,
            outgoing=tuple(self.outgoing),
            slices=slices,
            replaced=replaced,
            late=self.late,
            counts=self.counts,
            work=self.joiner.work,
            keys=self.keys,
            produced=self.produced,
            flows={fragment_name(self.fragment): self.flows} if self.flows else {},
        )

    def _side(self, node: Node) -> PlanSide:
        return self.handover.side(node) if self.handover else "both"

    def _producer(self, state: StateId) -> Node | None:
        """The node of the new plan, or of both, that produces a state in this fragment."""
        nodes = (node for node in self.fragment.nodes if node.id == state and self._side(node) != "old")
        return next(nodes, None)

    def _base_state(self, node: Node, stream: str) -> tuple[StateId, Key] | None:
        """The base state below a node that has the rows of a stream, and its key; None if it is elsewhere."""
        below: Node | None = node
        while below is not None:
            state = next(name for name in below.inputs if stream in name.streams)
            if state.is_base:
                return state, next(p.key for probes in below.probes for p in probes if p.input == state)
            below = self._producer(state)
        return None

    def _side_of_state(self, state: StateId) -> PlanSide:
        """The plan for which a state is stored: both, unless only nodes of one search it."""
        sides = {self._side(node) for node in self.fragment.nodes if state in node.inputs}
        return sides.pop() if len(sides) == 1 else "both"

    def _stores(self, state: StateId) -> bool:
        if self.fragment.site:
            return state in self.fragment.arrangements
        return self.handover is None or (self.fragment.id, state) not in self.handover.stored_elsewhere

    def _counts(self, target: FragmentInput) -> bool:
        if self.fragment.site:
            return target.id in self.fragment.counted_inputs
        return self.handover is None or (self.fragment.id, target.id) not in self.handover.counted_elsewhere

    @property
    def _counts_flows(self) -> bool:
        """Whether rows that leave are counted by group: if a step says so, but not during a migration."""
        counts = self.program.memory is not None and self.program.memory.counts_flows
        return counts and bool(self.fragment.key) and self.handover is None

    def _count_flows(self, hashes: Hashes, receivers: Hashes) -> None:
        self.flows += count_flows(hashes, receivers, self.program.places.groups)

    def _add_delta(self, state: StateId, rows: IndexRows) -> None:
        self.deltas[state] = rows
        copy = self.handover.copies.get(state) if self.handover else None
        if copy is not None and copy in self.fragment.arrangements:
            self.deltas[copy] = rows

    def _insert(
        self, state: StateId, rows: IndexRows, first_epoch: int, kind: RowsKind, side: PlanSide = "new"
    ) -> None:
        self.joiner.side = side
        for key in self.fragment.searched_by(state):
            slice_kind: SliceKind = "pending" if kind == "pending" else "index"
            if not self.fragment.site or self._stores(state):
                arranged = self._add_index_slice(slice_kind, state, key, rows, first_epoch)
            else:
                arranged = self.joiner.searchable(rows, key)
            if slice_kind == "index":
                self.states.insert(state, key, arranged)

    def _add_index_slice(
        self, kind: SliceKind, state: StateId, key: Key, rows: IndexRows, first_epoch: int
    ) -> IndexRows:
        arranged = self.joiner.searchable(rows, key)
        self.joiner.record(WorkCounts(inserted_rows=len(arranged)))
        self.new_slices.append(self._slice(kind, state, key, arranged, arranged.to_table(), first_epoch))
        return arranged

    def _store_payload(self, target: FragmentInput, ingested: Ingested) -> None:
        if target.columns:
            self.new_payload[target.id].append(ingested.payload)
            if self._stores(target.id):
                key, first = self.fragment.key, ingested.first_epoch
                stored = self._slice("payload", target.id, key, ingested.rows, ingested.payload, first)
                self.new_slices.append(stored)

    def _slice(
        self, kind: SliceKind, state: StateId, key: Key, rows: IndexRows, table: pa.Table, first_epoch: int
    ) -> NewSlice:
        """A new slice, with rows of epochs from ``first_epoch`` to this one."""
        owner = SliceOwner(kind, state, key, self.partition)
        description = Slice(
            owner=owner,
            first_epoch=first_epoch,
            last_epoch=self.program.epoch,
            epochs=1,
            rows=table.num_rows,
            latest=tuple(int(rows.times[s].max()) for s in state.streams),
            group_rows=count_rows(self.program, owner, rows),
            placed=self.program.places.since,
            by_time=owner.has_index_rows,
        )
        return NewSlice(description, table)

    def _send(
        self,
        state: StateId,
        rows: IndexRows,
        kind: RowsKind,
        *,
        arrived: int | None = None,
        count: CountFlows | None = None,
    ) -> Iterator[RoutedRows]:
        joiner, program = self.joiner, self.program
        return send(joiner, rows, program, state, kind=kind, arrived=arrived, count_flows=count)

    def _results(self) -> pa.Table | None:
        """The results of this epoch that are in this fragment, in order, with their times."""
        parts = [timed_results(self.joiner, rows, self.program.query.outputs) for rows in self.results]
        parts += self.collected
        if not parts:
            return None
        query, result_range = self.program.query, self.program.result_range
        results = merge_by_time(query, parts)
        return results if result_range is None else result_range.filter_results(results, query.event_windows)

    def _released_results(self, results: pa.Table | None) -> pa.Table | None:
        """Deferred results, if they are released, then those of this epoch."""
        releases = (step := self.program.migration_step) is not None and step.releases_results
        deferred = self.states.open("deferred", self.program.layout.root, ()) if releases else ()
        tables = [self.program.query.select_outputs(table) for table in deferred]
        tables += [] if results is None else [without_times(self.program.query, results)]
        return pa.concat_tables(tables) if tables else None

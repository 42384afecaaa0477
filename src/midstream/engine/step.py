"""The step: one fragment, one engine partition, one epoch.

A pure function: its whole input is in its arguments, and what it gives is values. It may be run again, or
twice at once, and always gives the same; the shells around it read and write the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from midstream.engine.arrays import as_column
from midstream.engine.encode import RoutedRows
from midstream.engine.epoch_filter import filter_by_epoch
from midstream.engine.error_context import error_context
from midstream.engine.index_rows import IndexRows, in_time_order, merge_rows
from midstream.engine.intake import Ingested, admit, concat_arrivals, ingest, ingest_moved
from midstream.engine.joiner import Joiner, WorkCounts
from midstream.engine.key_sample import KeyCounts, count_keys
from midstream.engine.merge_slices import OpenSlice, compact
from midstream.engine.ordering import stable_order
from midstream.engine.payload import Payload
from midstream.engine.program import InputCount, NewSlice, Program, Rebuild, StepOutput
from midstream.engine.send import STATE, WAITING, send
from midstream.plan.layout import (
    Fragment,
    FragmentInput,
    Key,
    Node,
    Side,
    StateId,
    column_name,
    streams_of,
)
from midstream.state.slices import Slice, SliceKind, StateKey

Arrivals = Mapping[StateId, Sequence[pa.Table]]


def run_step(
    program: Program, fragment: Fragment, partition: int, arrivals: Arrivals, open_slice: OpenSlice
) -> StepOutput:
    """Take in what arrived, join it, and say what is new."""
    step = _Step(program, fragment, partition, open_slice)
    for fragment_input in fragment.inputs:
        with error_context(streams=fragment_input.streams):
            step.enter(fragment_input, arrivals)
    step.restore()
    for rebuild in program.course.rebuilds:
        step.rebuild(rebuild)
    for node in fragment.nodes:
        with error_context(streams=streams_of(node.id)):
            step.join(node)
    return step.output()


class _Step:
    """A step in the making."""

    def __init__(self, program: Program, fragment: Fragment, partition: int, open_slice: OpenSlice) -> None:
        self.program = program
        self.fragment = fragment
        self.partition = partition
        self.open_slice = open_slice
        self.counts: dict[str, InputCount] = {}
        self.late: dict[str, pa.Table] = {}
        self.deltas: dict[StateId, IndexRows] = {}
        self.new: list[NewSlice] = []
        self.outgoing: list[RoutedRows] = []
        self.keys: dict[str, KeyCounts] = {}
        self.made: dict[StateId, int] = {}
        self.found: list[IndexRows] = []
        self.deferred: list[IndexRows] = []
        self.missing: list[tuple[StateId, IndexRows, int, str]] = []
        self.restored: dict[tuple[StateId, Key], list[IndexRows]] = {}
        self.fresh: dict[StateId, list[pa.Table]] = {one.id: [] for one in fragment.inputs}
        payloads = {one.id: Payload(partial(self._payload, one.id)) for one in fragment.inputs}
        self.joiner = Joiner(program.query, payloads, program.purge)

    def enter(self, fragment_input: FragmentInput, arrivals: Arrivals) -> None:
        """Take in new rows of an input, and rows that its state lacks."""
        program = self.program
        for waiting in ("", WAITING):
            missing = arrivals.get(f"{STATE}{fragment_input.id}{waiting}")
            if missing:
                table = concat_arrivals(fragment_input.id, missing, moved=True)
                taken = ingest_moved(program, self.partition, self.fragment.key, fragment_input, table)
                self._keep_payload(fragment_input, taken)
                self.missing.append((fragment_input.id, taken.rows, taken.first, waiting))
        if fragment_input.id not in arrivals:
            return
        table = concat_arrivals(fragment_input.id, arrivals[fragment_input.id])
        if fragment_input.is_stream:
            (stream,) = fragment_input.streams
            admitted = admit(program, stream, table)
            table = admitted.table
            if fragment_input.owned and fragment_input.id in program.layout.counted:
                self.counts[stream] = admitted.count
                self.keys |= count_keys(program.query, stream, self.fragment.key, table, program.sampling)
                if admitted.late.num_rows:
                    self.late[stream] = admitted.late
        if table.num_rows:
            taken = ingest(program, self.partition, self.fragment.key, fragment_input, table)
            self._keep_payload(fragment_input, taken)
            self._arrived(fragment_input.id, taken.rows)

    def restore(self) -> None:
        """Put rows into the states that lacked them; only now is all the payload here to arrange them by."""
        for state, rows, first, waiting in self.missing:
            self._restore_rows(state, rows, first, waiting)

    def rebuild(self, rebuild: Rebuild) -> None:
        """Compute rows that a state of this fragment, or one that it sends to, lacks."""
        mine = (n for n in self.fragment.nodes if n.id == rebuild.state and n.side != "old")
        node = next(mine, None)
        rows = self.joiner.rebuild(node, self._runs, rebuild.bounds, rebuild.epoch_range) if node else None
        if rows is None:
            return
        waiting = WAITING if rebuild.epoch_range else ""
        if rebuild.state in self.program.layout.fragment_inputs:
            self.outgoing += self._send(rebuild.state, rows, f"{STATE}{rebuild.state}{waiting}")
        else:
            self._restore_rows(rebuild.state, rows, self.program.epoch, waiting)

    def join(self, node: Node) -> None:
        """The new rows of a node, added to those that the other plan has of the same state."""
        rows = self.joiner.delta(node, self.deltas, self._runs)
        if rows is None:
            return
        self.made[node.id] = self.made.get(node.id, 0) + len(rows)
        # What two plans make of the same state refers to the same rows only if it stays in the fragment.
        if node.id == self.program.layout.root:
            waits = self.program.course.holds and node.side == "new"
            (self.deferred if waits else self.found).append(rows)
            return
        if node.id in self.program.layout.fragment_inputs:
            self.outgoing += self._send(node.id, rows, node.id)
            self.joiner.record(WorkCounts(sent=len(rows)), node.side)
            return
        others = self.deltas.get(node.id)
        both = [rows] if others is None else [others, self.joiner.arrange(rows, others.key)]
        self._arrived(node.id, in_time_order(merge_rows(both)))

    def output(self) -> StepOutput:
        """All that is new."""
        for state, keys in self.fragment.arrangements.items():
            fragment_input = self.fragment.by_id.get(state)
            rows = filter_by_epoch(
                self.deltas.get(state), self.program.layout.retention_bounds.get(state), self.joiner.epochs
            )
            if rows is not None and (fragment_input is None or fragment_input.owned):
                for key in keys:
                    arranged = self.joiner.searchable(rows, key)
                    self.joiner.record(WorkCounts(inserted=len(arranged)), self._keeper(state))
                    self.new.append(self._slice("index", state, key, arranged, arranged.to_table()))
        layout = self.program.layout
        for rows in self.deferred:
            self.new.append(self._slice("held", layout.root, (), rows, self._results([rows])))
        slices, merged = compact(self.program, self.new, self.open_slice)
        return StepOutput(
            results=self._all_results() if any(n.id == layout.root for n in self.fragment.nodes) else None,
            outgoing=tuple(self.outgoing),
            slices=slices,
            merged=merged,
            late=self.late,
            counts=self.counts,
            work=self.joiner.work,
            keys=self.keys,
            made=self.made,
        )

    def _keeper(self, state: StateId) -> Side:
        """Whose a state is: of both plans of a migration, unless only nodes of one search it."""
        sides = {node.side for node in self.fragment.nodes if state in node.inputs}
        return sides.pop() if len(sides) == 1 else "both"

    def _arrived(self, state: StateId, rows: IndexRows) -> None:
        self.deltas[state] = rows
        for original, copy in self.fragment.copies:
            if original == state:
                self.deltas[copy] = rows

    def _restore_rows(self, state: StateId, rows: IndexRows, first: int, waiting: str) -> None:
        for key in self.fragment.arrangements[state]:
            arranged = self.joiner.searchable(rows, key)
            self.joiner.record(WorkCounts(inserted=len(arranged)), "new")
            name = f"{state}{waiting}"
            self.new.append(self._slice("index", name, key, arranged, arranged.to_table(), first))
            if not waiting:
                self.restored.setdefault((state, key), []).append(arranged)

    def _keep_payload(self, fragment_input: FragmentInput, taken: Ingested) -> None:
        if fragment_input.columns:
            self.fresh[fragment_input.id].append(taken.payload)
            if fragment_input.owned:
                key, payload = self.fragment.key, taken.payload
                self.new.append(self._slice("rows", fragment_input.id, key, taken.rows, payload, taken.first))

    def _payload(self, state: StateId) -> list[pa.Table]:
        return [*self._open("rows", state, self.fragment.key), *self.fresh[state]]

    def _runs(self, state: StateId, key: Key) -> list[IndexRows]:
        stored = [self._run(slice_) for slice_ in self._slices("index", state, key)]
        return [*stored, *self.restored.get((state, key), ())]

    def _run(self, slice_: Slice) -> IndexRows:
        rows = IndexRows.from_table(self.open_slice(slice_), slice_.owner.key)
        # Versions before this order wrote slices without it; once they have merged they have it too.
        return rows if slice_.by_time else in_time_order(rows)

    def _open(self, kind: SliceKind, state: StateId, key: Key) -> Iterator[pa.Table]:
        return (self.open_slice(slice_) for slice_ in self._slices(kind, state, key))

    def _slices(self, kind: SliceKind, state: StateId, key: Key) -> Sequence[Slice]:
        return self.program.slices.get(StateKey(kind, state, key, self.partition), ())

    def _slice(
        self,
        kind: SliceKind,
        state: StateId,
        key: Key,
        rows: IndexRows,
        table: pa.Table,
        first: int | None = None,
    ) -> NewSlice:
        """A new slice, with rows of epochs from ``first`` on; by default only of this one."""
        epoch = self.program.epoch
        latest = tuple(int(rows.times[s].max()) for s in streams_of(state))
        owner = StateKey(kind, state, key, self.partition)
        lower = epoch if first is None else first
        made = Slice(owner, lower, epoch, 1, table.num_rows, latest, by_time=kind == "index")
        return NewSlice(made, table)

    def _send(self, state: StateId, rows: IndexRows, name: StateId) -> Iterator[RoutedRows]:
        to = self.program.layout.fragment_inputs[state]
        return send(self.joiner, rows, to, state, self.program.routing, name=name)

    def _all_results(self) -> pa.Table | None:
        """Results that have waited, if they are released, and then those of this epoch."""
        root = self.program.layout.root
        tables = list(self._open("held", root, ())) if self.program.course.releases else []
        if self.found:
            tables.append(self._results(self.found))
        return pa.concat_tables(tables) if tables else None

    def _results(self, found: list[IndexRows]) -> pa.Table:
        """The outputs of results of one plan or of both, in the order of their latest component."""
        found = [rows.take(stable_order(rows.latest())) for rows in found]
        query = self.program.query
        wanted = [(output.ref.stream, column_name(output.ref)) for output in query.outputs]
        fetched = [self.joiner.fetch_all(rows, wanted) for rows in found]
        tables = [pa.table(columns, schema=query.output_schema) for columns in fetched]
        if len(tables) == 1:
            return tables[0]
        order = stable_order(np.concatenate([rows.latest() for rows in found]))
        return pa.concat_tables(tables).take(as_column(order))

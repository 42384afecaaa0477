"""Moving states: sending stored rows to the engine partitions in which a new plan needs them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from midstream.engine.epoch_filter import gained_between, may_have_gained
from midstream.engine.error_context import error_context
from midstream.engine.index_rows import IndexRows
from midstream.engine.joiner import Joiner
from midstream.engine.merge_slices import OpenSlice
from midstream.engine.migration_step import Move
from midstream.engine.payload import Payload
from midstream.engine.program import Program
from midstream.engine.routed_rows import RoutedRows, RowsKind
from midstream.engine.send import send
from midstream.engine.stored_states import StoredStates
from midstream.plan.layout import Layout
from midstream.plan.state_id import StateId


def moved_rows(program: Program, partition: int, open_slice: OpenSlice) -> Iterator[RoutedRows]:
    """The rows of this partition of all states that are moved."""
    step = program.migration_step
    if step is not None and step.moved_from is not None:
        for move in step.moves:
            with error_context(streams=move.target.streams):
                yield from _move(program, step.moved_from, move, partition, open_slice)


def _move(
    program: Program, layout: Layout, move: Move, partition: int, open_slice: OpenSlice
) -> Iterator[RoutedRows]:
    fragment = next(f for f in layout.fragments if move.source in f.arrangements)

    states = StoredStates(program, fragment, partition, open_slice)

    def tables(state: StateId) -> list[pa.Table]:
        return list(states.open("payload", state, fragment.key))

    payloads = {state: Payload(partial(tables, state)) for state in fragment.inputs_by_id}
    joiner = Joiner(program.query, payloads, program.expiry, program.epoch, partition)
    key = fragment.arrangements[move.source][0]
    kind: RowsKind = "pending" if move.epochs else "backfill"
    retention = program.retention
    for slice_ in states.slices("index", move.source, key):
        if move.epochs is None or may_have_gained(slice_, move.epochs):
            rows = states.own_part(IndexRows.from_table(open_slice(slice_), key, slice_))
            if move.epochs is not None:
                # First, since it leaves few rows, and references alone tell which.
                rows = rows.take(gained_between(rows, move.epochs))
            rows = retention.useful(rows, slice_)
            yield from send(joiner, rows, program, move.target, kind=kind)

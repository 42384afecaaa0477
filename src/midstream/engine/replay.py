"""Replaying: the rows that an old box has stored are sent to a new one as if they arrived now.

They were accepted when they arrived, so the new box admits them as they are. What it makes of them alone
has left the old box already, and does not leave again (``engine/result_time_range.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from midstream.engine.encode import make_encoder
from midstream.engine.epoch_filter import gained_between, may_have_gained
from midstream.engine.error_context import error_context
from midstream.engine.index_rows import IndexRows
from midstream.engine.joiner import Joiner
from midstream.engine.merge_slices import OpenSlice
from midstream.engine.payload import Payload
from midstream.engine.program import Program, Replay
from midstream.engine.routed_rows import RoutedRows
from midstream.engine.stored_columns import StoredColumns
from midstream.engine.stored_states import StoredStates

_ROWS_AT_ONCE = 1 << 18
"""So many rows are sent together: a state need not be in memory as a whole."""


def replayed_rows(program: Program, partition: int, open_slice: OpenSlice) -> Iterator[RoutedRows]:
    """The rows that the old box has in one of its partitions."""
    replay = program.replay
    if replay is not None and partition < replay.source.places.partitions:
        for stream in replay.streams:
            with error_context("replaying rows", streams=[stream]):
                yield from _replay(program, replay, stream, partition, open_slice)


def _replay(
    program: Program, replay: Replay, stream: str, partition: int, open_slice: OpenSlice
) -> Iterator[RoutedRows]:
    source = replay.source
    encoder = make_encoder(program.query, program.layout, stream, program.places, whole_rows=False)
    history = StoredColumns.of(source.query, source.layout, stream)
    for rows, joiner in _stored(replay, stream, partition, open_slice):
        # What no row to come can join need not be replayed.
        live = rows.take(program.expiry.is_live(rows.times))
        for begin in range(0, len(live), _ROWS_AT_ONCE):
            part = live.take(np.arange(begin, min(begin + _ROWS_AT_ONCE, len(live))))
            fetch = partial(_fetch, joiner, stream)
            table = pa.table({c.name: history.values(c, part, fetch) for c in encoder.source})
            encoded, _ = encoder(table)
            yield from (RoutedRows(each.partition, each.input, "replayed", each.table) for each in encoded)


def _stored(
    replay: Replay, stream: str, partition: int, open_slice: OpenSlice
) -> Iterator[tuple[IndexRows, Joiner]]:
    source = replay.source
    state = next(s for s in source.layout.fragment_of_input if s.streams == (stream,))
    fragment = source.layout.fragment_of_input[state]
    states = StoredStates(source, fragment, partition, open_slice)
    payload = Payload(lambda: list(states.open("payload", state, fragment.key)))
    joiner = Joiner(source.query, {state: payload}, source.expiry, source.epoch, partition)
    key = fragment.arrangements[state][0]
    retention = source.retention
    for slice_ in states.slices("index", state, key):
        if may_have_gained(slice_, replay.epochs):
            rows = states.own_part(IndexRows.from_table(open_slice(slice_), key, slice_))
            rows = rows.take(gained_between(rows, replay.epochs))
            yield retention.useful(rows, slice_), joiner


def _fetch(joiner: Joiner, stream: str, rows: IndexRows, column: str) -> pa.ChunkedArray:
    return joiner.fetch(rows, stream, column)

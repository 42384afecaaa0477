"""The step: one fragment, one engine partition, one epoch.

A pure function: its whole input is in its arguments, and what it gives is values. It may be run again, or
twice at once, and always gives the same; the shells around it read and write the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from midstream.engine.encode import HASH, time_column
from midstream.engine.hashing import hash_key
from midstream.engine.node import Joiner
from midstream.engine.ordering import stable_order
from midstream.engine.payload import Payload, make_segment, merge_payload
from midstream.engine.program import InputCount, NewSlice, Program, StepOutput
from midstream.engine.routing import split
from midstream.engine.rows import READ_LESS, Rows, merge_rows, new_references, segment_of, sort_rows
from midstream.errors import StreamError
from midstream.plan.layout import Fragment, FragmentInput, Key, StateId, column_name, streams_of
from midstream.state.compaction import choose_merge
from midstream.state.slices import Slice, SliceKind, StateKey

_LARGEST_COLUMN = 1 << 31

OpenSlice = Callable[[Slice], pa.Table]


def run_step(
    program: Program,
    fragment: Fragment,
    partition: int,
    arrivals: Mapping[StateId, Sequence[pa.Table]],
    open_slice: OpenSlice,
) -> StepOutput:
    """Take in what arrived, join it, and say what is new."""
    return _Step(program, fragment, partition, open_slice).run(arrivals)


@dataclass(frozen=True)
class _Step:
    program: Program
    fragment: Fragment
    partition: int
    open_slice: OpenSlice

    def run(self, arrivals: Mapping[StateId, Sequence[pa.Table]]) -> StepOutput:
        counts: dict[str, InputCount] = {}
        late: dict[str, pa.Table] = {}
        deltas: dict[StateId, Rows] = {}
        payloads: dict[StateId, Payload] = {}
        new: list[NewSlice] = []
        for entrance in self.fragment.inputs:
            table = _together(entrance.id, arrivals[entrance.id]) if entrance.id in arrivals else None
            if table is not None and entrance.fragment is None:
                table, counts[entrance.id], late[entrance.id] = self._admit(entrance.id, table)
            fresh: list[pa.Table] = []
            if table is not None and table.num_rows:
                rows, segment = self._take_in(entrance, table)
                deltas[entrance.id] = rows
                if entrance.columns:
                    fresh.append(segment)
                    new.append(self._slice("rows", entrance.id, self.fragment.key, rows, segment))
            payloads[entrance.id] = Payload(partial(self._payload, entrance.id, fresh))
        joiner = Joiner(self.program.query, payloads)
        new += self._join(joiner, deltas)
        kept, merged = self._compact(new)
        root = deltas.get(self.fragment.root)
        last = self.fragment.parent is None
        return StepOutput(
            results=self._results(joiner, root) if root is not None and last else None,
            outgoing=self._outgoing(joiner, root) if root is not None and not last else (),
            slices=kept,
            merged=merged,
            late={name: table for name, table in late.items() if table.num_rows},
            counts=counts,
            work=joiner.work,
        )

    def _admit(self, stream: str, table: pa.Table) -> tuple[pa.Table, InputCount, pa.Table]:
        """Separate the rows of a stream that are late or have no time."""
        time = table.column(time_column(stream))
        watermark = self.program.watermarks[stream]
        in_time = pc.is_valid(time)
        nulls = time.null_count
        if watermark is not None:
            earliest = pa.scalar(max(watermark, -(2**63)), pa.int64())
            in_time = pc.and_(in_time, pc.fill_null(pc.greater_equal(time, earliest), False))
        accepted = table if pc.all(in_time).as_py() else table.filter(in_time)
        dropped = table.num_rows - accepted.num_rows
        latest = pc.max(accepted.column(time_column(stream))).as_py()
        count = InputCount(accepted.num_rows, dropped - nulls, nulls, 0, latest)
        return accepted, count, table.filter(pc.invert(in_time)) if dropped else table.slice(0, 0)

    def _take_in(self, entrance: FragmentInput, table: pa.Table) -> tuple[Rows, pa.Table]:
        """Give the new rows references; only these are sorted, the payload stays as it came."""
        references = new_references(self.program.epoch, self.partition, table.num_rows)
        times = {s: table.column(time_column(s)).to_numpy() for s in entrance.streams}
        rows = sort_rows(self.fragment.key, table.column(HASH).to_numpy(), {entrance.id: references}, times)
        segment = make_segment(
            table.select(list(entrance.columns)),
            segment_of(self.program.epoch, self.partition),
            [int(times[s].max()) for s in entrance.streams],
        )
        return rows, segment

    def _join(self, joiner: Joiner, deltas: dict[StateId, Rows]) -> list[NewSlice]:
        """Run the nodes from the lowest up; each leaves its new rows in ``deltas``."""
        new: list[NewSlice] = []
        for node in self.fragment.nodes:
            rows = joiner.delta(node, deltas, self._runs)
            for state in node.inputs:
                if state not in deltas:
                    continue
                for key in node.arrangements(state, self.fragment.key):
                    arranged = joiner.arrange(deltas[state], key)
                    new.append(self._slice("index", state, key, arranged, arranged.to_table()))
            if rows is not None:
                deltas[node.id] = rows
        return new

    def _payload(self, state: StateId, fresh: list[pa.Table]) -> list[pa.Table]:
        return [*self._open("rows", state, self.fragment.key), *fresh]

    def _runs(self, state: StateId, key: Key) -> list[Rows]:
        return [Rows.from_table(table, key) for table in self._open("index", state, key)]

    def _open(self, kind: SliceKind, state: StateId, key: Key) -> list[pa.Table]:
        owner = StateKey(kind, state, key, self.partition)
        return [self.open_slice(slice_) for slice_ in self.program.slices.get(owner, ())]

    def _slice(self, kind: SliceKind, state: StateId, key: Key, rows: Rows, table: pa.Table) -> NewSlice:
        epoch = self.program.epoch
        latest = tuple(int(rows.times[s].max()) for s in streams_of(state))
        owner = StateKey(kind, state, key, self.partition)
        return NewSlice(Slice(owner, epoch, epoch, 1, table.num_rows, latest), table)

    def _compact(self, new: list[NewSlice]) -> tuple[tuple[NewSlice, ...], tuple[str, ...]]:
        """Merge what has become too many; a new slice that merges at once is never written by itself."""
        kept: list[NewSlice] = []
        replaced: list[str] = []
        for fresh in new:
            owner = fresh.slice.owner
            chosen = choose_merge((*self.program.slices.get(owner, ()), fresh.slice))
            if not chosen:
                kept.append(fresh)
                continue
            tables = [fresh.table if s is fresh.slice else self.open_slice(s) for s in chosen]
            merged = self._merge(owner, chosen, tables)
            replaced += [s.name for s in chosen if s is not fresh.slice]
            if merged.slice.rows:
                kept.append(merged)
        return tuple(kept), tuple(replaced)

    def _merge(self, owner: StateKey, chosen: Sequence[Slice], tables: Sequence[pa.Table]) -> NewSlice:
        streams = streams_of(owner.state)
        latest = tuple(max(times) for times in zip(*(s.latest for s in chosen), strict=True))
        if owner.kind == "rows":
            table = merge_payload(tables, streams, self.program.purge)
        else:
            rows = merge_rows([self._alive(Rows.from_table(t, owner.key)) for t in tables])
            table = rows.to_table()
        merged = Slice(
            owner,
            min(s.lower for s in chosen),
            max(s.upper for s in chosen),
            sum(s.epochs for s in chosen),
            table.num_rows,
            latest,
        )
        return NewSlice(merged, table)

    def _alive(self, rows: Rows) -> Rows:
        alive = self.program.purge.alive(rows.times)
        return rows if alive.all() else rows.take(alive)

    def _results(self, joiner: Joiner, rows: Rows) -> pa.Table:
        """The outputs of new results, in the order of their latest component."""
        rows = rows.take(stable_order(rows.latest()))
        query = self.program.query
        columns = [joiner.fetch(rows, o.ref.stream, column_name(o.ref)) for o in query.outputs]
        return pa.table(columns, schema=query.output_schema)

    def _outgoing(self, joiner: Joiner, rows: Rows) -> tuple[tuple[int, pa.Table], ...]:
        """Carry the columns that are needed above, hashed by the key of the fragment above."""
        above = self.program.layout.fragments[self.fragment.parent or 0]
        entrance = above.by_id[self.fragment.root]
        key_values = [joiner.key_values(rows, c) for c in above.key]
        hashes = hash_key(key_values, len(rows))
        columns: dict[str, object] = {HASH: pa.array(hashes)}
        columns |= {time_column(s): pa.array(rows.times[s]) for s in entrance.streams}
        for column in entrance.columns:
            columns[column] = joiner.fetch(rows, _stream_of(column), column)
        targets = self.program.routing.targets(hashes)
        return tuple(split(pa.table(columns), targets))


def _together(name: StateId, tables: Sequence[pa.Table]) -> pa.Table:
    """All that arrived of an input. Arrow's offsets of text and binary have 31 bits."""
    table = pa.concat_tables(tables)
    for column in table.column_names:
        if table.column(column).nbytes >= _LARGEST_COLUMN:
            raise StreamError(
                "an epoch must bring at most 2 GiB of a column to one partition",
                got=f"{table.column(column).nbytes:,} bytes of {column} of {name}",
                hint=READ_LESS,
            )
    return table


def _stream_of(column: str) -> str:
    """The stream of a payload column: the word before ``.`` or ``#``."""
    return column.replace("#", ".").partition(".")[0]

"""Rows for the partitions of a task travel together, and reach each in the same order however packed."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine.routed_rows import RoutedRows
from midstream.plan.state_id import StateId
from midstream.spark import messages
from midstream.spark.messages import AddressedRows, Outbox, unpack
from midstream.spark.task_ranges import TaskRanges

PARTITIONS = 6
SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])


def table(first: int, rows: int) -> pa.Table:
    numbers = np.arange(first, first + rows)
    return pa.table({"number": numbers, "text": [f"row {number}" for number in numbers]}, schema=SCHEMA)


@st.composite
def sent_rows(draw):
    """What each of some origins sends: rows that are numbered in the order in which they are sent."""
    parts = st.lists(
        st.tuples(st.integers(0, PARTITIONS - 1), st.sampled_from(["a", "a,b"]), st.integers(0, 9)),
        max_size=8,
    )
    number = 0
    sent: list[list[RoutedRows]] = []
    for origin in draw(st.lists(parts, max_size=5)):
        sent.append([])
        for partition, state, rows in origin:
            sent[-1].append(RoutedRows(partition, StateId(state), "arriving", table(number, rows)))
            number += rows
    return sent


def deliver(outgoing, shuffled):
    """The rows that reach each input of each partition, as a task sorts them."""
    found: dict[tuple[int, str], list[int]] = {}
    for _, message in sorted(shuffled(outgoing), key=lambda one: (one[1].input, one[1].kind, one[1].origin)):
        for partition, rows in unpack(message.blob).by_partition():
            assert rows.schema == SCHEMA
            found.setdefault((partition, message.input), []).extend(rows.column("number").to_pylist())
    return {key: numbers for key, numbers in found.items() if numbers}


@given(sent_rows(), st.integers(1, PARTITIONS), st.integers(1, 400), st.randoms())
def test_each_partition_gets_its_rows_in_the_order_of_origins(sent, tasks, message_bytes, random):
    ranges = TaskRanges(PARTITIONS, tasks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "_MESSAGE_BYTES", message_bytes)
        # Origins are divided among tasks as partitions are; each packs what all of its own send.
        outgoing = []
        for task in range(tasks):
            outbox = Outbox(ranges)
            packed: list[AddressedRows] = []
            for origin in ranges.partitions_of(task):
                packed += outbox.add(sent[origin] if origin < len(sent) else [], origin)
            outgoing.append([*packed, *outbox.flush()])

    def shuffled(outgoing):
        # A shuffle delivers what tasks send in any order, but that of one task in its order.
        return [one for packed in random.sample(outgoing, len(outgoing)) for one in packed]

    want: dict[tuple[int, str], list[int]] = {}
    for routed in (part for origin in sent for part in origin):
        want.setdefault((routed.partition, routed.input), []).extend(
            routed.table.column("number").to_pylist()
        )
    assert deliver(outgoing, shuffled) == {key: numbers for key, numbers in want.items() if numbers}
    for packed in outgoing:
        for task, message in packed:
            assert all(ranges.task_of(partition) == task for partition in unpack(message.blob).partitions)


def test_small_parts_for_one_task_are_one_message():
    parts = [RoutedRows(p, StateId("a"), "arriving", table(10 * p, 10)) for p in (3, 0, 5, 1)]
    outbox = Outbox(TaskRanges(PARTITIONS, 2))
    assert list(outbox.add(parts, 7)) == []
    sent = list(outbox.flush())
    assert [(task, message.origin) for task, message in sent] == [(1, 7), (0, 7)]
    assert [unpack(message.blob)[1:] for _, message in sent] == [([3, 5], [10, 10]), ([0, 1], [10, 10])]


def test_a_large_part_is_sent_in_pieces_and_by_itself(monkeypatch):
    monkeypatch.setattr(messages, "_MESSAGE_BYTES", 1000)
    outbox = Outbox(TaskRanges(2, 1), null_keys=4)
    small, large = (RoutedRows(p, StateId("a"), "arriving", table(0, n)) for p, n in ((0, 5), (1, 500)))
    sent = [message for _, message in outbox.add([small, large, small], 0)]
    packed = [unpack(message.blob) for message in sent]
    assert [rows.partitions for rows in packed] == [[0], *[[1]] * (len(packed) - 1)]
    assert pa.concat_tables(rows.table for rows in packed[1:]) == large.table
    assert max(message.blob.size for message in sent) < 3000
    ((_, last),) = outbox.flush()
    assert unpack(last.blob).table == small.table
    assert [message.null_keys for message in (*sent, last)] == [4, *[0] * len(sent)]


def test_a_part_without_rows_is_sent_too():
    outbox = Outbox(TaskRanges(2, 1), null_keys=1)
    assert list(outbox.add([RoutedRows(1, StateId("a"), "arriving", SCHEMA.empty_table())], 0)) == []
    ((_, message),) = outbox.flush()
    assert unpack(message.blob) == (SCHEMA.empty_table(), [1], [0])
    assert message.null_keys == 1

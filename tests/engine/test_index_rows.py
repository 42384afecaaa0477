from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from midstream.engine import references as references_module
from midstream.engine.index_rows import IndexRows, merge_rows
from midstream.engine.payload import Payload, make_segments, merge_payload, segments_of
from midstream.engine.references import Integers, epoch_of, new_references, segment_of, split_references
from midstream.errors import InternalError, StreamError
from midstream.plan.state_id import StateId
from midstream.query.window import Windows
from midstream.state.expiry import Expiry
from midstream.values import Micros


def references_of(epoch: int, partition: int, count: int) -> Integers:
    return new_references(segment_of(epoch, partition), count)


def test_a_reference_is_epoch_partition_and_position():
    references = references_of(7, 3, 4)
    segments, positions = split_references(references)
    assert epoch_of(references).tolist() == [7] * 4
    assert segments.tolist() == [segment_of(7, 3)] * 4
    assert positions.tolist() == [0, 1, 2, 3]
    assert references_of(8, 0, 1)[0] > references_of(7, references_module.MAX_PARTITIONS - 1, 1)[0]
    assert references_of(2**28, 0, 1)[0] > 0


def test_too_many_rows_of_an_epoch_are_refused(monkeypatch):
    monkeypatch.setattr(references_module, "MAX_POSITIONS", 4)
    assert len(references_of(0, 0, 4)) == 4
    with pytest.raises(StreamError, match=r"at most 4 rows .* got 5. Hint: read less per trigger"):
        references_of(0, 0, 5)


def make_rows(*hashes: int) -> IndexRows:
    numbers = np.arange(len(hashes))
    return IndexRows(
        (0,), np.array(hashes, np.uint64), {StateId("a"): numbers}, {"a": numbers * 10, "b": numbers}
    )


def test_rows_can_be_a_table_and_back():
    rows = make_rows(1, 5, 2**64 - 1)
    again = IndexRows.from_table(rows.to_table(), (0,))
    assert again.hashes.tolist() == rows.hashes.tolist()
    assert again.hashes.dtype == np.uint64
    assert {n: c.tolist() for n, c in again.references.items()} == {"a": [0, 1, 2]}
    assert list(again.times) == ["a", "b"]
    assert rows.latest().tolist() == [0, 10, 20]


def test_merging_keeps_rows_sorted():
    merged = merge_rows([make_rows(1, 5), make_rows(0, 5, 9)])
    assert merged.hashes.tolist() == [0, 1, 5, 5, 9]
    assert merged.references[StateId("a")].tolist() == [0, 0, 1, 1, 2]


def segment(epoch: int, *values: str, latest: int = 0) -> pa.Table:
    return make_segments(pa.table({"a.v": list(values)}), [(segment_of(epoch, 1), len(values), latest)])


def test_payload_is_found_by_reference_in_any_order_across_slices():
    payload = Payload(lambda: (segment(5, "x", "y"), segment(2, "p", "q", "r")))
    rows = np.concatenate([references_of(2, 1, 3)[::-1], references_of(5, 1, 2)])
    assert payload.fetch(["a.v"], rows).column("a.v").to_pylist() == ["r", "q", "p", "x", "y"]


def test_merged_payload_has_the_same_rows():
    tables = [segment(1, "x"), segment(2, "p", "q"), segment(4, "z")]
    merged = Payload(lambda: (merge_payload(tables, [lambda latest, epoch: False] * len(tables)),))
    rows = np.concatenate([references_of(4, 1, 1), references_of(2, 1, 2), references_of(1, 1, 1)])
    assert merged.fetch(["a.v"], rows).column("a.v").to_pylist() == ["z", "p", "q", "x"]


def test_merging_drops_dead_segments():
    expiry = Expiry(Windows((("a", "b", Micros(10)),)), {"a": None, "b": 100})
    tables = [segment(1, "old", latest=89), segment(2, "new", "n", latest=90)]
    is_useless = partial(expiry.has_expired, ["a"])
    merged = merge_payload(tables, [is_useless] * len(tables))
    assert merged.column("a.v").to_pylist() == ["new", "n"]
    assert segments_of(merged).tolist() == [[segment_of(2, 1), 2, 90]]
    empty = merge_payload(tables[:1], [is_useless])
    assert empty.num_rows == 0
    assert segments_of(empty).shape == (0, 3)


def test_a_reference_without_a_row_is_an_internal_error():
    with pytest.raises(InternalError, match="every reference must lead to a row; got segment"):
        Payload(lambda: (segment(1, "x"),)).fetch(["a.v"], references_of(2, 1, 1))
    with pytest.raises(InternalError, match="no payload at all"):
        Payload(lambda: ()).fetch(["a.v"], references_of(2, 1, 1))

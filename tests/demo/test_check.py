"""The check of the demo accepts right results, and no others."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream.demo.check import accepted, check_results
from midstream.query.build import build_query
from midstream.testing import Shape, accept, assert_same_rows, batch_join, generate, stream
from midstream.values import Micros

BAD = Shape(rows=300, keys=200, late=0.1, null_keys=0.05, duplicates=0.05)
MINUTE = Micros(60_000_000)


@pytest.fixture(scope="module")
def query():
    streams = [stream("a", BAD), stream("b", BAD)]
    return build_query(
        streams, ["a.k = b.k"], default_window=MINUTE, pairs={}, select=["a.id", "b.id", "b.v"]
    )


@pytest.fixture(scope="module")
def epochs():
    return generate({"a": BAD, "b": BAD}, epochs=6, seed=3)


@pytest.fixture
def streams(epochs):
    return {name: [epoch[name] for epoch in epochs] for name in ("a", "b")}


@pytest.fixture
def right(query, epochs):
    return batch_join(query, accept(query, epochs).tables(query))


def comparison(query, streams, folder, *parts):
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(parts):
        pq.write_table(part, folder / f"part-{number}.parquet")
    return check_results(query, streams, folder)


def test_it_takes_the_rows_that_the_test_kit_takes(query, epochs, streams):
    model = accept(query, epochs)
    assert model.progress["a"].late > 50
    assert model.progress["a"].null_key > 50
    for name, want in model.tables(query).items():
        assert_same_rows(accepted(query, name, streams[name]), want, name)


def test_right_results_in_any_order_and_files_are_equal(query, streams, right, tmp_path):
    assert right.num_rows > 100
    mixed = right.sort_by([("b_v", "descending")])
    found = comparison(query, streams, tmp_path, mixed.slice(40), mixed.slice(0, 40))
    assert found.problem is None
    assert str(found) == f"{right.num_rows:,} results, equal to DuckDB's batch join"


def test_a_missing_result_is_found(query, streams, right, tmp_path):
    found = comparison(query, streams, tmp_path, right.slice(1))
    assert found.results == found.expected - 1
    assert "1 missing, 0 surplus" in found.problem
    assert "not equal to DuckDB's batch join" in str(found)


def test_a_result_that_comes_twice_is_found(query, streams, right, tmp_path):
    found = comparison(query, streams, tmp_path, right, right.slice(0, 1))
    assert "0 missing, 1 surplus" in found.problem


def test_a_changed_value_is_found_although_counts_agree(query, streams, right, tmp_path):
    values = right.column("b_v").to_pylist()
    damaged = right.set_column(2, "b_v", pa.array([values[0] + 1, *values[1:]], pa.int32()))
    found = comparison(query, streams, tmp_path, damaged)
    assert found.results == found.expected
    assert "1 missing, 1 surplus" in found.problem


def test_no_results_at_all_are_wrong_if_there_should_be_some(query, streams, tmp_path):
    assert comparison(query, streams, tmp_path).problem is not None

"""The streams of the demo: the same for a seed, and with the irregularities that they promise."""

from datetime import timedelta
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from midstream.demo import data
from midstream.demo.query import SCHEMAS

EPOCHS, ROWS, SEED = 10, 20_000, 7


@pytest.fixture(scope="module")
def streams():
    return data.generate(EPOCHS, ROWS, SEED)


@pytest.fixture(scope="module")
def frames(streams):
    return {name: pl.DataFrame(pa.concat_tables(tables)) for name, tables in streams.items()}


def micros(table):
    return table.column(-1).cast(pa.int64()).to_numpy()


def test_a_seed_gives_the_same_rows_again(streams):
    assert data.generate(EPOCHS, ROWS, SEED) == streams


def test_another_seed_gives_other_rows(streams):
    assert data.generate(EPOCHS, ROWS, SEED + 1) != streams


def test_streams_have_the_columns_that_the_query_reads(streams):
    wanted = {name: [column.split()[0] for column in ddl.split(", ")] for name, ddl in SCHEMAS.items()}
    assert {name: tables[0].column_names for name, tables in streams.items()} == wanted


def test_every_epoch_has_about_the_rows_asked_for(streams):
    totals = [sum(tables[epoch].num_rows for tables in streams.values()) for epoch in range(EPOCHS)]
    assert all(0.9 * ROWS < total < 1.2 * ROWS for total in totals)


def test_rows_come_out_of_order(streams):
    assert all((np.diff(micros(table)) < 0).any() for tables in streams.values() for table in tables)


def test_some_rows_come_in_a_later_epoch_than_their_time(streams):
    for tables in streams.values():
        for epoch, table in enumerate(tables):
            assert (micros(table) < data.OPENING + epoch * data.EPOCH).any()


def test_a_few_rows_are_late_and_they_are_the_stragglers(streams):
    for tables in streams.values():
        late, latest = 0, None
        for table in tables:
            times = micros(table)
            if latest is not None:
                late += int((times < latest - data.LATENESS).sum())
            latest = max(times.max(), latest or 0)
        share = late / sum(table.num_rows for table in tables)
        assert 0.3 * data.STRAGGLING < share < 2 * data.STRAGGLING


def test_some_payments_do_not_say_for_what(frames):
    assert 0 < frames["payments"]["order_id"].null_count() < 0.02 * len(frames["payments"])


def test_some_payments_are_too_small_or_too_late_or_the_second(frames):
    paid = frames["orders"].join(frames["payments"], left_on="id", right_on="order_id")
    in_full = pl.col("amount") >= pl.col("quantity") * pl.col("price")
    soon = pl.col("paid_at") - pl.col("placed_at") <= pl.duration(minutes=15)
    assert 0.01 < paid.select((~in_full).mean()).item() < 0.2
    assert 0.001 < paid.select((~soon).mean()).item() < 0.05
    assert paid["id"].is_duplicated().any()


def test_some_orders_are_picked_in_two_warehouses_that_ship_for_themselves(frames):
    by_order = frames["picks"].group_by("order_id").agg(pl.col("warehouse").n_unique())
    assert set(by_order["warehouse"]) == {1, 2}
    shipped = frames["picks"].join(frames["shipments"], on=["order_id", "warehouse"])
    assert not shipped["tracking"].is_duplicated().any()


def test_some_deliveries_are_reported_twice_some_never_some_too_late(frames):
    delivered = frames["deliveries"]
    assert 0 < delivered.is_duplicated().sum() < 0.05 * len(delivered)
    long_ago = frames["shipments"].filter(pl.col("shipped_at").dt.hour() < 9)
    assert len(long_ago.join(delivered, on="tracking", how="anti"))
    whole = frames["orders"].join(frames["shipments"], left_on="id", right_on="order_id")
    whole = whole.join(delivered, on="tracking")
    assert (whole["delivered_at"] - whole["placed_at"]).max() > timedelta(hours=2)


def test_files_are_read_back_as_they_were_and_are_older_the_earlier_the_epoch(streams, tmp_path):
    data.write(streams, tmp_path / "streams")
    assert data.read(tmp_path / "streams") == streams
    for name in streams:
        files = sorted((tmp_path / "streams" / name).iterdir())
        ages = [path.stat().st_mtime for path in files]
        assert len(files) == EPOCHS
        assert all(b - a >= 1 for a, b in pairwise(ages))


def test_the_smallest_demo_has_something(tmp_path):
    assert all(len(tables) == 1 for tables in data.generate(1, 5, 0).values())

"""A small query over three streams, epochs for it, and a checkpoint of it, where any query would do."""

from pathlib import Path

import pyarrow.parquet as pq

from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.storage.lease import seize_lease
from midstream.storage.local import LocalStore
from midstream.testing import Shape, accept, assert_same_rows, batch_join, generate, stream
from midstream.values import Micros

_SHAPE = Shape(rows=6, late=0.1, null_keys=0.05)
EPOCHS = generate(dict.fromkeys("abc", _SHAPE), epochs=9, seed=4)
PLAN, OTHER_PLAN = "(a b) c", "a (b c)"
SETTINGS = Settings(2, 8)
QUERY = build_query(
    [stream(name, _SHAPE) for name in "abc"],
    ["a.k = b.k", "b.k2 = c.k2", "a.v <> c.v"],
    default_window=Micros(25_000_000),
    select=["a.id", "b.id", "c.id", "c.k2"],
)


def make_checkpoint(folder: Path, epochs: int = 3) -> Path:
    """A checkpoint of the first epochs. Its lease is given back, so that nobody waits for this process."""
    store = LocalStore(str(folder))
    lease = seize_lease(store, "test")
    query = InlineJoin(QUERY, settings=SETTINGS, store=store, lease=lease)
    for epoch in EPOCHS[:epochs]:
        query.run_epoch(epoch)
    lease.release()
    return folder


def check_results(folder: Path) -> None:
    """A folder of Parquet files has the results of all epochs."""
    want = batch_join(QUERY, accept(QUERY, EPOCHS).tables(QUERY))
    assert_same_rows(pq.read_table(folder), want)

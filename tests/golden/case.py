"""The query behind the golden checkpoints. It must never change: the checkpoints were made with it.

``python -m tests.golden.case FOLDER`` makes the checkpoint of the current format.
"""

import sys
from pathlib import Path

from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.storage.local import LocalStore
from midstream.testing import Shape, generate, stream
from midstream.values import Micros

SHAPE = Shape(rows=6, late=0.1, null_keys=0.05)
EPOCHS = generate(dict.fromkeys("abc", SHAPE), epochs=9, seed=4)
MADE_WITH = 6
"""Epochs that are in the checkpoint; the others are run on top of it."""
SETTINGS = Settings(2, 8)
QUERY = build_query(
    [stream(name, SHAPE) for name in "abc"],
    ["a.k = b.k", "b.k2 = c.k2", "a.v <> c.v"],
    everywhere=Micros(25_000_000),
    select=["a.id", "b.id", "c.id", "c.k2"],
)

if __name__ == "__main__":
    store = LocalStore(str(Path(sys.argv[1]).absolute()))
    query = InlineJoin(QUERY, settings=SETTINGS, store=store)
    for epoch in EPOCHS[:MADE_WITH]:
        query.run_epoch(epoch)

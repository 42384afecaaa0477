"""What the epochs of a migration cost, in time: it must follow what they do, not what is stored.

A clique of four streams that are all alike, so both plans cost the same, with many epochs in a window. Each
contestant goes on from the same checkpoint and gets the same rows as the one that does not migrate; only the
ratio of the two says something.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from midstream.inline import InlineJoin
from midstream.migration.request import BackgroundChoice
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.storage.memory_store import MemoryStore
from midstream.storage.slice_files import slice_files
from midstream.values import Micros

NAMES = ("a", "b", "c", "d")
OLD, NEW = "((a b) c) d", "a (b (c d))"
EPOCH_MICROS = 1_000_000
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
WARM_UP_WINDOWS = 1.5


@dataclass(frozen=True)
class Setting:
    """How many epochs a window has, and how many rows of each stream an epoch."""

    epochs_per_window: int
    rows: int
    measured: int
    """Epochs from the start of the migration on."""

    def query(self) -> Query:
        """The clique."""
        streams = [Stream(n, SCHEMA, ColumnRef(n, ("ts",)), Micros(0)) for n in NAMES]
        on = [f"{a}.k = {b}.k" for a, b in pairwise(NAMES)]
        window = Micros(self.epochs_per_window * EPOCH_MICROS)
        return build_query(streams, on, default_window=window, select=[f"{n}.id" for n in NAMES])

    def epoch(self, number: int) -> dict[str, pa.Table]:
        """The rows of an epoch; each row matches about one row of every other stream in the window."""
        random = np.random.default_rng(number)
        begin, keys = number * EPOCH_MICROS, self.epochs_per_window * self.rows
        tables = {}
        for name in NAMES:
            times = np.sort(random.integers(begin, begin + EPOCH_MICROS, self.rows))
            ids = np.arange(number * self.rows, (number + 1) * self.rows)
            columns = [ids, random.integers(0, keys, self.rows), times.view("datetime64[us]")]
            tables[name] = pa.table(columns, schema=SCHEMA)
        return tables


SETTINGS = (
    Setting(epochs_per_window=400, rows=2000, measured=400),
    Setting(epochs_per_window=4000, rows=200, measured=500),
)


@dataclass(frozen=True)
class Contestant:
    """A way to migrate."""

    strategy: str
    isolated: bool | None = None
    background: bool = False


CONTESTANTS: dict[str, Contestant | None] = {
    "no migration": None,
    "parallel track": Contestant("parallel_track"),
    "hybrid": Contestant("hybrid", isolated=False),
    "hybrid, isolated": Contestant("hybrid", isolated=True),
    "hybrid, background": Contestant("hybrid", background=True),
}


def warm_up(setting: Setting) -> MemoryStore:
    """The checkpoint of a query that has run for more than a window."""
    store = MemoryStore()
    join = InlineJoin(setting.query(), OLD, settings=Settings(1, 1), store=store)
    for number in range(round(setting.epochs_per_window * WARM_UP_WINDOWS)):
        join.run_epoch(setting.epoch(number))
    return store


def reopen(setting: Setting, store: MemoryStore) -> InlineJoin:
    """The query on a copy of a checkpoint, as if it had never stopped: it has verified all slices."""
    join = InlineJoin(setting.query(), settings=Settings(1, 1), store=MemoryStore(dict(store.files)))
    files = slice_files(join.store, join._runner._run_identity)
    for slice_ in join.manifest.slices:
        files.open(slice_)
    return join


def cpu_seconds(setting: Setting, store: MemoryStore, contestant: Contestant | None) -> Iterator[float]:
    """The processor time of each epoch."""
    join = reopen(setting, store)
    if contestant is not None:
        background: BackgroundChoice = "auto" if contestant.background else "off"
        join.migrate(NEW, contestant.strategy, background=background, isolated=contestant.isolated)
    first = join.manifest.epoch + 1
    for number in range(first, first + setting.measured):
        rows = setting.epoch(number)
        begin = time.process_time()
        join.run_epoch(rows, background_epochs=1)
        yield time.process_time() - begin


def run(console: Console) -> dict[str, Any]:
    """All contestants in all settings, as ratios to epochs without a migration."""
    figures: dict[str, Any] = {}
    for setting in SETTINGS:
        store = warm_up(setting)
        # Epoch by epoch in turn: what else the machine does slows all of them down alike.
        epochs = zip(*(cpu_seconds(setting, store, c) for c in CONTESTANTS.values()), strict=True)
        seconds = dict(zip(CONTESTANTS, np.array(list(epochs)).T, strict=True))
        figures[str(setting.epochs_per_window)] = _show(console, setting, seconds)
    return figures


def _show(console: Console, setting: Setting, seconds: dict[str, Any]) -> dict[str, dict[str, float]]:
    title = f"{setting.epochs_per_window:,} epochs per window, {setting.rows:,} rows an epoch and stream"
    table = Table(title=f"Epochs of a migration, processor time: {title}")
    columns = ("", "mean epoch", "over no migration", "first quarter", "first epoch", "longest epoch")
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    steady = seconds["no migration"]
    figures = {}
    for name, epochs in seconds.items():
        begin = slice(None, len(epochs) // 4)
        figures[name] = {
            "mean": epochs.mean() / steady.mean(),
            "quarter": epochs[begin].mean() / steady[begin].mean(),
            "first": epochs[0] / steady[0],
            "longest": epochs.max() / steady.max(),
        }
        ratios = (f"{ratio:.2f} x" for ratio in figures[name].values())
        table.add_row(name, f"{1000 * epochs.mean():.1f} ms", *ratios)
    console.print(table)
    return figures


if __name__ == "__main__":
    run(Console())

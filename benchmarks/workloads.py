"""Workloads: what is joined, and generated input for it, the same for a seed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SECOND = 1_000_000
START = 1_704_067_200 * SECOND  # 2024-01-01


@dataclass(frozen=True)
class Workload:
    """Streams that each have a file per second of event time."""

    name: str
    about: str
    keys: dict[str, tuple[str, ...]]
    """The key columns of each stream; streams join where they have a column of the same name."""
    domain: int
    """Distinct values of a key column."""
    rows: int
    """Rows of a stream in a second of event time."""
    seconds: int
    window: int
    """Seconds that the rows of a result may be apart."""
    seconds_per_epoch: int = 1
    text_columns: int = 0
    """Additional columns of text."""
    skipped: tuple[str, ...] = ()
    """Contestants that do not take part."""

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams, in the order in which they are joined."""
        return tuple(self.keys)

    def equalities(self) -> list[tuple[str, str, str]]:
        """(left stream, right stream, key column): each stream with the first before it that shares a key."""
        found = []
        for i, right in enumerate(self.streams):
            for key in self.keys[right]:
                left = next((s for s in self.streams[:i] if key in self.keys[s]), None)
                if left is not None:
                    found.append((left, right, key))
        return found

    def columns(self, stream: str) -> list[str]:
        """The columns of a stream."""
        return [*self.keys[stream], "ts", "v", *(f"s{i}" for i in range(self.text_columns))]

    def write(self, root: Path) -> Path:
        """Write the input below ``root`` unless it is there."""
        folder = root / f"{self.name}-{self.rows}-{self.seconds}"
        if (folder / "done").exists():
            return folder
        random = np.random.default_rng(0)
        words = np.array([f"text {i:06d} of a column" for i in range(10_000)])
        for stream in self.streams:
            (folder / stream).mkdir(parents=True, exist_ok=True)
            for second in range(self.seconds):
                begin = START + second * SECOND
                columns: dict[str, object] = {
                    key: random.integers(0, self.domain, self.rows) for key in self.keys[stream]
                }
                times = np.sort(random.integers(begin, begin + SECOND, self.rows))
                columns["ts"] = pa.array(times, pa.timestamp("us", tz="UTC"))
                columns["v"] = random.integers(0, 1 << 40, self.rows)
                for i in range(self.text_columns):
                    columns[f"s{i}"] = words[random.integers(0, len(words), self.rows)]
                path = folder / stream / f"{second:05d}.parquet"
                pq.write_table(pa.table(columns), path)
                # Spark reads files in the order of their times, and small ones take no time to write.
                os.utime(path, (START // SECOND + second,) * 2)
        (folder / "done").touch()
        return folder


Keys = dict[str, tuple[str, ...]]
CLIQUE: Keys = dict.fromkeys("abcd", ("k",))
TRIPLE: Keys = dict.fromkeys("abc", ("k",))
CHAIN: Keys = {"a": ("k1",), "b": ("k1", "k2"), "c": ("k2",), "d": ("k2", "k3"), "e": ("k3",)}

WORKLOADS = {
    w.name: w
    for w in (
        Workload("clique", "4-way clique, 1 M rows an epoch", CLIQUE, 500_000, 50_000, 40, 5, 5),
        Workload("clique-small", "4-way clique, 200 k rows an epoch", CLIQUE, 500_000, 50_000, 16, 5, 1),
        Workload("chain", "5-way chain over three keys, 500 k rows", CHAIN, 500_000, 50_000, 20, 5, 2),
        Workload("wide", "3-way, 20 columns of text, 120 k rows", TRIPLE, 200_000, 20_000, 20, 5, 2, 17),
        Workload("long-window", "10 x the window, 1 M rows", CLIQUE, 5_000_000, 50_000, 70, 50, 5),
        # Spark's own joins would take an hour for so many epochs, and there is nothing to compare.
        Workload("tiny", "520 epochs of 100 rows", CLIQUE, 100, 25, 520, 5, skipped=("spark",)),
    )
}
